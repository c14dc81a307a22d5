-- Counties where sales by web grow faster than those of stores
with stores as (
  select ca_county as county, d_qoy as qoy, d_year, sum(ss_ext_sales_price) as sales
  from store_sales, date_dim, customer_address
  where ss_sold_date_sk = d_date_sk
    and ss_addr_sk = ca_address_sk
  group by ca_county, d_qoy, d_year
),
web as (
  select ca_county as county, d_qoy as qoy, d_year, sum(ws_ext_sales_price) as sales
  from web_sales, date_dim, customer_address
  where ws_sold_date_sk = d_date_sk
    and ws_bill_addr_sk = ca_address_sk
  group by ca_county, d_qoy, d_year
)
select
  s1.county,
  s1.d_year,
  w2.sales / w1.sales as web_q1_q2_increase,
  s2.sales / s1.sales as store_q1_q2_increase,
  w3.sales / w2.sales as web_q2_q3_increase,
  s3.sales / s2.sales as store_q2_q3_increase
from stores s1, stores s2, stores s3, web w1, web w2, web w3
where s1.qoy = 1
  and s1.d_year = 2000
  and s1.county = s2.county
  and s2.qoy = 2
  and s2.d_year = 2000
  and s2.county = s3.county
  and s3.qoy = 3
  and s3.d_year = 2000
  and s1.county = w1.county
  and w1.qoy = 1
  and w1.d_year = 2000
  and w1.county = w2.county
  and w2.qoy = 2
  and w2.d_year = 2000
  and w1.county = w3.county
  and w3.qoy = 3
  and w3.d_year = 2000
  and case when w1.sales > 0 then w2.sales / w1.sales end > case when s1.sales > 0 then s2.sales / s1.sales end
  and case when w2.sales > 0 then w3.sales / w2.sales end > case when s2.sales > 0 then s3.sales / s2.sales end
order by s1.county
