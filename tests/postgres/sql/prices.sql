-- bare
-- How many groups are expected of what is computed, what the node costs, and what is told where it costs more.
create extension headrace;
set headrace.min_table_size = 0;
set headrace.startup_cost = 0;
-- So few rows that ANALYZE looks at all of them.
create table visits (id int4, at timestamp, zoned timestamptz, day date, amount numeric(10, 2), word text, size float8);
insert into visits select i, timestamp '2022-01-01' + i * interval '37 minutes', timestamptz '2022-01-01 00:00+00' + i * interval '37 minutes',
    date '2022-01-01' + i / 40, i / 4.0, md5(i::text), i / 100.0 from generate_series(1, 20000) i;
vacuum analyze visits;
checkpoint;
create function expected_rows(query text) returns table (node text, rows int4) language plpgsql as $$
declare plan json;
begin
    execute 'explain (format json) ' || query into plan;
    plan := plan -> 0 -> 'Plan';
    return query select plan ->> 'Custom Plan Provider', (plan ->> 'Plan Rows')::int4;
end $$;
create function is_near(query text, low int4, high int4) returns table (node text, verdict text) language sql as $$
    select node, case when rows between low and high then 'as many' else format('%s rows', rows) end from expected_rows(query)
$$;
select * from is_near('select date_trunc(''month'', at), count(*) from visits group by 1', 16, 19);
select * from is_near('select date_trunc(''week'', zoned), sum(amount) from visits group by 1', 73, 77);
select * from is_near('select at::date, count(*) from visits group by 1', 510, 520);
select * from is_near('select extract(hour from zoned), extract(isodow from at), sum(amount) from visits group by 1, 2', 168, 210);
select * from is_near('select extract(year from day), extract(month from day), count(*) from visits group by 1, 2', 24, 45);
select * from is_near('select id % 10, count(*) from visits group by 1', 10, 12);
select * from is_near('select id / 1000 as k, count(*) from visits group by 1', 20, 23);
select * from is_near('select trunc(amount * 0.01), count(*) from visits group by 1', 50, 53);
select * from is_near('select case when amount > 100 then ''much'' else ''little'' end, count(*) from visits group by 1', 2, 4);
select * from is_near('select left(word, 1), count(*) from visits group by 1', 16, 66);
select * from is_near('select coalesce(day, ''2020-01-01''), count(*) from visits group by 1', 500, 510);
select * from is_near('select id % 10, count(*) from visits group by 1 having count(*) > 5', 3, 5);
select * from is_near('select to_char(at, ''YYYY-MM''), count(*) from visits group by 1', 16, 19);
select * from is_near('select to_char(zoned, ''DD.MM.YYYY''), sum(amount) from visits group by 1', 510, 520);
select * from is_near('select round(amount, -3), count(*) from visits group by 1', 5, 7);
-- Fields of documents are as many as PostgreSQL guesses of what it does not know; numbers that declare no digits are columns as others.
create table papers (id int4, doc jsonb, price numeric, rate numeric);
insert into papers select i, jsonb_build_object('kind', i % 7, 'id', i), (i / 4.0)::numeric(10, 2), trim_scale((i % 50) / 8.0) from generate_series(1, 20000) i;
vacuum analyze papers;
select * from is_near('select doc->>''kind'', count(*) from papers group by 1', 150, 201);
select * from is_near('select count(*) from papers where doc @> ''{"kind": 3}'' ', 1, 1);
select * from is_near('select sum(price), max(rate), sum(rate * price) from papers', 1, 1);
select * from is_near('select rate, count(*) from papers group by 1', 50, 50);
select * from is_near('select a.rate, sum(b.price) from papers a join papers b on a.price = b.rate group by 1', 50, 50);
drop table papers;
-- Columns alone, and what may be anything, are as PostgreSQL expects.
select * from is_near('select day, count(*) from visits group by 1', 501, 501);
select * from is_near('select md5(word), count(*) from visits group by 1', 20000, 20000) where node is not null;
-- Prices.
create function told(query text) returns setof text language plpgsql as $$
declare line text;
begin
    for line in execute 'explain (verbose, costs off) ' || query loop
        if line like '%eadrace%' then return next regexp_replace(line, '\d+\.\d\d', 'N', 'g'); end if;
    end loop;
end $$;
set headrace.startup_cost = 100000;
select told('select id % 10, count(*) from visits group by 1');
select told('select id from visits where amount > 4000');
select told('select v.id from visits v join visits w using (id) where v.amount > 4000 order by v.id');
set headrace.startup_cost = 0;
select told('select id % 10, count(*) from visits group by 1');
-- More for groups with texts, and for more groups than the memory holds.
create function price(query text) returns float8 language plpgsql as $$
declare plan json;
begin
    execute 'explain (format json) ' || query into plan;
    return plan -> 0 -> 'Plan' ->> 'Total Cost';
end $$;
set enable_hashagg = off;
set enable_sort = off;
select price('select word, min(word) from visits group by word') > price('select id, min(id) from visits group by id') as texts_cost_more;
-- So the planner believes.
update pg_class set reltuples = 1e7 where relname = 'visits';
set headrace.memory_limit = '4GB';
select price('select id, min(id) from visits group by id') as fits \gset
set headrace.memory_limit = '64MB';
select round((price('select id, min(id) from visits group by id') - :fits) / 1e7 / current_setting('cpu_tuple_cost')::float8) as rows_a_spilled_group;
reset headrace.memory_limit;
-- Blocks that are read from files are counted as read.
set headrace.force = on;
create function counted(query text) returns table (processor text, verdict text) language plpgsql as $$
declare plan json;
begin
    execute 'explain (analyze, buffers, format json) ' || query into plan;
    plan := plan -> 0 -> 'Plan';
    return query select plan ->> 'Processor', case when (plan ->> 'Direct Blocks')::int4 > 100 and (plan ->> 'Shared Read Blocks')::int4 = (plan ->> 'Direct Blocks')::int4
        then 'counted' else format('%s of %s', plan ->> 'Shared Read Blocks', plan ->> 'Direct Blocks') end;
end $$;
select * from counted('select sum(amount) from visits');
drop table visits;
