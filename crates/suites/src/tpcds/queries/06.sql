-- States of customers who buy what is dear in its category
select ca_state, count(*) as cnt
from customer_address, customer, store_sales, date_dim, item i
where ca_address_sk = c_current_addr_sk
  and c_customer_sk = ss_customer_sk
  and ss_sold_date_sk = d_date_sk
  and ss_item_sk = i.i_item_sk
  and d_month_seq = (
    select distinct d_month_seq
    from date_dim
    where d_year = 2001
      and d_moy = 1
  )
  and i.i_current_price > 1.2 * (
    select avg(j.i_current_price)
    from item j
    where j.i_category = i.i_category
  )
group by ca_state
having count(*) >= 10
order by cnt, ca_state
limit 100
