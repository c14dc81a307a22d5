-- Customers whose purchases by catalog grew faster than those in stores and by web
with totals as (
  select
    c_customer_id, c_first_name, c_last_name, c_preferred_cust_flag, c_birth_country, c_login, c_email_address,
    d_year,
    sum((ss_ext_list_price - ss_ext_wholesale_cost - ss_ext_discount_amt + ss_ext_sales_price) / 2) as total,
    's' as channel
  from customer, store_sales, date_dim
  where c_customer_sk = ss_customer_sk
    and ss_sold_date_sk = d_date_sk
  group by
    c_customer_id, c_first_name, c_last_name, c_preferred_cust_flag, c_birth_country, c_login, c_email_address, d_year
  union all
  select
    c_customer_id, c_first_name, c_last_name, c_preferred_cust_flag, c_birth_country, c_login, c_email_address,
    d_year,
    sum((cs_ext_list_price - cs_ext_wholesale_cost - cs_ext_discount_amt + cs_ext_sales_price) / 2) as total,
    'c' as channel
  from customer, catalog_sales, date_dim
  where c_customer_sk = cs_bill_customer_sk
    and cs_sold_date_sk = d_date_sk
  group by
    c_customer_id, c_first_name, c_last_name, c_preferred_cust_flag, c_birth_country, c_login, c_email_address, d_year
  union all
  select
    c_customer_id, c_first_name, c_last_name, c_preferred_cust_flag, c_birth_country, c_login, c_email_address,
    d_year,
    sum((ws_ext_list_price - ws_ext_wholesale_cost - ws_ext_discount_amt + ws_ext_sales_price) / 2) as total,
    'w' as channel
  from customer, web_sales, date_dim
  where c_customer_sk = ws_bill_customer_sk
    and ws_sold_date_sk = d_date_sk
  group by
    c_customer_id, c_first_name, c_last_name, c_preferred_cust_flag, c_birth_country, c_login, c_email_address, d_year
)
select s2.c_customer_id, s2.c_first_name, s2.c_last_name, s2.c_preferred_cust_flag
from totals s1, totals s2, totals c1, totals c2, totals w1, totals w2
where s2.c_customer_id = s1.c_customer_id
  and s1.c_customer_id = c2.c_customer_id
  and s1.c_customer_id = c1.c_customer_id
  and s1.c_customer_id = w2.c_customer_id
  and s1.c_customer_id = w1.c_customer_id
  and s1.channel = 's'
  and c1.channel = 'c'
  and w1.channel = 'w'
  and s2.channel = 's'
  and c2.channel = 'c'
  and w2.channel = 'w'
  and s1.d_year = 2001
  and s2.d_year = 2001 + 1
  and c1.d_year = 2001
  and c2.d_year = 2001 + 1
  and w1.d_year = 2001
  and w2.d_year = 2001 + 1
  and s1.total > 0
  and c1.total > 0
  and w1.total > 0
  and case when c1.total > 0 then c2.total / c1.total end
    > case when s1.total > 0 then s2.total / s1.total end
  and case when c1.total > 0 then c2.total / c1.total end
    > case when w1.total > 0 then w2.total / w1.total end
order by s2.c_customer_id, s2.c_first_name, s2.c_last_name, s2.c_preferred_cust_flag
limit 100
