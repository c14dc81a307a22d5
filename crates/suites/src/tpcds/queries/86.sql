-- What is paid by web by category and class, ranked within their parents
select
  total_sum,
  i_category,
  i_class,
  lochierarchy,
  rank() over (
    partition by lochierarchy, case when g_class = 0 then i_category end
    order by total_sum desc nulls last
  ) as rank_within_parent
from (
  select
    sum(ws_net_paid) as total_sum,
    i_category,
    i_class,
    grouping(i_class) as g_class,
    grouping(i_category) + grouping(i_class) as lochierarchy
  from web_sales, date_dim, item
  where d_month_seq between 1200 and 1200 + 11
    and d_date_sk = ws_sold_date_sk
    and i_item_sk = ws_item_sk
  group by rollup (i_category, i_class)
) as paid
order by
  lochierarchy desc, case when lochierarchy = 0 then i_category end, rank_within_parent, i_category, i_class
limit 100
