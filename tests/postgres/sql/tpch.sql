-- The 22 queries of TPC-H with its validation parameters, over tables of its schema. Values come from arithmetic on
-- the keys, so that every server has the same.
set max_parallel_workers_per_gather = 0;
-- A number below `n` that looks like chance.
create function pick(key bigint, salt bigint, n bigint) returns bigint immutable language sql
    as $$ select abs(hashint8extended(key, salt) % n) $$;
create table region (r_regionkey int4 primary key, r_name char(25) not null, r_comment varchar(152));
create table nation (n_nationkey int4 primary key, n_name char(25) not null, n_regionkey int4 not null, n_comment varchar(152));
create table supplier (s_suppkey int4 primary key, s_name char(25) not null, s_address varchar(40) not null,
    s_nationkey int4 not null, s_phone char(15) not null, s_acctbal numeric(15, 2) not null, s_comment varchar(101) not null);
create table part (p_partkey int4 primary key, p_name varchar(55) not null, p_mfgr char(25) not null, p_brand char(10) not null,
    p_type varchar(25) not null, p_size int4 not null, p_container char(10) not null,
    p_retailprice numeric(15, 2) not null, p_comment varchar(23) not null);
create table partsupp (ps_partkey int4 not null, ps_suppkey int4 not null, ps_availqty int4 not null,
    ps_supplycost numeric(15, 2) not null, ps_comment varchar(199) not null, primary key (ps_partkey, ps_suppkey));
create table customer (c_custkey int4 primary key, c_name varchar(25) not null, c_address varchar(40) not null,
    c_nationkey int4 not null, c_phone char(15) not null, c_acctbal numeric(15, 2) not null,
    c_mktsegment char(10) not null, c_comment varchar(117) not null);
create table orders (o_orderkey int8 primary key, o_custkey int4 not null, o_orderstatus char(1) not null,
    o_totalprice numeric(15, 2) not null, o_orderdate date not null, o_orderpriority char(15) not null,
    o_clerk char(15) not null, o_shippriority int4 not null, o_comment varchar(79) not null);
create table lineitem (l_orderkey int8 not null, l_partkey int4 not null, l_suppkey int4 not null, l_linenumber int4 not null,
    l_quantity numeric(15, 2) not null, l_extendedprice numeric(15, 2) not null, l_discount numeric(15, 2) not null,
    l_tax numeric(15, 2) not null, l_returnflag char(1) not null, l_linestatus char(1) not null, l_shipdate date not null,
    l_commitdate date not null, l_receiptdate date not null, l_shipinstruct char(25) not null, l_shipmode char(10) not null,
    l_comment varchar(44) not null, primary key (l_orderkey, l_linenumber));
insert into region select i - 1, (array['AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'])[i], 'region ' || i from generate_series(1, 5) i;
insert into nation select i - 1, (array['ALGERIA', 'ARGENTINA', 'BRAZIL', 'CANADA', 'EGYPT', 'ETHIOPIA', 'FRANCE', 'GERMANY', 'INDIA',
    'INDONESIA', 'IRAN', 'IRAQ', 'JAPAN', 'JORDAN', 'KENYA', 'MOROCCO', 'MOZAMBIQUE', 'PERU', 'CHINA', 'ROMANIA', 'SAUDI ARABIA',
    'VIETNAM', 'RUSSIA', 'UNITED KINGDOM', 'UNITED STATES'])[i],
    (array[0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1])[i], 'nation ' || i from generate_series(1, 25) i;
insert into supplier select i, 'Supplier#' || lpad(i::text, 9, '0'), 'address ' || pick(i, 1, 1000), pick(i, 2, 25),
    10 + pick(i, 2, 25) || '-' || lpad(pick(i, 3, 1000)::text, 3, '0') || '-555-' || lpad(pick(i, 4, 10000)::text, 4, '0'),
    pick(i, 5, 1100000) / 100.0 - 1000, case when i % 20 = 7 then 'heard Customer many Complaints' else 'quick ' || i end from generate_series(1, 100) i;
insert into part select i, (array['forest', 'green', 'almond', 'blue', 'khaki', 'lace'])[1 + pick(i, 1, 6)] || ' ' ||
    (array['green', 'ivory', 'puff', 'red', 'rose'])[1 + pick(i, 2, 5)], 'Manufacturer#' || 1 + pick(i, 3, 5),
    'Brand#' || 1 + pick(i, 3, 5) || 1 + pick(i, 4, 5),
    (array['STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO'])[1 + pick(i, 5, 6)] || ' ' ||
    (array['ANODIZED', 'BURNISHED', 'PLATED', 'POLISHED', 'BRUSHED'])[1 + pick(i, 6, 5)] || ' ' ||
    (array['TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER'])[1 + pick(i, 7, 5)], 1 + pick(i, 8, 50),
    (array['SM', 'LG', 'MED', 'JUMBO', 'WRAP'])[1 + pick(i, 9, 5)] || ' ' ||
    (array['CASE', 'BOX', 'BAG', 'JAR', 'PKG', 'PACK', 'CAN', 'DRUM'])[1 + pick(i, 10, 8)],
    900 + i % 1000 / 10.0, 'part ' || i from generate_series(1, 2000) i;
insert into partsupp select p, 1 + (p + s * 25 + p / 100) % 100, 1 + pick(p, s, 9999), 1 + pick(p, s + 10, 99900) / 100.0, 'supply ' || p
    from generate_series(1, 2000) p, generate_series(0, 3) s;
insert into customer select i, 'Customer#' || lpad(i::text, 9, '0'), 'address ' || pick(i, 1, 1000), pick(i, 2, 25),
    10 + pick(i, 2, 25) || '-' || lpad(pick(i, 3, 1000)::text, 3, '0') || '-555-' || lpad(pick(i, 4, 10000)::text, 4, '0'),
    pick(i, 5, 1100000) / 100.0 - 1000,
    (array['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'MACHINERY', 'HOUSEHOLD'])[1 + pick(i, 6, 5)], 'customer ' || i from generate_series(1, 1500) i;
insert into lineitem select o, 1 + pick(o, n, 2000),
    1 + (1 + pick(o, n, 2000) + pick(o, n + 10, 4) * 25 + (1 + pick(o, n, 2000)) / 100) % 100, n, 1 + pick(o, n + 20, 50),
    (1 + pick(o, n + 20, 50)) * (900 + (1 + pick(o, n, 2000)) % 1000 / 10.0), pick(o, n + 30, 11) / 100.0, pick(o, n + 40, 9) / 100.0,
    case when ordered + 1 + pick(o, n + 50, 121)::int + 1 + pick(o, n + 60, 30)::int > '1995-06-17' then 'N' when pick(o, n + 70, 2) = 0 then 'R' else 'A' end,
    case when ordered + 1 + pick(o, n + 50, 121)::int > '1995-06-17' then 'O' else 'F' end,
    ordered + 1 + pick(o, n + 50, 121)::int, ordered + 30 + pick(o, n + 80, 61)::int,
    ordered + 1 + pick(o, n + 50, 121)::int + 1 + pick(o, n + 60, 30)::int,
    (array['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'])[1 + pick(o, n + 90, 4)],
    (array['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'])[1 + pick(o, n + 100, 7)], 'line ' || n
    from (select o, date '1992-01-01' + pick(o, 1, 2406)::int as ordered from generate_series(1, 15000) o) o, generate_series(1, 1 + pick(o, 2, 7)) n;
insert into orders select l_orderkey, 1 + pick(l_orderkey, 3, 500) * 3 + pick(l_orderkey, 4, 2),
    case when bool_and(l_linestatus = 'F') then 'F' when bool_and(l_linestatus = 'O') then 'O' else 'P' end,
    sum(round(l_extendedprice * (1 - l_discount) * (1 + l_tax), 2)), date '1992-01-01' + pick(l_orderkey, 1, 2406)::int,
    (array['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'])[1 + pick(l_orderkey, 5, 5)],
    'Clerk#' || lpad(pick(l_orderkey, 6, 1000)::text, 9, '0'), 0, case when l_orderkey % 50 = 3 then 'the special packing requests' else 'order' end
    from lineitem group by l_orderkey;
vacuum analyze;
-- 1
select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty, sum(l_extendedprice) as sum_base_price,
    sum(l_extendedprice * (1 - l_discount)) as sum_disc_price, sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge,
    avg(l_quantity) as avg_qty, avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc, count(*) as count_order
from lineitem where l_shipdate <= date '1998-12-01' - interval '90' day
group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus;
-- 2
select s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
from part, supplier, partsupp, nation, region
where p_partkey = ps_partkey and s_suppkey = ps_suppkey and p_size = 15 and p_type like '%BRASS' and s_nationkey = n_nationkey
    and n_regionkey = r_regionkey and r_name = 'EUROPE' and ps_supplycost = (select min(ps_supplycost)
        from partsupp, supplier, nation, region where p_partkey = ps_partkey and s_suppkey = ps_suppkey
        and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'EUROPE')
order by s_acctbal desc, n_name, s_name, p_partkey limit 100;
-- 3
select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
from customer, orders, lineitem
where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey and o_orderdate < date '1995-03-15'
    and l_shipdate > date '1995-03-15'
group by l_orderkey, o_orderdate, o_shippriority order by revenue desc, o_orderdate, l_orderkey limit 10;
-- 4
select o_orderpriority, count(*) as order_count from orders
where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-07-01' + interval '3' month
    and exists (select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
group by o_orderpriority order by o_orderpriority;
-- 5
select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
from customer, orders, lineitem, supplier, nation, region
where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey and c_nationkey = s_nationkey
    and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'ASIA' and o_orderdate >= date '1994-01-01'
    and o_orderdate < date '1994-01-01' + interval '1' year
group by n_name order by revenue desc;
-- 6
select sum(l_extendedprice * l_discount) as revenue from lineitem
where l_shipdate >= date '1994-01-01' and l_shipdate < date '1994-01-01' + interval '1' year
    and l_discount between .06 - 0.01 and .06 + 0.01 and l_quantity < 24;
-- 7
select supp_nation, cust_nation, l_year, sum(volume) as revenue
from (select n1.n_name as supp_nation, n2.n_name as cust_nation, extract(year from l_shipdate) as l_year,
        l_extendedprice * (1 - l_discount) as volume
    from supplier, lineitem, orders, customer, nation n1, nation n2
    where s_suppkey = l_suppkey and o_orderkey = l_orderkey and c_custkey = o_custkey and s_nationkey = n1.n_nationkey
        and c_nationkey = n2.n_nationkey and ((n1.n_name = 'FRANCE' and n2.n_name = 'GERMANY') or (n1.n_name = 'GERMANY' and n2.n_name = 'FRANCE'))
        and l_shipdate between date '1995-01-01' and date '1996-12-31') as shipping
group by supp_nation, cust_nation, l_year order by supp_nation, cust_nation, l_year;
-- 8
select o_year, sum(case when nation = 'BRAZIL' then volume else 0 end) / sum(volume) as mkt_share
from (select extract(year from o_orderdate) as o_year, l_extendedprice * (1 - l_discount) as volume, n2.n_name as nation
    from part, supplier, lineitem, orders, customer, nation n1, nation n2, region
    where p_partkey = l_partkey and s_suppkey = l_suppkey and l_orderkey = o_orderkey and o_custkey = c_custkey
        and c_nationkey = n1.n_nationkey and n1.n_regionkey = r_regionkey and r_name = 'AMERICA' and s_nationkey = n2.n_nationkey
        and o_orderdate between date '1995-01-01' and date '1996-12-31' and p_type = 'ECONOMY ANODIZED STEEL') as all_nations
group by o_year order by o_year;
-- 9
select nation, o_year, sum(amount) as sum_profit
from (select n_name as nation, extract(year from o_orderdate) as o_year, l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity as amount
    from part, supplier, lineitem, partsupp, orders, nation
    where s_suppkey = l_suppkey and ps_suppkey = l_suppkey and ps_partkey = l_partkey and p_partkey = l_partkey and o_orderkey = l_orderkey
        and s_nationkey = n_nationkey and p_name like '%green%') as profit
group by nation, o_year order by nation, o_year desc limit 40;
-- 10
select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal, n_name, c_address, c_phone, c_comment
from customer, orders, lineitem, nation
where c_custkey = o_custkey and l_orderkey = o_orderkey and o_orderdate >= date '1993-10-01'
    and o_orderdate < date '1993-10-01' + interval '3' month and l_returnflag = 'R' and c_nationkey = n_nationkey
group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment order by revenue desc, c_custkey limit 20;
-- 11
select ps_partkey, sum(ps_supplycost * ps_availqty) as value from partsupp, supplier, nation
where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY'
group by ps_partkey having sum(ps_supplycost * ps_availqty) > (select sum(ps_supplycost * ps_availqty) * 0.01
    from partsupp, supplier, nation where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY')
order by value desc, ps_partkey limit 40;
-- 12
select l_shipmode, sum(case when o_orderpriority = '1-URGENT' or o_orderpriority = '2-HIGH' then 1 else 0 end) as high_line_count,
    sum(case when o_orderpriority <> '1-URGENT' and o_orderpriority <> '2-HIGH' then 1 else 0 end) as low_line_count
from orders, lineitem
where o_orderkey = l_orderkey and l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate and l_shipdate < l_commitdate
    and l_receiptdate >= date '1994-01-01' and l_receiptdate < date '1994-01-01' + interval '1' year
group by l_shipmode order by l_shipmode;
-- 13
select c_count, count(*) as custdist
from (select c_custkey, count(o_orderkey) from customer left outer join orders on c_custkey = o_custkey and o_comment not like '%special%requests%'
    group by c_custkey) as c_orders (c_custkey, c_count)
group by c_count order by custdist desc, c_count desc;
-- 14
select 100.00 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end) / sum(l_extendedprice * (1 - l_discount)) as promo_revenue
from lineitem, part where l_partkey = p_partkey and l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-09-01' + interval '1' month;
-- 15
with revenue (supplier_no, total_revenue) as (select l_suppkey, sum(l_extendedprice * (1 - l_discount)) from lineitem
    where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-01-01' + interval '3' month group by l_suppkey)
select s_suppkey, s_name, s_address, s_phone, total_revenue from supplier, revenue
where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue) order by s_suppkey;
-- 16
select p_brand, p_type, p_size, count(distinct ps_suppkey) as supplier_cnt from partsupp, part
where p_partkey = ps_partkey and p_brand <> 'Brand#45' and p_type not like 'MEDIUM POLISHED%' and p_size in (49, 14, 23, 45, 19, 3, 36, 9)
    and ps_suppkey not in (select s_suppkey from supplier where s_comment like '%Customer%Complaints%')
group by p_brand, p_type, p_size order by supplier_cnt desc, p_brand, p_type, p_size limit 40;
-- 17
select sum(l_extendedprice) / 7.0 as avg_yearly from lineitem, part
where p_partkey = l_partkey and p_brand = 'Brand#23' and p_container = 'MED BOX'
    and l_quantity < (select 0.2 * avg(l_quantity) from lineitem where l_partkey = p_partkey);
-- 18
select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) from customer, orders, lineitem
where o_orderkey in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 250)
    and c_custkey = o_custkey and o_orderkey = l_orderkey
group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice order by o_totalprice desc, o_orderdate, o_orderkey limit 40;
-- 19
select sum(l_extendedprice * (1 - l_discount)) as revenue from lineitem, part
where (p_partkey = l_partkey and p_brand = 'Brand#12' and p_container in ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
        and l_quantity >= 1 and l_quantity <= 1 + 10 and p_size between 1 and 5 and l_shipmode in ('AIR', 'REG AIR') and l_shipinstruct = 'DELIVER IN PERSON')
    or (p_partkey = l_partkey and p_brand = 'Brand#23' and p_container in ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
        and l_quantity >= 10 and l_quantity <= 10 + 10 and p_size between 1 and 10 and l_shipmode in ('AIR', 'REG AIR') and l_shipinstruct = 'DELIVER IN PERSON')
    or (p_partkey = l_partkey and p_brand = 'Brand#34' and p_container in ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
        and l_quantity >= 20 and l_quantity <= 20 + 10 and p_size between 1 and 15 and l_shipmode in ('AIR', 'REG AIR') and l_shipinstruct = 'DELIVER IN PERSON');
-- 20
select s_name, s_address from supplier, nation
where s_suppkey in (select ps_suppkey from partsupp where ps_partkey in (select p_partkey from part where p_name like 'forest%')
        and ps_availqty > (select 0.5 * sum(l_quantity) from lineitem where l_partkey = ps_partkey and l_suppkey = ps_suppkey
            and l_shipdate >= date '1994-01-01' and l_shipdate < date '1994-01-01' + interval '1' year))
    and s_nationkey = n_nationkey and n_name = 'CANADA' order by s_name;
-- 21
select s_name, count(*) as numwait from supplier, lineitem l1, orders, nation
where s_suppkey = l1.l_suppkey and o_orderkey = l1.l_orderkey and o_orderstatus = 'F' and l1.l_receiptdate > l1.l_commitdate
    and exists (select * from lineitem l2 where l2.l_orderkey = l1.l_orderkey and l2.l_suppkey <> l1.l_suppkey)
    and not exists (select * from lineitem l3 where l3.l_orderkey = l1.l_orderkey and l3.l_suppkey <> l1.l_suppkey and l3.l_receiptdate > l3.l_commitdate)
    and s_nationkey = n_nationkey and n_name = 'SAUDI ARABIA'
group by s_name order by numwait desc, s_name limit 100;
-- 22
select cntrycode, count(*) as numcust, sum(c_acctbal) as totacctbal
from (select substring(c_phone from 1 for 2) as cntrycode, c_acctbal from customer
    where substring(c_phone from 1 for 2) in ('13', '31', '23', '29', '30', '18', '17')
        and c_acctbal > (select avg(c_acctbal) from customer where c_acctbal > 0.00 and substring(c_phone from 1 for 2) in ('13', '31', '23', '29', '30', '18', '17'))
        and not exists (select * from orders where o_custkey = c_custkey)) as custsale
group by cntrycode order by cntrycode;
