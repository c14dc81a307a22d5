-- bare
-- The extension comes and goes; its library is loaded by hand, or by every session of a database.
select count(*) from pg_extension where extname = 'headrace';
select name from pg_settings where name like 'headrace.%' order by name;
create table events (id int4, amount int8);
insert into events select i, i % 10 from generate_series(1, 5000) i;
vacuum analyze events;
create extension headrace;
create extension headrace;
create extension if not exists headrace;
select count(*) from pg_extension where extname = 'headrace';
select queries >= 0 as counts, fallbacks >= 0 as counts_too from headrace.stat;
-- What belongs to an extension cannot be dropped by itself.
drop view headrace.stat;
drop extension headrace;
select to_regclass('headrace.stat');
-- A new session has not loaded the library, until told.
\c
load 'headrace';
load 'headrace';
set headrace.force = on;
set headrace.min_table_size = 0;
select count(*), sum(amount) from events where id > 100;
-- Every session of the database loads it.
select format('alter database %I set session_preload_libraries = ''headrace''', current_database()) as statement \gset
:statement;
\c
show session_preload_libraries;
show headrace.enabled;
select count(*), sum(amount) from events where id > 100;
-- It comes back, and in a transaction that is taken back it does not.
begin;
create extension headrace;
select queries >= 0 as counts from headrace.stat;
rollback;
select to_regclass('headrace.stat');
create extension headrace;
select queries >= 0 as counts from headrace.stat;
-- The library and the database work without it.
drop extension headrace cascade;
select count(*), sum(amount) from events where id > 100;
select format('alter database %I reset session_preload_libraries', current_database()) as statement \gset
:statement;
\c
select count(*), sum(amount) from events where id > 100;
-- Nobody but a superuser may create it, and what it counts is for everybody to see.
set role regress_reader;
create extension headrace;
reset role;
create extension headrace;
set role regress_reader;
select queries >= 0 as counts from headrace.stat;
reset role;
