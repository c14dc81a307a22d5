-- files
-- INSERT and COPY into foreign tables: rows are there from the commit on, all or none.
\set VERBOSITY terse
copy (select 1) to program 'rm -rf inserted && mkdir inserted inserted/copies inserted/years inserted/years/year=2020 inserted/odd && cat > /dev/null';
create table facts (id int4, b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric(12, 2), d date, ti time,
    ts timestamp, tz timestamptz, t text, code text, u uuid, bin bytea);
copy facts from program 'cat tables/facts.copy';
create foreign table copies (id int4, b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric(12, 2), d date, ti time,
    ts timestamp, tz timestamptz, t text, code text, u uuid, bin bytea) server headrace_files options (path 'inserted/copies');
-- A folder that is empty is a table without rows.
select count(*), sum(i4) from copies;
select b, count(*) from copies group by b;
insert into copies select * from facts where id % 3 = 0;
select count(*) from ((select * from copies except all select * from facts where id % 3 = 0) union all (select * from facts where id % 3 = 0 except all select * from copies)) x;
-- What is not committed is nobody's; a savepoint's rows go with it.
begin;
insert into copies select * from facts where id % 3 = 1;
savepoint one;
insert into copies select * from facts where id % 3 = 2 and b;
rollback to one;
insert into copies select * from facts where id % 3 = 2 and not b;
savepoint two;
insert into copies select * from facts where id % 3 = 2 and b is null;
release two;
select count(*) = (select count(*) from facts where id % 3 = 0) as "not yet" from copies;
commit;
select count(*) from ((select * from copies except all select * from facts where id % 3 < 2 or b is not true) union all (select * from facts where id % 3 < 2 or b is not true except all select * from copies)) x;
begin;
insert into copies select * from facts;
rollback;
select count(*) = (select count(*) from facts where id % 3 < 2 or b is not true) as "as before" from copies;
select b, count(*), sum(i4), min(n), max(ts), min(d) from copies group by b order by b;
select code, count(*), sum(i8) from copies where code like 'text 1%' group by code order by code;
-- One statement that fails leaves nothing, and the next one goes on.
insert into copies (id, i4) select id, 100 / (id - 20) from generate_series(1, 30) id;
insert into copies (id, d) values (1, 'infinity');
insert into copies (id, n) values (1, 'NaN');
insert into copies (id, n) values (1, 12345678901);
select count(*) = (select count(*) from facts where id % 3 < 2 or b is not true) as "as before" from copies;
insert into copies (id, t) values (-1, 'one'), (-2, null) returning id, t, n;
insert into copies (id, u, bin) values (-3, '00000000-0000-0064-0000-000000000000', '\x00ff') returning u, bin;
copy copies (id, n) from stdin;
-4	1.5
-5	\N
\.
select id, t, n, u, bin from copies where id < 0 order by id desc;
prepare more (int) as insert into copies (id, t) select -10 - i, 'more' from generate_series(1, $1) i;
execute more(3);
execute more(0);
select count(*), min(id) from copies where t = 'more';
-- No more files than statements that brought rows, and nothing hidden.
create table listed (name text);
copy listed from program 'ls -A inserted/copies | sed s/[0-9-]*.arrow// | sort | uniq -c | sed "s/^ *//"';
select * from listed;
-- What the server does not look at by itself.
create foreign table checked (id int4 not null check (id > 0), name text default 'none', twice int4 generated always as (id * 2) stored)
    server headrace_files options (path 'inserted/odd');
insert into checked (id) values (1), (2);
insert into checked (id) values (3), (null);
insert into checked (id) values (3), (-1);
select * from checked order by id;
insert into checked (id) values (3) on conflict do nothing;
insert into checked (id) values (3) on conflict (id) do nothing;
update checked set id = 4;
delete from checked;
begin;
insert into checked (id) values (5);
prepare transaction 'never';
select count(*) from checked;
-- Types of the files that are there; columns that they do not have, or that are not declared.
create foreign table other (id int8, name text) server headrace_files options (path 'inserted/odd');
insert into other values (7, 'seven');
create foreign table wide (id int8, name text, twice int4) server headrace_files options (path 'inserted/odd');
insert into wide values (7, 'seven', 14);
insert into wide values (70000000000, 'large', 1);
create foreign table more_columns (id int4, name text, twice int4, absent text) server headrace_files options (path 'inserted/odd');
insert into more_columns values (1, 'a', 2, 'b');
select * from wide order by id;
-- Folders.
create foreign table years (id int4, year int4) server headrace_files options (path 'inserted/years');
insert into years values (1, 2020);
create foreign table year_2020 (id int4) server headrace_files options (path 'inserted/years/year=2020');
insert into year_2020 select generate_series(1, 5);
insert into years values (1, 2020);
select year, count(*) from years group by year;
create table parted (id int4, part int4) partition by list (part);
create table parted_1 partition of parted for values in (1);
create foreign table parted_2 partition of parted for values in (2) server headrace_files options (path 'inserted/parted');
insert into parted values (1, 1), (2, 2);
copy (select 1) to program 'mkdir inserted/parted && cat > /dev/null';
insert into parted select i, 1 + i % 2 from generate_series(1, 10) i;
select tableoid::regclass, count(*), sum(id) from parted group by tableoid order by 1;
-- Files that take nothing.
create foreign table one_file (id int4) server headrace_files options (path 'tables/facts.arrow');
insert into one_file values (1);
create foreign table several (id int4) server headrace_files options (path 'inserted/odd,inserted/years');
insert into several values (1);
create foreign table no_type (id int4, j jsonb) server headrace_files options (path 'inserted/parted');
insert into no_type values (1, '1');
-- Rights.
create role writes_no_files;
grant pg_read_server_files to writes_no_files;
grant usage on foreign server headrace_files to writes_no_files;
grant create on schema public to writes_no_files;
set role writes_no_files;
create foreign table own (id int4) server headrace_files options (path 'inserted/years/year=2020');
insert into own values (1);
select count(*) from own;
reset role;
grant pg_write_server_files to writes_no_files;
set role writes_no_files;
insert into own values (1);
reset role;
select count(*) from own;
drop owned by writes_no_files;
drop role writes_no_files;
-- Tables that a GPU keeps: without one the answer is the session's own, and says why.
alter foreign table year_2020 options (add residence 'somewhere');
alter foreign table year_2020 options (add residence 'gpu');
select count(*), sum(id) from year_2020;
select count(*) from headrace.kept;
alter foreign table year_2020 options (set residence 'files');
alter foreign table year_2020 options (set residence 'gpu');
alter foreign table year_2020 rename to y2020;
drop foreign table y2020;
copy (select 1) to program 'rm -rf inserted && cat > /dev/null';
