-- Sales of stores of each weekday, against those of the same week a year later
with weeks as (
  select
    d_week_seq,
    ss_store_sk,
    sum(case when d_day_name = 'Sunday' then ss_sales_price end) as sun_sales,
    sum(case when d_day_name = 'Monday' then ss_sales_price end) as mon_sales,
    sum(case when d_day_name = 'Tuesday' then ss_sales_price end) as tue_sales,
    sum(case when d_day_name = 'Wednesday' then ss_sales_price end) as wed_sales,
    sum(case when d_day_name = 'Thursday' then ss_sales_price end) as thu_sales,
    sum(case when d_day_name = 'Friday' then ss_sales_price end) as fri_sales,
    sum(case when d_day_name = 'Saturday' then ss_sales_price end) as sat_sales
  from store_sales, date_dim
  where d_date_sk = ss_sold_date_sk
  group by d_week_seq, ss_store_sk
)
select
  y.s_store_name,
  y.s_store_id,
  y.d_week_seq,
  y.sun_sales / nullif(x.sun_sales, 0) as sun_ratio,
  y.mon_sales / nullif(x.mon_sales, 0) as mon_ratio,
  y.tue_sales / nullif(x.tue_sales, 0) as tue_ratio,
  y.wed_sales / nullif(x.wed_sales, 0) as wed_ratio,
  y.thu_sales / nullif(x.thu_sales, 0) as thu_ratio,
  y.fri_sales / nullif(x.fri_sales, 0) as fri_ratio,
  y.sat_sales / nullif(x.sat_sales, 0) as sat_ratio
from
  (
    select
      s_store_name, s_store_id, weeks.d_week_seq, sun_sales, mon_sales, tue_sales, wed_sales, thu_sales, fri_sales,
      sat_sales
    from weeks, store, date_dim d
    where d.d_week_seq = weeks.d_week_seq
      and ss_store_sk = s_store_sk
      and d_month_seq between 1212 and 1212 + 11
  ) as y,
  (
    select
      s_store_name, s_store_id, weeks.d_week_seq, sun_sales, mon_sales, tue_sales, wed_sales, thu_sales, fri_sales,
      sat_sales
    from weeks, store, date_dim d
    where d.d_week_seq = weeks.d_week_seq
      and ss_store_sk = s_store_sk
      and d_month_seq between 1212 + 12 and 1212 + 23
  ) as x
where y.s_store_id = x.s_store_id
  and y.d_week_seq = x.d_week_seq - 52
order by y.s_store_name, y.s_store_id, y.d_week_seq, sun_ratio, mon_ratio, tue_ratio
limit 100
