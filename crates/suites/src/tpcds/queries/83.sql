-- Items returned in all channels in some weeks
with sr as (
  select i_item_id as item_id, sum(sr_return_quantity) as qty
  from store_returns, item, date_dim
  where sr_item_sk = i_item_sk
    and d_date in (
      select d_date
      from date_dim
      where d_week_seq in (
        select d_week_seq
        from date_dim
        where d_date in (date '2000-06-30', date '2000-09-27', date '2000-11-17')
      )
    )
    and sr_returned_date_sk = d_date_sk
  group by i_item_id
),
cr as (
  select i_item_id as item_id, sum(cr_return_quantity) as qty
  from catalog_returns, item, date_dim
  where cr_item_sk = i_item_sk
    and d_date in (
      select d_date
      from date_dim
      where d_week_seq in (
        select d_week_seq
        from date_dim
        where d_date in (date '2000-06-30', date '2000-09-27', date '2000-11-17')
      )
    )
    and cr_returned_date_sk = d_date_sk
  group by i_item_id
),
wr as (
  select i_item_id as item_id, sum(wr_return_quantity) as qty
  from web_returns, item, date_dim
  where wr_item_sk = i_item_sk
    and d_date in (
      select d_date
      from date_dim
      where d_week_seq in (
        select d_week_seq
        from date_dim
        where d_date in (date '2000-06-30', date '2000-09-27', date '2000-11-17')
      )
    )
    and wr_returned_date_sk = d_date_sk
  group by i_item_id
)
select
  sr.item_id,
  sr.qty as sr_qty,
  sr.qty * 1.0000 / (sr.qty + cr.qty + wr.qty) / 3.0000 * 100 as sr_dev,
  cr.qty as cr_qty,
  cr.qty * 1.0000 / (sr.qty + cr.qty + wr.qty) / 3.0000 * 100 as cr_dev,
  wr.qty as wr_qty,
  wr.qty * 1.0000 / (sr.qty + cr.qty + wr.qty) / 3.0000 * 100 as wr_dev,
  (sr.qty + cr.qty + wr.qty) / 3.0 as average
from sr, cr, wr
where sr.item_id = cr.item_id
  and sr.item_id = wr.item_id
order by sr.item_id, sr_qty
limit 100
