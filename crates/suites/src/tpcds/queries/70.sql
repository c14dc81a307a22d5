-- Profits by state and county, ranked within their parents
select
  total_sum,
  s_state,
  s_county,
  lochierarchy,
  rank() over (
    partition by lochierarchy, case when g_county = 0 then s_state end
    order by total_sum desc nulls last
  ) as rank_within_parent
from (
  select
    sum(ss_net_profit) as total_sum,
    s_state,
    s_county,
    grouping(s_county) as g_county,
    grouping(s_state) + grouping(s_county) as lochierarchy
  from store_sales, date_dim, store
  where d_month_seq between 1200 and 1200 + 11
    and d_date_sk = ss_sold_date_sk
    and s_store_sk = ss_store_sk
    and s_state in (
      select s_state
      from (
        select
          s_state,
          rank() over (partition by s_state order by sum(ss_net_profit) desc nulls last) as ranking
        from store_sales, store, date_dim
        where d_month_seq between 1200 and 1200 + 11
          and d_date_sk = ss_sold_date_sk
          and s_store_sk = ss_store_sk
        group by s_state
      ) as states
      where ranking <= 5
    )
  group by rollup (s_state, s_county)
) as profits
order by
  lochierarchy desc, case when lochierarchy = 0 then s_state end, rank_within_parent, s_state, s_county
limit 100
