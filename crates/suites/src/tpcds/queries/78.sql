-- Customers and items of a year, what stores sold for each that other channels sold and nobody returned
with ws as (
  select
    d_year as sold_year, ws_item_sk as item_sk, ws_bill_customer_sk as customer_sk, sum(ws_quantity) as qty,
    sum(ws_wholesale_cost) as wc, sum(ws_sales_price) as sp
  from web_sales
  left join web_returns on wr_order_number = ws_order_number and ws_item_sk = wr_item_sk
  join date_dim on ws_sold_date_sk = d_date_sk
  where wr_order_number is null
  group by d_year, ws_item_sk, ws_bill_customer_sk
),
cs as (
  select
    d_year as sold_year, cs_item_sk as item_sk, cs_bill_customer_sk as customer_sk, sum(cs_quantity) as qty,
    sum(cs_wholesale_cost) as wc, sum(cs_sales_price) as sp
  from catalog_sales
  left join catalog_returns on cr_order_number = cs_order_number and cs_item_sk = cr_item_sk
  join date_dim on cs_sold_date_sk = d_date_sk
  where cr_order_number is null
  group by d_year, cs_item_sk, cs_bill_customer_sk
),
ss as (
  select
    d_year as sold_year, ss_item_sk as item_sk, ss_customer_sk as customer_sk, sum(ss_quantity) as qty,
    sum(ss_wholesale_cost) as wc, sum(ss_sales_price) as sp
  from store_sales
  left join store_returns on sr_ticket_number = ss_ticket_number and ss_item_sk = sr_item_sk
  join date_dim on ss_sold_date_sk = d_date_sk
  where sr_ticket_number is null
  group by d_year, ss_item_sk, ss_customer_sk
)
select
  ss.sold_year,
  ss.item_sk,
  ss.customer_sk,
  round(ss.qty * 1.00 / (coalesce(ws.qty, 0) + coalesce(cs.qty, 0)), 2) as ratio,
  ss.qty as store_qty,
  ss.wc as store_wholesale_cost,
  ss.sp as store_sales_price,
  coalesce(ws.qty, 0) + coalesce(cs.qty, 0) as other_qty,
  coalesce(ws.wc, 0) + coalesce(cs.wc, 0) as other_wholesale_cost,
  coalesce(ws.sp, 0) + coalesce(cs.sp, 0) as other_sales_price
from ss
left join ws on ws.sold_year = ss.sold_year and ws.item_sk = ss.item_sk and ws.customer_sk = ss.customer_sk
left join cs on cs.sold_year = ss.sold_year and cs.item_sk = ss.item_sk and cs.customer_sk = ss.customer_sk
where (coalesce(ws.qty, 0) > 0 or coalesce(cs.qty, 0) > 0)
  and ss.sold_year = 2000
order by ss.sold_year, ss.item_sk, ss.customer_sk, store_qty, other_qty
limit 100
