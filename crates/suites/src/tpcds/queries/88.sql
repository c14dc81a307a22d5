-- How many items some households buy in each half hour of the morning
select *
from
  (
    select count(*) as h8_30_to_9
    from store_sales, household_demographics, time_dim, store
    where ss_sold_time_sk = t_time_sk
      and ss_hdemo_sk = hd_demo_sk
      and ss_store_sk = s_store_sk
      and t_hour = 8
      and t_minute >= 30
      and (
        (hd_dep_count = 4 and hd_vehicle_count <= 4 + 2)
        or (hd_dep_count = 2 and hd_vehicle_count <= 2 + 2)
        or (hd_dep_count = 0 and hd_vehicle_count <= 0 + 2)
      )
      and s_store_name = 'ese'
  ) as s1,
  (
    select count(*) as h9_to_9_30
    from store_sales, household_demographics, time_dim, store
    where ss_sold_time_sk = t_time_sk
      and ss_hdemo_sk = hd_demo_sk
      and ss_store_sk = s_store_sk
      and t_hour = 9
      and t_minute < 30
      and (
        (hd_dep_count = 4 and hd_vehicle_count <= 4 + 2)
        or (hd_dep_count = 2 and hd_vehicle_count <= 2 + 2)
        or (hd_dep_count = 0 and hd_vehicle_count <= 0 + 2)
      )
      and s_store_name = 'ese'
  ) as s2,
  (
    select count(*) as h9_30_to_10
    from store_sales, household_demographics, time_dim, store
    where ss_sold_time_sk = t_time_sk
      and ss_hdemo_sk = hd_demo_sk
      and ss_store_sk = s_store_sk
      and t_hour = 9
      and t_minute >= 30
      and (
        (hd_dep_count = 4 and hd_vehicle_count <= 4 + 2)
        or (hd_dep_count = 2 and hd_vehicle_count <= 2 + 2)
        or (hd_dep_count = 0 and hd_vehicle_count <= 0 + 2)
      )
      and s_store_name = 'ese'
  ) as s3,
  (
    select count(*) as h10_to_10_30
    from store_sales, household_demographics, time_dim, store
    where ss_sold_time_sk = t_time_sk
      and ss_hdemo_sk = hd_demo_sk
      and ss_store_sk = s_store_sk
      and t_hour = 10
      and t_minute < 30
      and (
        (hd_dep_count = 4 and hd_vehicle_count <= 4 + 2)
        or (hd_dep_count = 2 and hd_vehicle_count <= 2 + 2)
        or (hd_dep_count = 0 and hd_vehicle_count <= 0 + 2)
      )
      and s_store_name = 'ese'
  ) as s4,
  (
    select count(*) as h10_30_to_11
    from store_sales, household_demographics, time_dim, store
    where ss_sold_time_sk = t_time_sk
      and ss_hdemo_sk = hd_demo_sk
      and ss_store_sk = s_store_sk
      and t_hour = 10
      and t_minute >= 30
      and (
        (hd_dep_count = 4 and hd_vehicle_count <= 4 + 2)
        or (hd_dep_count = 2 and hd_vehicle_count <= 2 + 2)
        or (hd_dep_count = 0 and hd_vehicle_count <= 0 + 2)
      )
      and s_store_name = 'ese'
  ) as s5,
  (
    select count(*) as h11_to_11_30
    from store_sales, household_demographics, time_dim, store
    where ss_sold_time_sk = t_time_sk
      and ss_hdemo_sk = hd_demo_sk
      and ss_store_sk = s_store_sk
      and t_hour = 11
      and t_minute < 30
      and (
        (hd_dep_count = 4 and hd_vehicle_count <= 4 + 2)
        or (hd_dep_count = 2 and hd_vehicle_count <= 2 + 2)
        or (hd_dep_count = 0 and hd_vehicle_count <= 0 + 2)
      )
      and s_store_name = 'ese'
  ) as s6,
  (
    select count(*) as h11_30_to_12
    from store_sales, household_demographics, time_dim, store
    where ss_sold_time_sk = t_time_sk
      and ss_hdemo_sk = hd_demo_sk
      and ss_store_sk = s_store_sk
      and t_hour = 11
      and t_minute >= 30
      and (
        (hd_dep_count = 4 and hd_vehicle_count <= 4 + 2)
        or (hd_dep_count = 2 and hd_vehicle_count <= 2 + 2)
        or (hd_dep_count = 0 and hd_vehicle_count <= 0 + 2)
      )
      and s_store_name = 'ese'
  ) as s7,
  (
    select count(*) as h12_to_12_30
    from store_sales, household_demographics, time_dim, store
    where ss_sold_time_sk = t_time_sk
      and ss_hdemo_sk = hd_demo_sk
      and ss_store_sk = s_store_sk
      and t_hour = 12
      and t_minute < 30
      and (
        (hd_dep_count = 4 and hd_vehicle_count <= 4 + 2)
        or (hd_dep_count = 2 and hd_vehicle_count <= 2 + 2)
        or (hd_dep_count = 0 and hd_vehicle_count <= 0 + 2)
      )
      and s_store_name = 'ese'
  ) as s8
