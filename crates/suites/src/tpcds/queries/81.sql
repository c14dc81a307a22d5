-- Customers of a state who return more of catalogs than others of theirs do
with returned (customer_sk, state, amount) as (
  select cr_returning_customer_sk, ca_state, sum(cr_return_amt_inc_tax)
  from catalog_returns, date_dim, customer_address
  where cr_returned_date_sk = d_date_sk
    and d_year = 2000
    and cr_returning_addr_sk = ca_address_sk
  group by cr_returning_customer_sk, ca_state
)
select
  c_customer_id, c_salutation, c_first_name, c_last_name, ca_street_number, ca_street_name, ca_street_type,
  ca_suite_number, ca_city, ca_county, ca_state, ca_zip, ca_country, ca_gmt_offset, ca_location_type, amount
from returned r1, customer_address, customer
where r1.amount > (
    select avg(amount) * 1.2
    from returned r2
    where r1.state = r2.state
  )
  and ca_address_sk = c_current_addr_sk
  and ca_state = 'GA'
  and r1.customer_sk = c_customer_sk
order by
  c_customer_id, c_salutation, c_first_name, c_last_name, ca_street_number, ca_street_name, ca_street_type,
  ca_suite_number, ca_city, ca_county, ca_state, ca_zip, ca_country, ca_gmt_offset, ca_location_type, amount
limit 100
