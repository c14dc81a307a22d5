-- bare
-- What the node shows, and why a query has none.
create extension headrace;
set headrace.force = on;
set headrace.min_table_size = 0;
set headrace.enable_scan = off;
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
explain (costs off) select shop, count(distinct word), sum(distinct id), count(*), stddev(amount) from sales group by shop;
explain (costs off) select count(free), sum(shop::float8 / 3) from sales;
explain (costs off) select shop, variance(id::float8), stddev_pop(id::float8), var_samp(id::float8 / 3) filter (where id > 7) from sales group by shop;
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
-- Run again with nothing changed, it stays with PostgreSQL's own plan.
set enable_material = off;
select fallbacks as before from headrace.stat \gset
select a, n from (values (1), (2), (3)) v (a) left join (select count(day) as n from sales) s on a < n order by a;
select fallbacks - :before as fallbacks from headrace.stat;
reset enable_material;
-- Partitioned tables: as many parts as PostgreSQL leaves, and what each must be.
create table parts (id int4, k int4) partition by range (id);
create table parts_0 partition of parts for values from (0) to (100);
create table parts_1 (k int4, id int4);
alter table parts attach partition parts_1 for values from (100) to (200);
create table parts_2 partition of parts for values from (200) to (300);
insert into parts select i, i % 5 from generate_series(0, 299) i;
vacuum analyze parts;
checkpoint;
explain (analyze, costs off, timing off, summary off, buffers off) select k, count(*) from parts where id >= 150 group by k;
update parts set k = k + 1 where id = 5;
explain (analyze, costs off, timing off, summary off, buffers off) select k, count(*) from parts group by k;
create unlogged table parts_3 partition of parts for values from (300) to (400);
insert into parts_3 select i, i % 5 from generate_series(300, 399) i;
explain (analyze, costs off, timing off, summary off, buffers off) select k, count(*) from parts where id >= 250 group by k;
explain (verbose, costs off) select count(*) from parts where id > 500;
explain (verbose, costs off) select count(*) from (select id from sales union all select id from parts_0) u;
-- Why not.
explain (verbose, costs off) select sum(free) from sales;
create table unseen (v numeric, w numeric) with (autovacuum_enabled = off);
insert into unseen select i / 4.0, case when i % 2 = 0 then 'nan' else 0.5 end::numeric from generate_series(1, 1000) i;
explain (verbose, costs off) select sum(v) from unseen;
analyze unseen;
explain (verbose, costs off) select sum(v) from unseen;
explain (verbose, costs off) select sum(w) from unseen;
drop table unseen;
explain (verbose, costs off) select string_agg(distinct word, ',') from sales;
explain (verbose, costs off) select corr(shop::float8, id::float8), shop from sales group by shop;
explain (verbose, costs off) select variance(shop::float8), count(distinct id) from sales;
explain (verbose, costs off) select variance(distinct shop) from sales;
explain (verbose, costs off) select date_trunc('hour', timestamptz '2024-01-01'), count(*) from sales group by 1;
explain (verbose, costs off) select initcap(word), count(*) from sales group by 1;
explain (verbose, costs off) select count(*) from sales where random() < 0.5;
explain (verbose, costs off) select date_trunc('day', at), count(*) from sales group by 1;
explain (verbose, costs off) select count(*) from sales tablesample system (50);
explain (verbose, costs off) select count(*) from pg_type where typname like '%int%';
explain (verbose, costs off) select shop, count(*) from sales group by rollup (shop);
explain (verbose, costs off, format json) select string_agg(word, ',') from sales;
set headrace.min_table_size = '1GB';
explain (verbose, costs off) select count(*) from sales;
reset headrace.min_table_size;
create temp table passing as select 1 as i;
set headrace.min_table_size = 0;
explain (verbose, costs off) select count(*) from passing;
-- What is not logged is read from its files only where pages have checksums.
create unlogged table unlogged_one as select i from generate_series(1, 3000) i;
vacuum unlogged_one;
explain (analyze, costs off, timing off, summary off, buffers off) select sum(i) from unlogged_one;
explain (verbose, costs off) select count(*) from sales s, generate_series(1, (random() * 9)::int4) g where s.shop = g;
-- Rows of a table.
set headrace.enable_scan = on;
explain (costs off) select id, amount from sales where amount > 2490 and id % 5 = 0 order by id limit 5;
explain (analyze, costs off, timing off, summary off, buffers off) select id + 1, word from sales where shop = 3 and id < 50;
-- The first rows of an order, and any rows.
explain (analyze, costs off, timing off, summary off, buffers off) select id, word from sales order by word desc nulls last, shop + id limit 3 offset 1;
explain (costs off) select s.id, h.name from sales s join shops h using (shop) order by h.name collate "C", s.id limit 4;
explain (costs off) select id from sales where shop = 3 limit 7;
explain (costs off) select id from sales order by id limit (select count(*) from shops);
explain (costs off) select id from sales where id < 50 order by free limit 3;
explain (verbose, costs off) select id from sales where initcap(word) = 'w' order by id limit 3;
explain (costs off) select id from sales where id < 50 order by id fetch first 3 rows with ties;
set headrace.memory_limit = '64MB';
explain (verbose, costs off) select id, word from sales order by id limit (random() * 9)::int4;
reset headrace.memory_limit;
explain (costs off) select s.id, h.name from sales s join shops h using (shop) where s.word = 'w1' and s.id < 50;
explain (costs off) select min(id), max(id) from sales;
drop table parts_3;
explain (costs off) select id from parts where k = 3;
explain (costs off) select id + 1 from parts where k = 3 order by 1;
explain (costs off) select id + 1 from parts order by k desc, id limit 3;
explain (costs off) select k from parts where id > 5 limit 3 offset 1;
-- PostgreSQL's own plan is the best that it found, not the first.
explain (costs off) select a.id, b.id from sales a join sales b using (shop) join shops h on h.shop = a.id where h.name > 'shop 3';
explain (costs off) select array_agg(distinct shop) from sales where id < 500;
explain (costs off) update sales set shop = 1 where id < 0;
explain (verbose, costs off) select id from sales where initcap(word) = 'w';
explain (verbose, costs off) select ctid from sales where id = 3;
explain (verbose, costs off) select id from sales where id < 5 for update;
set headrace.memory_limit = '64MB';
insert into sales select i, 1, null, 1, repeat('wide', 450) from generate_series(1, 20000) i;
analyze sales;
explain (verbose, costs off) select id, word from sales where id > 0;
-- The answers of a plan's nodes share that memory: not all of these five have room.
select queries as queries, fallbacks as fallbacks from headrace.stat \gset
select count(*), sum(length(word)) from (
    (select word from sales where shop = 1 and id between 1 and 8000 offset 0) union all
    (select word from sales where shop = 1 and id between 2 and 8001 offset 0) union all
    (select word from sales where shop = 1 and id between 3 and 8002 offset 0) union all
    (select word from sales where shop = 1 and id between 4 and 8003 offset 0) union all
    (select word from sales where shop = 1 and id between 5 and 8004 offset 0)) s;
select queries - :queries as queries, fallbacks > :fallbacks as some_fell_back, fallbacks - :fallbacks < 4 as not_all from headrace.stat;
explain (verbose, costs off) select pg_column_size(word) from sales where id = 5;
explain (costs off) select s.id, h.name from sales s join shops h using (shop) where s.id < 50 and h.name > 'shop 3' order by s.id;
explain (costs off) select array_agg(distinct h.name) from sales s left join shops h using (shop) where s.id < 50;
explain (verbose, costs off) select s.id from sales s full join shops h using (shop) where s.id < 50 or h.shop = 3;
-- uuids are shown as their texts.
create table tokens (u uuid, n int4);
insert into tokens select md5(i::text)::uuid, i from generate_series(1, 3000) i;
vacuum analyze tokens;
explain (costs off) select left(u::text, 1), count(distinct u) from tokens where u > 'c0000000-0000-0000-0000-000000000000' and u not in ('c4ca4238-a0b9-2382-0dcc-509a6f75849b', 'ffffffff-ffff-ffff-ffff-ffffffffffff') group by 1;
explain (costs off) select u from tokens order by u desc nulls last limit 3;
explain (verbose, costs off) select count(*) from tokens where lpad(n::text, 32, '0')::uuid = u;
