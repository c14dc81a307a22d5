-- The items with the worst returns of each channel
select channel, item, return_ratio, return_rank, currency_rank
from (
  select 'web' as channel, item, return_ratio, return_rank, currency_rank
  from (
    select
      item,
      return_ratio,
      currency_ratio,
      rank() over (order by return_ratio) as return_rank,
      rank() over (order by currency_ratio) as currency_rank
    from (
      select
        ws_item_sk as item,
        cast(sum(coalesce(wr_return_quantity, 0)) as decimal(15, 4))
          / cast(sum(coalesce(ws_quantity, 0)) as decimal(15, 4)) as return_ratio,
        cast(sum(coalesce(wr_return_amt, 0)) as decimal(15, 4))
          / cast(sum(coalesce(ws_net_paid, 0)) as decimal(15, 4)) as currency_ratio
      from
        web_sales left join web_returns on ws_order_number = wr_order_number and ws_item_sk = wr_item_sk,
        date_dim
      where wr_return_amt > 10000
        and ws_net_profit > 1
        and ws_net_paid > 0
        and ws_quantity > 0
        and ws_sold_date_sk = d_date_sk
        and d_year = 2001
        and d_moy = 12
      group by ws_item_sk
    ) as ratios
  ) as ranked
  where return_rank <= 10 or currency_rank <= 10
  union
  select 'catalog' as channel, item, return_ratio, return_rank, currency_rank
  from (
    select
      item,
      return_ratio,
      currency_ratio,
      rank() over (order by return_ratio) as return_rank,
      rank() over (order by currency_ratio) as currency_rank
    from (
      select
        cs_item_sk as item,
        cast(sum(coalesce(cr_return_quantity, 0)) as decimal(15, 4))
          / cast(sum(coalesce(cs_quantity, 0)) as decimal(15, 4)) as return_ratio,
        cast(sum(coalesce(cr_return_amount, 0)) as decimal(15, 4))
          / cast(sum(coalesce(cs_net_paid, 0)) as decimal(15, 4)) as currency_ratio
      from
        catalog_sales left join catalog_returns on cs_order_number = cr_order_number and cs_item_sk = cr_item_sk,
        date_dim
      where cr_return_amount > 10000
        and cs_net_profit > 1
        and cs_net_paid > 0
        and cs_quantity > 0
        and cs_sold_date_sk = d_date_sk
        and d_year = 2001
        and d_moy = 12
      group by cs_item_sk
    ) as ratios
  ) as ranked
  where return_rank <= 10 or currency_rank <= 10
  union
  select 'store' as channel, item, return_ratio, return_rank, currency_rank
  from (
    select
      item,
      return_ratio,
      currency_ratio,
      rank() over (order by return_ratio) as return_rank,
      rank() over (order by currency_ratio) as currency_rank
    from (
      select
        ss_item_sk as item,
        cast(sum(coalesce(sr_return_quantity, 0)) as decimal(15, 4))
          / cast(sum(coalesce(ss_quantity, 0)) as decimal(15, 4)) as return_ratio,
        cast(sum(coalesce(sr_return_amt, 0)) as decimal(15, 4))
          / cast(sum(coalesce(ss_net_paid, 0)) as decimal(15, 4)) as currency_ratio
      from
        store_sales left join store_returns on ss_ticket_number = sr_ticket_number and ss_item_sk = sr_item_sk,
        date_dim
      where sr_return_amt > 10000
        and ss_net_profit > 1
        and ss_net_paid > 0
        and ss_quantity > 0
        and ss_sold_date_sk = d_date_sk
        and d_year = 2001
        and d_moy = 12
      group by ss_item_sk
    ) as ratios
  ) as ranked
  where return_rank <= 10 or currency_rank <= 10
) as channels
order by channel, return_rank, currency_rank, item
limit 100
