-- Gross margins of stores by category and class, ranked within their parents
select
  gross_margin,
  i_category,
  i_class,
  lochierarchy,
  rank() over (
    partition by lochierarchy, case when g_class = 0 then i_category end
    order by gross_margin
  ) as rank_within_parent
from (
  select
    cast(sum(ss_net_profit) as double precision) / nullif(cast(sum(ss_ext_sales_price) as double precision), 0)
      as gross_margin,
    i_category,
    i_class,
    grouping(i_class) as g_class,
    grouping(i_category) + grouping(i_class) as lochierarchy
  from store_sales, date_dim, item, store
  where d_year = 2001
    and d_date_sk = ss_sold_date_sk
    and i_item_sk = ss_item_sk
    and s_store_sk = ss_store_sk
    and s_state in ('TN', 'TN', 'TN', 'TN', 'TN', 'TN', 'TN', 'TN')
  group by rollup (i_category, i_class)
) as margins
order by
  lochierarchy desc, case when lochierarchy = 0 then i_category end, rank_within_parent, i_category, i_class
limit 100
