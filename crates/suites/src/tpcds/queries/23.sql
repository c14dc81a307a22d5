-- What the best customers bought, by catalog and web, of what stores often sell
with frequent_items as (
  select item_desc, i_item_sk as item_sk, d_date, count(*) as cnt
  from store_sales, date_dim, (select substring(i_item_desc, 1, 30) as item_desc, i_item_sk from item) as items
  where ss_sold_date_sk = d_date_sk
    and ss_item_sk = i_item_sk
    and d_year in (2000, 2000 + 1, 2000 + 2, 2000 + 3)
  group by item_desc, i_item_sk, d_date
  having count(*) > 4
),
most as (
  select max(customer_sales) as max_sales
  from (
    select c_customer_sk, sum(ss_quantity * ss_sales_price) as customer_sales
    from store_sales, customer, date_dim
    where ss_customer_sk = c_customer_sk
      and ss_sold_date_sk = d_date_sk
      and d_year in (2000, 2000 + 1, 2000 + 2, 2000 + 3)
    group by c_customer_sk
  ) as by_customer
),
best_customers as (
  select c_customer_sk as customer_sk, sum(ss_quantity * ss_sales_price) as customer_sales
  from store_sales, customer
  where ss_customer_sk = c_customer_sk
  group by c_customer_sk
  having sum(ss_quantity * ss_sales_price) > (50 / 100.0) * (select max_sales from most)
)
select c_last_name, c_first_name, sales
from (
  select c_last_name, c_first_name, sum(cs_quantity * cs_list_price) as sales
  from catalog_sales, customer, date_dim, frequent_items, best_customers
  where d_year = 2000
    and d_moy = 2
    and cs_sold_date_sk = d_date_sk
    and cs_item_sk = item_sk
    and cs_bill_customer_sk = customer_sk
    and cs_bill_customer_sk = c_customer_sk
  group by c_last_name, c_first_name
  union all
  select c_last_name, c_first_name, sum(ws_quantity * ws_list_price) as sales
  from web_sales, customer, date_dim, frequent_items, best_customers
  where d_year = 2000
    and d_moy = 2
    and ws_sold_date_sk = d_date_sk
    and ws_item_sk = item_sk
    and ws_bill_customer_sk = customer_sk
    and ws_bill_customer_sk = c_customer_sk
  group by c_last_name, c_first_name
) as both_channels
order by c_last_name, c_first_name, sales
limit 100
