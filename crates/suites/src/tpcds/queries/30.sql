-- Customers of a state who return more by web than others of theirs do
with returned (customer_sk, state, amount) as (
  select wr_returning_customer_sk, ca_state, sum(wr_return_amt)
  from web_returns, date_dim, customer_address
  where wr_returned_date_sk = d_date_sk
    and d_year = 2002
    and wr_returning_addr_sk = ca_address_sk
  group by wr_returning_customer_sk, ca_state
)
select
  c_customer_id, c_salutation, c_first_name, c_last_name, c_preferred_cust_flag, c_birth_day, c_birth_month,
  c_birth_year, c_birth_country, c_login, c_email_address, c_last_review_date_sk, amount
from returned r1, customer_address, customer
where r1.amount > (
    select avg(amount) * 1.2
    from returned r2
    where r1.state = r2.state
  )
  and ca_address_sk = c_current_addr_sk
  and ca_state = 'GA'
  and r1.customer_sk = c_customer_sk
order by
  c_customer_id, c_salutation, c_first_name, c_last_name, c_preferred_cust_flag, c_birth_day, c_birth_month,
  c_birth_year, c_birth_country, c_login, c_email_address, c_last_review_date_sk, amount
limit 100
