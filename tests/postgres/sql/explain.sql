-- bare
-- What the node shows, and why a query has none.
create extension headrace;
set headrace.force = on;
set headrace.min_table_size = 0;
set max_parallel_workers_per_gather = 0;
create table sales (id int4 not null, shop int4, day date, amount numeric(10, 2), word text collate "C", free numeric, at timestamptz);
insert into sales select i, i % 10, date '2024-01-01' + i % 60, i / 4.0, 'w' || i % 5, i, timestamptz '2024-01-01 00:00+00' + i * interval '1 minute'
    from generate_series(1, 10000) i;
create table shops (shop int4 primary key, name text);
insert into shops select i, 'shop ' || i from generate_series(0, 8) i;
vacuum analyze sales, shops;
checkpoint;
explain (costs off) select shop, sum(amount), avg(amount) from sales where day >= '2024-02-01' and amount * 2 > 100.5 group by shop having count(*) > 3 order by shop;
explain (costs off) select name, count(*) from sales s join shops using (shop) where word like 'w%' group by name;
explain (costs off) select count(*) from sales s where exists (select from shops where shop = s.shop and shop > 3);
explain (costs off) select name, count(*) from sales s left join shops using (shop) group by name;
-- What can be told of a run without its times.
explain (analyze, costs off, timing off, summary off, buffers off) select shop, count(*) from sales where id > 5000 group by shop;
explain (analyze, costs off, timing off, summary off, buffers off, format json) select count(*) from sales;
set headrace.enable_direct_read = off;
explain (analyze, costs off, timing off, summary off, buffers off) select count(*) from sales where id > 5000;
reset headrace.enable_direct_read;
update sales set amount = amount + 1 where id <= 100;
explain (analyze, costs off, timing off, summary off, buffers off) select count(*), min(amount) from sales;
-- A pipeline that cannot finish: an infinite date has no counterpart.
insert into sales values (0, 0, 'infinity', 0, 'w0', 0, now());
explain (analyze, costs off, timing off, summary off, buffers off) select count(day), min(day) from sales;
select count(day), min(day) from sales;
set headrace.fallback = forbid;
select count(day), min(day) from sales;
reset headrace.fallback;
-- Why not.
explain (verbose, costs off) select sum(free) from sales;
explain (verbose, costs off) select count(distinct shop) from sales;
explain (verbose, costs off) select lower(word), count(*) from sales group by 1;
explain (verbose, costs off) select count(*) from sales where random() < 0.5;
explain (verbose, costs off) select date_trunc('day', at), count(*) from sales group by 1;
explain (verbose, costs off) select count(*) from sales tablesample system (50);
explain (verbose, costs off) select count(*) from pg_type where typname like '%int%';
explain (verbose, costs off) select shop, count(*) from sales group by rollup (shop);
explain (verbose, costs off, format json) select sum(free) from sales;
set headrace.min_table_size = '1GB';
explain (verbose, costs off) select count(*) from sales;
reset headrace.min_table_size;
create temp table passing as select 1 as i;
set headrace.min_table_size = 0;
explain (verbose, costs off) select count(*) from passing;
create unlogged table unlogged_one as select 1 as i;
explain (verbose, costs off) select count(*) from unlogged_one;
explain (verbose, costs off) select count(*) from sales s, generate_series(1, (random() * 9)::int4) g where s.shop = g;
