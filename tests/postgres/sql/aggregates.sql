-- Every aggregate over every type, with NULLs, filters, nothing to count, groups of several keys.
-- Floats are multiples of 1/16, so that their sums do not depend on the order of rows.
create table facts (id int4, b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric(12, 2), free numeric,
    d date, ti time, ts timestamp, tz timestamptz, t text, v varchar(20), c char(5), u uuid, k int4, nothing int4);
insert into facts select i,
    case when i % 7 > 0 then i % 3 = 0 end, case when i % 5 > 0 then i % 1000 - 500 end, case when i % 6 > 0 then i * 7919 % 100000 - 50000 end,
    case when i % 8 > 0 then i::int8 * 1000003 - 2000000000 end, case when i % 9 > 0 then (i % 401 - 200) / 16.0 end,
    case when i % 10 > 0 then (i % 7001 - 3500) / 16.0 end, case when i % 4 > 0 then (i * 37 % 200001 - 100000) / 100.0 end,
    case when i % 11 > 0 then (i % 977 * 1.5) end, case when i % 12 > 0 then date '1995-01-01' + i % 4000 end,
    case when i % 13 > 0 then time '00:00' + i % 86400 * interval '1 s' end, case when i % 14 > 0 then timestamp '1999-12-31 12:00' + i * interval '37 min' end,
    case when i % 15 > 0 then timestamptz '2001-02-03 04:05+00' + i * interval '11 h' end, case when i % 6 > 1 then 'text ' || i % 50 end,
    case when i % 7 > 1 then 'v' || i % 200 end, case when i % 8 > 1 then chr(97 + i % 26) || i % 4 end, case when i % 9 > 1 then md5((i % 100)::text)::uuid end,
    i % 12, null
    from generate_series(1, 6000) i;
create table empty (like facts);
create type mood as enum ('calm', 'wild');
vacuum analyze facts;
vacuum analyze empty;

select count(*) from facts;
select count(b), count(i2), count(i4), count(i8), count(f4), count(f8), count(n), count(free), count(d), count(ti), count(ts), count(tz),
    count(t), count(v), count(c), count(u), count(nothing) from facts;
select sum(i2), sum(i4), sum(i8), sum(f4), sum(f8), sum(n), sum(free), sum(nothing) from facts;
select avg(i2), avg(i4), avg(i8), avg(f4), avg(f8), avg(n), avg(free), avg(nothing) from facts;
select min(i2), min(i4), min(i8), min(f4), min(f8), min(n), min(free), min(nothing) from facts;
select max(i2), max(i4), max(i8), max(f4), max(f8), max(n), max(free), max(nothing) from facts;
select min(d), max(d), min(ti), max(ti), min(ts), max(ts), min(tz), max(tz) from facts;
select min(t), max(t), min(v), max(v), min(c), max(c) from facts;
select bool_and(b), bool_or(b), every(b), bool_and(i4 < 100000), bool_or(i4 is null) from facts;
select bit_and(i4), bit_or(i4), bit_and(i2), bit_or(i8) from facts;
select round(stddev(i4)::numeric, 4), round(var_pop(i8), 4), round(stddev_samp(n), 4), round(variance(f8)::numeric, 4) from facts;
select count(distinct i2), count(distinct t), count(distinct b), sum(distinct i2), avg(distinct i2) from facts;
select string_agg(distinct c, ',' order by c) from facts;
select array_agg(i4 order by id) from facts where id < 20;
-- Sums that pass the range of the type summed.
select sum(i8 * 4000000), sum(i4::int8), sum(2000000000 + 0 * i4), avg(2000000000 + 0 * i4) from facts;
select sum(9000000000000000000 + 0 * id) from facts;
-- Nothing to count.
select count(*), count(i4), sum(i4), avg(i4), min(i4), max(t), bool_and(b), sum(n), sum(f8) from empty;
select count(*), count(i4), sum(i4), avg(i4), min(i4), max(t), bool_and(b), sum(n), sum(f8) from facts where id < 0;
select count(*), sum(i4) from facts where false;
select count(*), sum(i4) from facts where null::bool;
select k, count(*), sum(i4) from empty group by k order by k;
select k, count(*), sum(i4) from facts where id < 0 group by k order by k;
select 1 from facts where id < 0 having count(*) = 0;
select 1 from facts having count(*) = 0;
-- FILTER.
select count(*) filter (where b), count(*) filter (where not b), count(*) filter (where b is null), sum(i4) filter (where i4 > 0),
    sum(i4) filter (where i4 < -100000), avg(n) filter (where k = 3), min(t) filter (where k in (1, 2)) from facts;
select k, count(*) filter (where i4 > 0), sum(n) filter (where b), max(d) filter (where false) from facts group by k order by k;
select count(distinct i2) filter (where b), sum(i2) filter (where nothing is null) from facts;
-- Groups.
select b, count(*), sum(i4) from facts group by b order by b;
select t, count(*), sum(i8) from facts group by t order by t;
select c, count(*), min(id) from facts group by c order by c;
select u, count(*) from facts group by u order by u limit 12;
select d, count(*), sum(n) from facts group by d order by d limit 12;
select n, count(*) from facts group by n order by n desc nulls last limit 12;
select f8, count(*), sum(id) from facts group by f8 order by f8 limit 12;
select tz, count(*) from facts group by tz order by tz limit 5;
select k, b, i2 % 3 as r, count(*), sum(i4), avg(n) from facts group by k, b, i2 % 3 order by k, b, r;
select extract(year from d) as y, date_trunc('month', ts) as m, count(*) from facts where id < 900 group by y, m order by y, m limit 20;
select i4 > 0 as positive, upper(substr(t, 6)) as tail, count(*) from facts where id < 600 group by 1, 2 order by 1, 2 limit 20;
select case when i4 < 0 then 'below' when i4 = 0 then 'zero' when i4 > 0 then 'above' end as side, coalesce(k, -1) as k2, count(*)
    from facts where k < 3 group by 1, 2 order by 1, 2;
select id, sum(i4) from facts group by id order by id limit 5;
select count(*) from (select id, sum(i4) as s from facts group by id) s where s > 0;
select distinct k, b from facts order by k, b;
select distinct on (k) k, id, i4 from facts where b order by k, id;
select k, count(*) from facts group by grouping sets ((k), ()) order by k;
select b, k % 3 as r, count(*), sum(i8) from facts group by rollup (b, k % 3) order by 1, 2, 3;
select b, k % 3 as r, grouping(b, k % 3), count(*) from facts group by cube (b, k % 3) order by 1, 2, 3, 4;
-- HAVING and expressions over aggregates.
select k, sum(i4) from facts group by k having sum(i4) > 0 order by k;
select k, count(*) from facts group by k having count(*) filter (where b) > 140 and min(i4) < -49000 order by k;
select k, sum(i4) + count(*) * 2 as a, sum(n) / nullif(count(n), 0) as m, max(i4) - min(i4) as w, -sum(i2) as neg,
    case when sum(i4) > 0 then 'more' else 'less' end as word, coalesce(sum(nothing), 0) as none, k * 10 + count(b) as mixed
    from facts group by k order by k;
select sum(i4 * 2 - k), sum(n * 1.1), sum(abs(i4)), sum(n * i2), sum(case when b then i4 else 0 end), sum(coalesce(i2, 0) + k),
    sum(n * (1 - 0.05)), avg(i4 / 7), sum(i4 % 7), sum(length(t)), sum(i8 / 1000) from facts;
select round(sum(n), 0), sum(i4)::text || '!', (sum(i4) > 0)::int4, sum(f8) * 2, sum(f4)::int8 from facts;
select sum(i4), sum(i4), count(*) + count(*) from facts;
-- DISTINCT: by values, beside others, of one argument and of several, filtered, of nothing.
select count(distinct k), count(*), sum(i4), avg(n), min(t), bool_or(b), sum(f8), stddev(i2) from facts;
select k, count(distinct i4), sum(distinct i4), avg(distinct i4), min(distinct i4), count(*), sum(i8), count(i4), max(d) from facts group by k order by k;
select b, count(distinct t), count(distinct c), count(distinct d), count(distinct tz), sum(distinct n), avg(distinct i8), count(distinct f8), sum(distinct f4),
    avg(distinct f8), count(*), sum(i2), avg(i8), count(distinct b), every(distinct b), min(n) from facts group by b order by b;
select k, count(distinct i2) filter (where b), count(distinct i2) filter (where not b), count(distinct i2), sum(distinct i2) filter (where k > 3), count(*) filter (where b)
    from facts group by k order by k;
select count(distinct i4), sum(distinct n), avg(distinct f8), count(*), sum(i4), count(distinct t) from empty;
select count(distinct i4), count(*), sum(i4) from facts where id < 0;
select k, count(distinct i4), count(*) from facts where id < 0 group by k;
select count(distinct nothing), sum(distinct nothing), count(*) from facts;
select count(distinct i4 % 7), sum(distinct length(t)), count(distinct i4 > 0), count(distinct upper(t)), count(distinct date_trunc('month', ts)) from facts;
select k, count(distinct t) from facts group by k having count(distinct t) > 25 and sum(i4) < 0 order by k;
select k % 3 as r, count(distinct u), count(distinct free), count(distinct v) from facts group by r order by r;
select k, count(distinct (i4, b)) from facts group by k order by k limit 3;
select b, k % 2 as r, count(distinct i2), count(*) from facts group by rollup (b, k % 2) order by 1, 2, 3;
select count(distinct k), stddev(distinct i2) is null from facts;
create table alike (k int4, f4 float4, f8 float8, n numeric(8, 2), free numeric, t text, c char(4), bp bpchar);
insert into alike select i % 3, (array['-0', '0', 'nan', '-nan', '1.5'])[1 + i % 5]::float4, (array['-0', '0', 'nan', '-nan', 'infinity', '1.5'])[1 + i % 6]::float8,
    (array['1.0', '1.00', '1', '2.5'])[1 + i % 4]::numeric, (array['1.0', '1.00', '1', '2.5'])[1 + i % 4]::numeric, (array['a', 'a ', 'b'])[1 + i % 3],
    (array['a', 'a ', 'b'])[1 + i % 3], (array['a', 'a ', 'b'])[1 + i % 3] from generate_series(1, 600) i;
vacuum analyze alike;
create table others (id int4, j jsonb, a int4[], iv interval, o oid, p point, m mood, y bytea);
alter table others alter j set storage external;
insert into others select i, case when i % 3 > 0 then jsonb_build_object('k', repeat(i::text, i % 9 * 200)) end, case when i % 4 > 0 then array[i, i] end,
    case when i % 5 > 0 then i * interval '1 s' end, case when i % 6 > 0 then i::oid end, case when i % 7 > 0 then point(i, i) end,
    case when i % 8 > 0 then 'calm'::mood end, case when i % 9 > 0 then 'y'::bytea end from generate_series(1, 700) i;
alter table others add late jsonb default '{"late": 1}', add never jsonb;
insert into others select id, j, a, iv, o, p, m, y, null, '{}' from others;
vacuum analyze others;
select count(late), count(never), count(j), count(*), sum(id) from others;
select k, count(distinct f4), count(distinct f8), count(distinct n), count(distinct free), count(distinct t), count(distinct c), count(distinct bp), sum(distinct n), sum(distinct f8)
    from alike group by k order by k;
select count(distinct f4), count(*) from alike;
select sum(distinct n), count(distinct bp), avg(distinct n), sum(distinct f4) from alike;
select length(bp), count(*) from (select bp from alike group by bp) s group by 1;
select count(j), count(a), count(iv), count(o), count(p), count(m), count(y), count(*), count(distinct o) from others;
select id % 3 as r, count(j), count(m) filter (where j is null), count(p) from others group by r order by r;
select date_trunc('hour', timestamptz '2020-09-13 02:30+00') as h, count(*) from facts group by 1;
-- Variances and deviations of exact numbers: PostgreSQL's digits.
select variance(i2), var_samp(i4), var_pop(i8), stddev(n), stddev_samp(i2), stddev_pop(i4), stddev(i8), var_pop(n), count(*) from facts;
select k, variance(i2), var_samp(i4), var_pop(i8), stddev(n), stddev_samp(i2), stddev_pop(i4), stddev(i8), var_pop(n) from facts group by k order by k;
select stddev(i4 * 2 - k), var_pop(n * 1.1), stddev(i2) filter (where b), variance(n - n), stddev(0 * i4) from facts;
select stddev(i4), var_pop(n), variance(nothing), stddev_pop(i8) from empty;
select stddev(i4), stddev_pop(i4), variance(n), var_pop(n), stddev_pop(n) from facts where id = 7;
select count(*), md5(string_agg(concat_ws(' ', a, b, c, d, e), ',' order by g)) from (select id % 997 as g, stddev(i4) as a, var_pop(i8) as b, stddev_pop(n) as c,
    variance(i2) as d, stddev(id) as e from facts group by g) s;
-- Roots whose digits beyond those that are shown come near to a half.
create table spread as select i as id, (hashint4(i) % 1000)::int2 as a, hashint4(-i) % 100000 as b, (hashint4(7 * i) % 1000000 / 100.0)::numeric(10, 2) as n
    from generate_series(1, 9000) i;
vacuum analyze spread;
select count(*), md5(string_agg(concat_ws(' ', x, y, z, v, w), ',' order by g)) from (select id % 1499 as g, stddev(a) as x, stddev_pop(b) as y, stddev(n) as z,
    var_pop(a) as v, variance(b) as w from spread group by g) s;
select stddev(i8 * 4000000000), var_pop(9000000000000000000 + 0 * id) from facts;
select stddev(9e17::numeric(38, 15) + n), variance(n / 3), round(stddev(f8)::numeric, 4), round(var_pop(f4)::numeric, 4), stddev(free) is null from facts;
-- Variances and deviations of floats: PostgreSQL's, but for the last digits.
select round(variance(f8)::numeric, 8), round(var_samp(f4)::numeric, 8), round(var_pop(f8)::numeric, 8), round(stddev(f4)::numeric, 8), round(stddev_samp(f8)::numeric, 8),
    round(stddev_pop(f4)::numeric, 8), round(var_pop(f8 * 2 - i2)::numeric, 6), round(stddev(f8) filter (where b)::numeric, 8), round(variance(i4::float8)::numeric, 3), count(*) from facts;
select k, round(variance(f8)::numeric, 8), round(stddev_pop(f4)::numeric, 8), round(var_pop(f8 / 3)::numeric, 8), round(stddev(f8) filter (where i4 > 0)::numeric, 8) from facts group by k order by k;
select count(*), md5(string_agg(concat_ws(' ', a, b, c, d), ',' order by g)) from (select id % 1999 as g, round(stddev(f8)::numeric, 6) as a, round(var_pop(f4)::numeric, 6) as b,
    round(variance(f8 + f4)::numeric, 6) as c, round(stddev_pop(1e9 + f8)::numeric, 2) as d from facts group by g) s;
-- Small differences of large values, of which sums of squares know nothing.
select round(stddev(1e9::float8 + id % 7 / 4.0)::numeric, 6), round(var_pop(-3e9::float8 + id % 5)::numeric, 6), round(var_pop(16777216::float4 + f4)::numeric, 6) from facts;
select k % 4 as r, round(variance(distinct f8)::numeric, 6), round(stddev_pop(distinct f4)::numeric, 6), count(distinct f4), count(*), sum(f8) from facts group by r order by r;
select round(variance(distinct f4)::numeric, 6), round(variance(f4)::numeric, 6), round(var_pop(distinct f8) filter (where b)::numeric, 6) from facts;
select variance(f8), var_pop(f4), stddev(f8), stddev_pop(f4), var_pop(distinct f8) from empty;
select variance(f8), var_pop(f8), stddev(f4), stddev_pop(f4), variance(nothing::float8), var_pop(nothing::float4) from facts where id = 7;
select k from facts group by k having stddev(f8) > 108.37 and variance(f4) < 52.3 order by k;
select var_pop(f8 - f8), stddev(0 * f4), variance(0.1::float8 + 0 * id) < 1e-20 from facts;
-- Arithmetic of floats.
select sum(f8 * 2 + 1), sum(f4 - f8), sum(-f8), sum(abs(f4)), sum(f8 / 4), max(f8 / 3), min(f4 * f4), sum(f4 + f4), sum(f8 - f4), count(*) filter (where f8 * 1.5 > 100),
    sum(i4::float8), sum(i8::float8 / 16), max(n::float8), sum(k::float4), max(i8::float4), avg(f4 * 2), sum(f4 / 2), max(f4 / 3) from facts;
select k, sum(f4), avg(f4), sum(f8 * k), max(f8 - i2), min(i2 * f4) from facts group by k order by k;
select f8 * 2 > 100 as large, count(*) from facts group by 1 order by 1;
create table floats (id int4, x float8, y float4);
insert into floats values (1, 1e308, 1e38), (2, 1e-300, 1e-30), (3, 0, 0), (4, '-0', '-0'), (5, 'infinity', 'infinity'), (6, 'nan', 'nan'), (7, '-infinity', '-infinity'), (8, null, null);
vacuum analyze floats;
select max(x * 10) from floats;
select max(x * 10) from floats where id <> 1;
select min(x * x) from floats where id = 2;
select max(y * 10) from floats where id < 3;
select min(y * y) from floats where id = 2;
select max(x + x) from floats;
select max(-x - x) from floats where id in (1, 3);
select max(1 / x) from floats where id in (2, 4);
select max(x / x) from floats where id in (2, 3);
select max(x / 0) from floats where id = 6;
select max(x / y), min(x - y), min(x * y) from floats where id in (5, 6, 7);
select max(x * 0), max(x + 1), min(x - 1), max(1 / x) from floats where id in (5, 8);
select max(1e-300 / x) from floats where id = 1;
select max(y / 1e38::float4 / 1e38::float4) from floats where id = 2;
select max(case when x <> 0 then 1 / x end) from floats where id in (1, 3, 4, 8);
select count(*) from floats where id in (3, 4, 8) and (x = 0 or 1 / x > 0);
select sum(x) from floats where id = 1 or id = 3;
select sum(x), avg(x), sum(y), avg(y) from floats where id in (1, 5);
select sum(x) from (select x from floats where id = 1 union all select x from floats where id = 1) s;
select max(x), min(x), max(y), min(y) from floats where id in (1, 5, 7);
select max(x), min(y) from floats;
select id % 2 as r, variance(x), var_pop(y), stddev(y), stddev_pop(x), count(x) from floats where id > 2 group by r order by r;
select id, variance(x), var_pop(x), stddev(y), stddev_pop(y) from floats group by id order by id;
select variance(x) from floats where id in (5, 6, 7);
select var_pop(y), round(stddev(y / 1e38::float4)::numeric, 6) from floats where id in (1, 3);
select variance(x) from floats where id in (1, 3);
select stddev_pop(x) from floats where id in (1, 3, 5);
-- PostgreSQL's squares are of differences times the number of values.
create table wide as select (id % 2 * 2 - 1) * 3e150::float8 as x, (id % 2 * 2 - 1) * 1e145::float8 as y from facts;
vacuum analyze wide;
select var_pop(x) from wide;
select round(var_pop(y / 1e145)::numeric, 6), var_pop(y) between 0.999e290 and 1.001e290 from wide;
-- Windows over aggregates.
select k, sum(i4), rank() over (order by sum(i4) desc), sum(sum(i4)) over (order by k) from facts group by k order by k;
-- Errors are errors, whoever meets them.
select sum(i4 / (k - k)) from facts;
select k, sum(100 / (id - 3000)) from facts group by k order by k;
select sum(i2::int2 * 100::int2) from facts;
select sum(100 / (id - 3000)) filter (where id <> 3000) from facts;
select sum(100 / (id - 3000)) from facts where id < 3000;
select sum(case when id <> 3000 then 100 / (id - 3000) end) from facts;
select avg(i8 * 10000000000) from facts;
-- Groups by what reads no column, which is known when the query runs.
select date_trunc('minute', timestamptz '2022-02-09 00:30:12+00') at time zone 'UTC' as at, count(*) from facts where id < 900 group by date_trunc('minute', timestamptz '2022-02-09 00:30:12+00');
select date_trunc('minute', timestamptz '2022-02-09 00:30:12+00') at time zone 'UTC' as at, count(*) from empty group by date_trunc('minute', timestamptz '2022-02-09 00:30:12+00');
select (select 3) as three, k, sum(id) from facts where k = (select 3) and id < 900 group by 1, 2;
select null::int4 as nothing, current_date - current_date as zero, count(*) from facts where id < 900 group by 1, 2;
-- Blanks at the end of bpchar do not count, however many there are.
create table blanks (id int4, free bpchar, short char(3), long char(5));
insert into blanks select i, 'w' || i % 3 || repeat(' ', i % 4), 'w' || i % 3, 'w' || i % 3 from generate_series(1, 60) i;
vacuum analyze blanks;
select free || '.' as free, count(*), sum(id) from blanks group by free order by 1;
select w || '.' as w, count(*) from (select short as w from blanks union all select long from blanks) u group by w order by 1;
select count(*), sum(a.id) from blanks a join blanks b on a.free = b.free;
select count(*), sum(a.id) from blanks a join blanks b on a.short = b.long;
select count(*) from blanks where free = 'w1 ';
select count(*) from blanks where free in ('w1  ', 'w2');
select short || '.' as short, count(*) from blanks group by short order by 1;
