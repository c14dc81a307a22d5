-- files
-- Arrow files as foreign tables: the same answers as of a heap of the same values, and errors for what is wrong.
create table facts (id int4, b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric(12, 2), d date, ti time,
    ts timestamp, tz timestamptz, t text, code text, u uuid, bin bytea);
copy facts from program 'cat tables/facts.copy';
vacuum analyze facts;
create schema files;
import foreign schema "tables" from server headrace_files into files;
select table_name, column_name, data_type, numeric_precision, numeric_scale from information_schema.columns
    where table_schema = 'files' order by table_name, ordinal_position;
-- Both ways, so that no row is more or less.
create function differs(query text) returns table (files_only int8, heap_only int8, rows int8) language plpgsql as $$
    declare a text := replace(query, '@', 'files.facts'); b text := replace(query, '@', 'facts');
    begin
        return query execute format('select (select count(*) from ((%s) except all (%s)) x), (select count(*) from ((%s) except all (%s)) x),
            (select count(*) from (%s) x)', a, b, b, a, a);
    end $$;
select * from differs('select * from @');
select * from differs('select id from @ where i4 > 10000 and b');
select * from differs('select t, n, u from @ where d between date ''2020-03-01'' and date ''2020-04-30'' and n is not null');
select * from differs('select count(*) from @');
select * from differs('select bin, code from @ where code like ''text 1%'' or bin is null');
select * from differs('select a.id, b.i8 from @ a join facts b on a.id = b.id + 1 where b.id < 100');
select * from differs('select a.id, b.t from facts a left join @ b on a.id = b.id * 2');
select * from differs('select x::text from @ x where id < 10');
select * from differs('select id from @ where id = 3 or tz < timestamptz ''1970-01-05'' and ti > time ''12:00''');
-- Groups.
select * from differs('select b, count(*), sum(i4), min(n), max(ts) from @ group by b');
select * from differs('select t, count(i2), sum(n), avg(n), avg(i8) from @ where i4 < 20000 group by t');
select * from differs('select code, d, count(*), sum(f8), max(tz), min(u::text) from @ group by code, d');
select * from differs('select code, count(*), sum(i8) from @ where code like ''text 1%'' group by code');
select * from differs('select u, min(ti), max(ti), min(d), max(f4) from @ group by u');
select * from differs('select id, u from @ where u between ''00000000-0000-0064-0000-000000000000'' and ''00000000-0000-0200-0000-000000000000''');
select * from differs('select f.id, h.id from facts f join @ h using (u) where f.id % 50 = 0 and u > ''00000000-0000-0300-0000-000000000000''');
select * from differs('select count(*) from @ where id between 2500 and 2600');
select * from differs('select k.b, count(*), sum(f.n) from @ f join (values (1, true), (2, false), (3, null)) k(i, b) on f.i2 = k.i group by k.b');
select * from differs('select f.b, count(*), sum(h.i4) from @ f join facts h on f.id = h.i2 group by f.b');
-- The same file, compressed by another program.
select count(*) from ((select * from files.packed except all select * from facts) union all (select * from facts except all select * from files.packed)) x;
select b, count(*), sum(n) from files.packed group by b order by b;
-- Types of other widths, units and layouts.
select * from files.odd;
select i1, count(*), sum(u4), max(large), min(view), max(ts_ns) from files.odd group by i1 order by i1;
select count(*), sum(u2), sum(i1) from files.odd where u1 > 0;
select count(*), max(tz_ms) from files.odd where ts_s < timestamp '1970-01-01';
select count(*) from files.nothing;
select b, count(*) from files.nothing group by b;
-- Folders.
select year, region, count(*), sum(amount), min(id), max(id) from files.sales group by year, region order by year, region;
select count(*), sum(id) from files.sales where year = 2022;
select count(*), sum(id) from files.sales where year > 2021 and region = 'süd' and amount > 50;
select count(*), sum(id) from files.sales where region is null;
select count(*) from files.sales where year = 1999;
select year, sum(amount) from files.sales where region in ('north', 'x') group by year order by year;
prepare of_year (int8) as select count(*), sum(id) from files.sales where year = $1;
set plan_cache_mode = force_generic_plan;
execute of_year(2021);
execute of_year(2023);
execute of_year(null);
reset plan_cache_mode;
set headrace.enabled = off;
explain (costs off, analyze, timing off, summary off, buffers off) select id from files.sales where year = 2022 and region = 'north' and id = 3001;
explain (costs off, analyze, timing off, summary off, buffers off) select id from files.facts where id between 2500 and 2502 and i4 + 1 > 0;
explain (costs off, analyze, timing off, summary off, buffers off) select id from files.facts where id = 3 and id = 4000;
set headrace.enabled = on;
set headrace.force = on;
set headrace.min_table_size = 0;
-- Rows that a pipeline brings, parts of them that a cursor or LIMIT wants, and what it cannot bring.
explain (costs off, analyze, timing off, summary off, buffers off) select id, t, code from files.facts where id between 2500 and 2502 and i4 + 1 > 0;
explain (costs off, analyze, timing off, summary off, buffers off) select id from files.facts where id > 5990 limit 3;
explain (costs off) select id, bin from files.facts where id > 5990;
explain (costs off) select id, year from files.sales where id > 5990;
explain (costs off) select id from files.facts where i4 + 1 > 0;
explain (costs off) select id from files.packed where id > 5990;
explain (costs off) select i1, u2 from files.odd where u4 > 0;
select i1, u2 from files.odd where u4 > 0 order by i1;
select * from differs('select id, b, i2, i4, i8, f4, f8, n, d, ti, ts, tz, t, code, u from @ where i4 > 0');
select * from differs('select f.id, h.id from @ f join facts h on f.i4 = h.i4 where f.n < -500 and h.d < date ''2020-06-01'' ');
select * from differs('select x.id, (select count(*) from @ y where y.i2 < 100 and y.id > x.id) from facts x where x.id % 997 = 0');
reset headrace.enabled;
reset headrace.force;
reset headrace.min_table_size;
prepare above (int8, date) as select count(*), min(id) from files.facts where id > $1 and d < $2;
set plan_cache_mode = force_generic_plan;
execute above(5500, '2030-01-01');
execute above(5500, 'infinity');
execute above(5500, '-infinity');
execute above(null, 'infinity');
reset plan_cache_mode;
-- What EXPLAIN shows of a grouping that streams files (the side without Headrace is made the same).
set headrace.enabled = on;
set headrace.force = on;
set headrace.min_table_size = 0;
explain (costs off, analyze, timing off, summary off, buffers off) select code, count(*), sum(i4) from files.facts where id between 2500 and 2600 group by code having count(*) > 90;
explain (costs off, analyze, timing off, summary off, buffers off) select count(*), sum(amount) from files.sales where year = 2022 and id < 3250;
select count(*), sum(amount) from files.sales where year = 1999;
explain (costs off, verbose) select year, count(*) from files.sales group by year;
explain (costs off, verbose) select max(ts_ns), count(*) from files.odd;
explain (costs off, verbose) select count(id) from files.packed;
explain (costs off, verbose) select count(*) from files.facts where u > '00000000-0000-0300-0000-000000000000';
explain (costs off) select i1, sum(u4) from files.odd where u1 > 0 group by i1;
select queries, fallbacks from headrace.stat \gset before_
execute of_year(2021);
select i1, sum(u4) from files.odd where u1 > 0 group by i1 order by i1;
select queries - :before_queries as queries, fallbacks - :before_fallbacks as fallbacks from headrace.stat;
reset headrace.enabled;
reset headrace.force;
reset headrace.min_table_size;
-- Cursors, limits, rescans, prepared statements.
begin;
declare c cursor for select id, t from files.facts where id % 1000 = 1;
fetch 2 from c;
fetch 3 from c;
close c;
declare d cursor for select id from files.facts;
fetch 1 from d;
commit;
select id from files.facts limit 3;
select h.id, (select count(*) from files.facts f where f.i2 = h.i2) from facts h where h.id in (3, 4, 5, 6) order by h.id;
select x.id, y.n from (values (5), (6)) x(id), lateral (select count(*) as n from files.facts where i2 > x.id * 10) y order by 1;
-- New files are seen by the next execution; those that are gone, too.
copy (select 1 where false) to program 'mkdir tables/more && cp tables/facts.arrow tables/more/a.arrow';
create foreign table more (id int4, i4 int4) server headrace_files options (path 'tables/more');
prepare of_more as select count(*), sum(i4) from more;
execute of_more;
copy (select 1 where false) to program 'cp tables/facts.arrow tables/more/b.arrow';
execute of_more;
copy (select 1 where false) to program 'rm tables/more/b.arrow';
execute of_more;
begin;
declare c cursor for select id from more;
fetch 1 from c;
copy (select 1 where false) to program 'head -c 20000 tables/facts.arrow > tables/more/a.arrow';
\set VERBOSITY terse
move 1500 in c;
rollback;
select count(*) from more;
copy (select 1 where false) to program 'rm -r tables/more';
execute of_more;
\set VERBOSITY default
-- A file that is not whole is not left out.
create foreign table part (id int4) server headrace_files options (path 'tables/facts.arrow, tables/wrong/truncated.arrow');
select count(*) from part;
-- Several paths.
create foreign table two (id int4) server headrace_files options (path 'tables/facts.arrow, tables/packed.arrow');
create foreign table twice (id int4) server headrace_files options (path 'tables/facts.arrow, tables/facts.arrow');
select count(*), count(distinct id) from two;
select count(*), count(distinct id) from twice;
-- What is declared and is not so.
create foreign table mistaken (id int8, i4 int2, n numeric(12, 3), t varchar(5), code uuid, d timestamp, missing int4) server headrace_files options (path 'tables/facts.arrow');
select sum(id) from mistaken;
select i4 from mistaken;
select code from mistaken;
select n from mistaken;
select t from mistaken;
select d from mistaken;
select missing from mistaken;
select sum(i4), max(missing) from mistaken;
-- What is wrong.
create foreign table garbage (id int4) server headrace_files options (path 'tables/wrong/garbage.arrow');
create foreign table truncated (id int4) server headrace_files options (path 'tables/wrong/truncated.arrow');
create foreign table damaged (id int4, t text, code text) server headrace_files options (path 'tables/wrong/damaged.arrow');
create foreign table zero_byte (t text) server headrace_files options (path 'tables/wrong/zero_byte.arrow');
create foreign table calendar (d date) server headrace_files options (path 'tables/wrong/calendar.arrow');
create foreign table absent (id int4) server headrace_files options (path 'tables/absent.arrow');
create foreign table nowhere (id int4) server headrace_files options (path 'tables/wrong/..');
select * from garbage;
select * from truncated;
select count(t) > 0 from damaged where length(code) > 100;
select * from zero_byte;
select t, count(*) from zero_byte group by t;
select * from calendar;
select max(d) from calendar;
select * from absent;
select count(*) from nowhere;
create foreign table none (id int4) server headrace_files;
create foreign table none (id int4) server headrace_files options (path ' , ');
create foreign table none (id int4) server headrace_files options (path 'x', format 'csv');
create server another foreign data wrapper headrace options (host 'x');
insert into files.facts (id) values (1);
update files.facts set id = 1;
delete from files.facts;
import foreign schema "tables/absent" from server headrace_files into files;
create schema few;
import foreign schema "tables" limit to (nothing, sales) from server headrace_files into few;
create schema others;
import foreign schema "tables" except (odd, packed, facts) from server headrace_files into others;
select table_schema, table_name from information_schema.tables where table_schema in ('few', 'others') order by 1, 2;
import foreign schema "tables/sales" from server headrace_files into few;
-- The planner's statistics, of a sample of all rows.
analyze files.facts;
analyze files.sales;
select s.attname, s.null_frac, s.n_distinct from pg_stats s where s.schemaname = 'files' and s.tablename = 'facts'
    except select s.attname, s.null_frac, s.n_distinct from pg_stats s where s.schemaname = 'public' and s.tablename = 'facts';
select attname, null_frac, n_distinct from pg_stats where schemaname = 'files' and tablename = 'sales' order by attname;
select reltuples from pg_class where oid = 'files.sales'::regclass;
set default_statistics_target = 10;
analyze files.facts;
select attname, n_distinct, correlation > 0.9 as in_order from pg_stats where schemaname = 'files' and tablename = 'facts' and attname in ('id', 'b', 'd') order by attname;
-- The end of a query before its end.
set statement_timeout = '200ms';
select count(*) from files.facts a, files.facts b, files.facts c where a.i4 < b.i4 + c.i4;
reset statement_timeout;
set enable_material = off; set enable_hashjoin = off; set enable_mergejoin = off;
select count(*), sum(b.id) from (values (1), (2), (3)) a(x) left join files.facts b on b.id < 10;
reset enable_material; reset enable_hashjoin; reset enable_mergejoin;
-- Who may read.
create role reads_no_files;
grant usage on foreign server headrace_files to reads_no_files;
grant usage, create on schema files to reads_no_files;
grant select on files.nothing to reads_no_files;
set role reads_no_files;
create foreign table files.mine (id int4) server headrace_files options (path 'tables/facts.arrow');
import foreign schema "tables" from server headrace_files into files;
select count(*) from files.nothing;
reset role;
create foreign table files.given (id int4) server headrace_files options (path 'tables/facts.arrow');
alter foreign table files.given owner to reads_no_files;
select count(*) from files.given;
drop owned by reads_no_files;
drop role reads_no_files;
