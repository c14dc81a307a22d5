-- What sells well among the brands, classes and categories that all channels have
with common as (
  select i_brand_id, i_class_id, i_category_id
  from store_sales, item, date_dim
  where ss_item_sk = i_item_sk
    and ss_sold_date_sk = d_date_sk
    and d_year between 1999 and 1999 + 2
  intersect
  select i_brand_id, i_class_id, i_category_id
  from catalog_sales, item, date_dim
  where cs_item_sk = i_item_sk
    and cs_sold_date_sk = d_date_sk
    and d_year between 1999 and 1999 + 2
  intersect
  select i_brand_id, i_class_id, i_category_id
  from web_sales, item, date_dim
  where ws_item_sk = i_item_sk
    and ws_sold_date_sk = d_date_sk
    and d_year between 1999 and 1999 + 2
),
cross_items as (
  select i_item_sk as item_sk
  from item, common
  where item.i_brand_id = common.i_brand_id
    and item.i_class_id = common.i_class_id
    and item.i_category_id = common.i_category_id
),
average as (
  select avg(quantity * list_price) as average_sales
  from (
    select ss_quantity as quantity, ss_list_price as list_price
    from store_sales, date_dim
    where ss_sold_date_sk = d_date_sk
      and d_year between 1999 and 1999 + 2
    union all
    select cs_quantity as quantity, cs_list_price as list_price
    from catalog_sales, date_dim
    where cs_sold_date_sk = d_date_sk
      and d_year between 1999 and 1999 + 2
    union all
    select ws_quantity as quantity, ws_list_price as list_price
    from web_sales, date_dim
    where ws_sold_date_sk = d_date_sk
      and d_year between 1999 and 1999 + 2
  ) as sales
)
select
  channel, i_brand_id, i_class_id, i_category_id, sum(sales) as sum_sales, sum(number_sales) as sum_number_sales
from (
  select
    'store' as channel, i_brand_id, i_class_id, i_category_id, sum(ss_quantity * ss_list_price) as sales,
    count(*) as number_sales
  from store_sales, item, date_dim
  where ss_item_sk in (select item_sk from cross_items)
    and ss_item_sk = i_item_sk
    and ss_sold_date_sk = d_date_sk
    and d_year = 1999 + 2
    and d_moy = 11
  group by i_brand_id, i_class_id, i_category_id
  having sum(ss_quantity * ss_list_price) > (select average_sales from average)
  union all
  select
    'catalog' as channel, i_brand_id, i_class_id, i_category_id, sum(cs_quantity * cs_list_price) as sales,
    count(*) as number_sales
  from catalog_sales, item, date_dim
  where cs_item_sk in (select item_sk from cross_items)
    and cs_item_sk = i_item_sk
    and cs_sold_date_sk = d_date_sk
    and d_year = 1999 + 2
    and d_moy = 11
  group by i_brand_id, i_class_id, i_category_id
  having sum(cs_quantity * cs_list_price) > (select average_sales from average)
  union all
  select
    'web' as channel, i_brand_id, i_class_id, i_category_id, sum(ws_quantity * ws_list_price) as sales,
    count(*) as number_sales
  from web_sales, item, date_dim
  where ws_item_sk in (select item_sk from cross_items)
    and ws_item_sk = i_item_sk
    and ws_sold_date_sk = d_date_sk
    and d_year = 1999 + 2
    and d_moy = 11
  group by i_brand_id, i_class_id, i_category_id
  having sum(ws_quantity * ws_list_price) > (select average_sales from average)
) as channels
group by rollup (channel, i_brand_id, i_class_id, i_category_id)
order by channel, i_brand_id, i_class_id, i_category_id, sum_sales
limit 100
