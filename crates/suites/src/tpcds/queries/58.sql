-- Items that sell alike in all channels in a week
with ss as (
  select i_item_id as item_id, sum(ss_ext_sales_price) as revenue
  from store_sales, item, date_dim
  where ss_item_sk = i_item_sk
    and d_date in (
      select d_date
      from date_dim
      where d_week_seq = (select d_week_seq from date_dim where d_date = date '2000-01-03')
    )
    and ss_sold_date_sk = d_date_sk
  group by i_item_id
),
cs as (
  select i_item_id as item_id, sum(cs_ext_sales_price) as revenue
  from catalog_sales, item, date_dim
  where cs_item_sk = i_item_sk
    and d_date in (
      select d_date
      from date_dim
      where d_week_seq = (select d_week_seq from date_dim where d_date = date '2000-01-03')
    )
    and cs_sold_date_sk = d_date_sk
  group by i_item_id
),
ws as (
  select i_item_id as item_id, sum(ws_ext_sales_price) as revenue
  from web_sales, item, date_dim
  where ws_item_sk = i_item_sk
    and d_date in (
      select d_date
      from date_dim
      where d_week_seq = (select d_week_seq from date_dim where d_date = date '2000-01-03')
    )
    and ws_sold_date_sk = d_date_sk
  group by i_item_id
)
select
  ss.item_id,
  ss.revenue as ss_revenue,
  ss.revenue * 100 / ((ss.revenue + cs.revenue + ws.revenue) / 3) as ss_dev,
  cs.revenue as cs_revenue,
  cs.revenue * 100 / ((ss.revenue + cs.revenue + ws.revenue) / 3) as cs_dev,
  ws.revenue as ws_revenue,
  ws.revenue * 100 / ((ss.revenue + cs.revenue + ws.revenue) / 3) as ws_dev,
  (ss.revenue + cs.revenue + ws.revenue) / 3 as average
from ss, cs, ws
where ss.item_id = cs.item_id
  and ss.item_id = ws.item_id
  and ss.revenue between 0.9 * cs.revenue and 1.1 * cs.revenue
  and ss.revenue between 0.9 * ws.revenue and 1.1 * ws.revenue
  and cs.revenue between 0.9 * ss.revenue and 1.1 * ss.revenue
  and cs.revenue between 0.9 * ws.revenue and 1.1 * ws.revenue
  and ws.revenue between 0.9 * ss.revenue and 1.1 * ss.revenue
  and ws.revenue between 0.9 * cs.revenue and 1.1 * cs.revenue
order by ss.item_id, ss_revenue
limit 100
