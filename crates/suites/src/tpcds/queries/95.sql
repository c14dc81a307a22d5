-- Web orders from several warehouses of which something came back
with several as (
  select ws1.ws_order_number as order_number
  from web_sales ws1, web_sales ws2
  where ws1.ws_order_number = ws2.ws_order_number
    and ws1.ws_warehouse_sk <> ws2.ws_warehouse_sk
)
select
  count(distinct ws_order_number) as order_count,
  sum(ws_ext_ship_cost) as total_shipping_cost,
  sum(ws_net_profit) as total_net_profit
from web_sales ws1, date_dim, customer_address, web_site
where d_date between date '1999-02-01' and date '1999-02-01' + interval '60' day
  and ws1.ws_ship_date_sk = d_date_sk
  and ws1.ws_ship_addr_sk = ca_address_sk
  and ca_state = 'IL'
  and ws1.ws_web_site_sk = web_site_sk
  and web_company_name = 'pri'
  and ws1.ws_order_number in (select order_number from several)
  and ws1.ws_order_number in (
    select wr_order_number
    from web_returns, several
    where wr_order_number = order_number
  )
order by order_count
limit 100
