-- Items that a store sells far less of than of its average item
with revenues as (
  select ss_store_sk as store_sk, ss_item_sk as item_sk, sum(ss_sales_price) as revenue
  from store_sales, date_dim
  where ss_sold_date_sk = d_date_sk
    and d_month_seq between 1176 and 1176 + 11
  group by ss_store_sk, ss_item_sk
)
select s_store_name, i_item_desc, r.revenue, i_current_price, i_wholesale_cost, i_brand
from
  store,
  item,
  (select store_sk, avg(revenue) as average from revenues group by store_sk) as a,
  revenues as r
where a.store_sk = r.store_sk
  and r.revenue <= 0.1 * a.average
  and s_store_sk = r.store_sk
  and i_item_sk = r.item_sk
order by s_store_name, i_item_desc, r.revenue, i_current_price, i_wholesale_cost, i_brand
limit 100
