-- Sales by web of mornings per one of the evening
select
  case when evening = 0 then null else cast(morning as decimal(15, 4)) / cast(evening as decimal(15, 4)) end
    as am_pm_ratio
from
  (
    select count(*) as morning
    from web_sales, household_demographics, time_dim, web_page
    where ws_sold_time_sk = t_time_sk
      and ws_ship_hdemo_sk = hd_demo_sk
      and ws_web_page_sk = wp_web_page_sk
      and t_hour between 8 and 8 + 1
      and hd_dep_count = 6
      and wp_char_count between 5000 and 5200
  ) as am,
  (
    select count(*) as evening
    from web_sales, household_demographics, time_dim, web_page
    where ws_sold_time_sk = t_time_sk
      and ws_ship_hdemo_sk = hd_demo_sk
      and ws_web_page_sk = wp_web_page_sk
      and t_hour between 19 and 19 + 1
      and hd_dep_count = 6
      and wp_char_count between 5000 and 5200
  ) as pm
order by am_pm_ratio
limit 100
