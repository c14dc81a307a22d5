-- Large households that buy few items at once
select c_last_name, c_first_name, c_salutation, c_preferred_cust_flag, ss_ticket_number, cnt
from (
  select ss_ticket_number, ss_customer_sk, count(*) as cnt
  from store_sales, date_dim, store, household_demographics
  where ss_sold_date_sk = d_date_sk
    and ss_store_sk = s_store_sk
    and ss_hdemo_sk = hd_demo_sk
    and d_dom between 1 and 2
    and (hd_buy_potential = 'Unknown' or hd_buy_potential = '>10000')
    and hd_vehicle_count > 0
    and case when hd_vehicle_count > 0 then hd_dep_count * 1.000 / hd_vehicle_count end > 1
    and d_year in (1999, 1999 + 1, 1999 + 2)
    and s_county in ('Orange County', 'Bronx County', 'Franklin Parish', 'Williamson County')
  group by ss_ticket_number, ss_customer_sk
) as tickets, customer
where ss_customer_sk = c_customer_sk
  and cnt between 1 and 5
order by cnt desc, c_last_name, c_first_name, c_salutation, c_preferred_cust_flag, ss_ticket_number
