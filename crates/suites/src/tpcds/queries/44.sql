-- The best and the worst items of a store, side by side
select ascending.rnk, i1.i_product_name as best_performing, i2.i_product_name as worst_performing
from
  (
    select *
    from (
      select item_sk, rank() over (order by profit) as rnk
      from (
        select ss_item_sk as item_sk, avg(ss_net_profit) as profit
        from store_sales
        where ss_store_sk = 4
        group by ss_item_sk
        having avg(ss_net_profit) > 0.9 * (
          select avg(ss_net_profit)
          from store_sales
          where ss_store_sk = 4
            and ss_addr_sk is null
          group by ss_store_sk
        )
      ) as items
    ) as ranked
    where rnk < 11
  ) as ascending,
  (
    select *
    from (
      select item_sk, rank() over (order by profit desc nulls last) as rnk
      from (
        select ss_item_sk as item_sk, avg(ss_net_profit) as profit
        from store_sales
        where ss_store_sk = 4
        group by ss_item_sk
        having avg(ss_net_profit) > 0.9 * (
          select avg(ss_net_profit)
          from store_sales
          where ss_store_sk = 4
            and ss_addr_sk is null
          group by ss_store_sk
        )
      ) as items
    ) as ranked
    where rnk < 11
  ) as descending,
  item i1,
  item i2
where ascending.rnk = descending.rnk
  and i1.i_item_sk = ascending.item_sk
  and i2.i_item_sk = descending.item_sk
order by ascending.rnk, best_performing, worst_performing
limit 100
