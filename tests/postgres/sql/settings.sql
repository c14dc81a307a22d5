-- bare
-- The settings: their defaults, what they take, who may set them, and how long that lasts.
load 'headrace';
show headrace.enabled;
show headrace.fallback;
show headrace.force;
show headrace.max_threads;
set headrace.max_threads = 4;
select name, context from pg_settings
    where name in ('headrace.enabled', 'headrace.fallback', 'headrace.force', 'headrace.min_table_size') order by name;
\set VERBOSITY sqlstate
set headrace.enabled = maybe;
set headrace.fallback = maybe;
set headrace.min_table_size = -1;
set headrace.min_table_size = 'much';
set headrace.no_such_setting = 1;
\set VERBOSITY default
set headrace.enabled = off;
set headrace.fallback = forbid;
set headrace.min_table_size = 0;
show headrace.enabled;
show headrace.fallback;
show headrace.min_table_size;
reset all;
show headrace.enabled;
show headrace.fallback;
begin;
set local headrace.enabled = off;
show headrace.enabled;
rollback;
show headrace.enabled;
begin;
set headrace.enabled = off;
savepoint one;
set headrace.enabled = on;
rollback to one;
show headrace.enabled;
commit;
show headrace.enabled;
reset headrace.enabled;
-- A function's own settings, and settings within a function.
create table numbers as select i::int4 as i from generate_series(1, 3000) i;
vacuum analyze numbers;
set headrace.force = on;
set headrace.min_table_size = 0;
create function without() returns text language sql set headrace.enabled = off as
    $$ select current_setting('headrace.enabled') || ' ' || sum(i) from numbers $$;
create function switching() returns setof text language plpgsql as $$
declare side text;
begin
    foreach side in array array['on', 'off', 'on'] loop
        perform set_config('headrace.enabled', side, true);
        return next side || ' ' || (select sum(i) from numbers where i % 3 = 0);
    end loop;
end $$;
select without();
show headrace.enabled;
select * from switching();
-- A setting that changes between the plan and its execution.
prepare sums as select count(*), sum(i) from numbers where i > 10;
set plan_cache_mode = force_generic_plan;
execute sums;
set headrace.enabled = off;
execute sums;
set headrace.enabled = on;
execute sums;
set headrace.fallback = forbid;
execute sums;
set headrace.force = off;
execute sums;
set headrace.min_table_size = '100GB';
execute sums;
deallocate sums;
-- Whoever has no rights may set them too.
set role regress_reader;
set headrace.enabled = off;
set headrace.fallback = forbid;
show headrace.fallback;
reset role;
alter role regress_reader set headrace.enabled = off;
alter role regress_reader reset all;
