-- files
-- Functions in CUDA: what can be made, by whom, and what PostgreSQL's own plan says of them. There is no GPU here: twins answer.
\set VERBOSITY terse
create table numbers as select i as id, i % 10 as small, i / 7.0::float8 as share, date '2020-01-01' + i as day, 'text ' || i % 5 as word from generate_series(1, 1000) i;
create function twice(x int4) returns int8 language cuda strict as 'return 2ll * x;';
select twice(small), count(*) from numbers group by 1;
create or replace function twice(x int4) returns int8 language cuda strict as $$
    // twin: x::int8 * 2
    return 2ll * x;
$$;
select twice(small), count(*) from numbers where twice(id) > 100 group by 1 order by 1;
select count(*) from numbers where twice(null::int4) is null;
select twice(21);
create function longer(a text, b text, bytes int4) returns bool language cuda strict as $$
    // twin: octet_length(a) > octet_length(b) and octet_length(a) >= bytes
    return a.size > b.size && a.size >= bytes;
$$;
select count(*) from numbers where longer(word, 'text', 6);
create function day_after(day date, "Days" int4) returns date language cuda strict as $$
    // twin: day + "Days"
    return day + Days;
$$;
select max(day_after(day, small)) from numbers;
create function fails(x int4) returns int4 language cuda strict as $$
    // twin: 100 / (x - 5)
    return 100 / (x - 5);
$$;
select count(fails(small)) from numbers;
create function no_twin_at_all(x int4) returns int4 language cuda strict as $$
    // twin: no_such_column + 1
    return x;
$$;
select no_twin_at_all(1);
-- What cannot be made.
create function not_strict(x int4) returns int8 language cuda as 'return x;';
create function no_name(int4) returns int8 language cuda strict as 'return 1;';
create function of_numeric(x numeric) returns int8 language cuda strict as 'return 1;';
create function of_point(x point) returns int8 language cuda strict as 'return 1;';
create function to_text(x int4) returns text language cuda strict as 'return 1;';
create function to_set(x int4) returns setof int4 language cuda strict as 'return 1;';
create function with_out(x int4, out y int4) language cuda strict as 'return 1;';
create function "no name of c"(x int4) returns int8 language cuda strict as 'return 1;';
-- Who may make them, and who may call them.
create role asks;
grant select on numbers to asks;
grant usage, create on schema public to asks;
set role asks;
create function own(x int4) returns int8 language cuda strict as 'return x;';
select sum(twice(small)) from numbers;
reset role;
revoke execute on function twice(int4) from public;
set role asks;
select sum(twice(small)) from numbers;
reset role;
grant execute on function twice(int4) to asks;
set role asks;
select sum(twice(small)) from numbers;
reset role;
drop owned by asks;
drop role asks;
grant usage on language cuda to public;
