-- Sales by web and catalog of each weekday, against those of the same week a year later
with sales as (
  select ws_sold_date_sk as sold_date_sk, ws_ext_sales_price as sales_price
  from web_sales
  union all
  select cs_sold_date_sk as sold_date_sk, cs_ext_sales_price as sales_price
  from catalog_sales
),
weeks as (
  select
    d_week_seq,
    sum(case when d_day_name = 'Sunday' then sales_price end) as sun_sales,
    sum(case when d_day_name = 'Monday' then sales_price end) as mon_sales,
    sum(case when d_day_name = 'Tuesday' then sales_price end) as tue_sales,
    sum(case when d_day_name = 'Wednesday' then sales_price end) as wed_sales,
    sum(case when d_day_name = 'Thursday' then sales_price end) as thu_sales,
    sum(case when d_day_name = 'Friday' then sales_price end) as fri_sales,
    sum(case when d_day_name = 'Saturday' then sales_price end) as sat_sales
  from sales, date_dim
  where d_date_sk = sold_date_sk
  group by d_week_seq
)
select
  y.d_week_seq,
  round(y.sun_sales / nullif(z.sun_sales, 0), 2) as sun_ratio,
  round(y.mon_sales / nullif(z.mon_sales, 0), 2) as mon_ratio,
  round(y.tue_sales / nullif(z.tue_sales, 0), 2) as tue_ratio,
  round(y.wed_sales / nullif(z.wed_sales, 0), 2) as wed_ratio,
  round(y.thu_sales / nullif(z.thu_sales, 0), 2) as thu_ratio,
  round(y.fri_sales / nullif(z.fri_sales, 0), 2) as fri_ratio,
  round(y.sat_sales / nullif(z.sat_sales, 0), 2) as sat_ratio
from
  (
    select weeks.*
    from weeks, date_dim
    where date_dim.d_week_seq = weeks.d_week_seq
      and d_year = 2001
  ) as y,
  (
    select weeks.*
    from weeks, date_dim
    where date_dim.d_week_seq = weeks.d_week_seq
      and d_year = 2001 + 1
  ) as z
where y.d_week_seq = z.d_week_seq - 53
order by y.d_week_seq, sun_ratio, mon_ratio
