-- Customers who return more than others do in the same store
with returned (customer_sk, store_sk, amount) as (
  select sr_customer_sk, sr_store_sk, sum(sr_return_amt)
  from store_returns, date_dim
  where sr_returned_date_sk = d_date_sk
    and d_year = 2000
  group by sr_customer_sk, sr_store_sk
)
select c_customer_id
from returned r1, store, customer
where r1.amount > (
    select avg(amount) * 1.2
    from returned r2
    where r1.store_sk = r2.store_sk
  )
  and s_store_sk = r1.store_sk
  and s_state = 'TN'
  and r1.customer_sk = c_customer_sk
order by c_customer_id
limit 100
