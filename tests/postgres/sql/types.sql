-- Values at the edge of their types, values out of line, columns that went and came, collations.
create table extremes (id int4, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric, n38 numeric(38, 10), d date, ti time,
    ts timestamp, tz timestamptz, t text, c char(3), u uuid, y bytea, b bool);
insert into extremes values
    (1, -32768, -2147483648, -9223372036854775808, '-infinity', '-infinity', '-infinity', -1e27, '-infinity', '00:00', '-infinity', '-infinity',
     '', '', '00000000-0000-0000-0000-000000000000', '', false),
    (2, 32767, 2147483647, 9223372036854775807, 'infinity', 'infinity', 'infinity', 1e27, 'infinity', '24:00:00', 'infinity', 'infinity',
     'ÄÖÜ€😀', 'zzz', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '\x00ff00', true),
    (3, 0, 0, 0, 'nan', 'nan', 'nan', 'nan', '4714-11-24 BC', '23:59:59.999999', '4714-11-24 00:00:00 BC', '4714-11-24 00:00:00+00 BC',
     ' ', ' ', '00000000-0000-0000-0000-000000000001', '\x00', null),
    (4, 1, 1, 1, '-0', '-0', 0.00000000000000000001, 0.0000000001, '5874897-12-31', '12:00', '294276-12-31 23:59:59.999999', '294276-12-31 23:59:59.999999+00',
     'a', 'a', '10000000-0000-0000-0000-000000000000', '\xff', true),
    (5, -1, -1, -1, '0', '0', 12345678901234567890123456789012345678901234567890.5, -0.0000000001, '1999-12-31', '00:00:00.000001',
     '1999-12-31 23:59:59.999999', '1999-12-31 23:59:59.999999+00', 'a ', 'a ', '01000000-0000-0000-0000-000000000000', '\x61', false),
    (6, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
    (7, 2, 2, 2, 3.4028235e38, 1.7976931348623157e308, 1.10, 2.5, '2000-02-29', '00:00:00', '2000-01-01', '2000-01-01+00', 'A', 'A', null, '\x41', true),
    (8, 3, 3, 3, 1e-45, 4.9406564584124654e-324, 1.1, 2.50, '1970-01-01', '24:00', '1970-01-01', '1970-01-01+00', 'B', 'ab', null, '\x4142', true);
vacuum analyze extremes;
select * from extremes order by id;
select count(*), min(i2), max(i2), min(i4), max(i4), min(i8), max(i8), sum(i8), avg(i8), sum(i4), sum(i2) from extremes;
select min(f4), max(f4), min(f8), max(f8), sum(f8), avg(f4), sum(f4) from extremes;
select max(f8), sum(f8) from extremes where f8 <> 'nan';
select min(f8), sum(f8) from extremes where id in (2, 4, 5);
select min(f8) from extremes where id in (1, 2);
select sum(f8) from extremes where id in (1, 2);
select min(n), max(n), sum(n), avg(n), min(n38), max(n38), sum(n38) from extremes;
select sum(n), min(n), max(n), avg(n) from extremes where n not in ('nan', 'infinity', '-infinity');
select sum(n), avg(n) from extremes where n = 'infinity' or n < 5;
select min(d), max(d), min(ti), max(ti), min(ts), max(ts), min(tz), max(tz) from extremes;
select min(t), max(t), min(c), max(c), count(u), count(y), count(b) from extremes;
select id from extremes where f8 > 1e300 order by id;
select id from extremes where f8 = 'nan' order by id;
select id from extremes where f4 = 0 order by id;
select id from extremes where f8 < 'nan' order by id;
select id from extremes where n = 'nan' or n = 'infinity' order by id;
select id from extremes where n = 1.1 order by id;
select count(*), count(distinct n), count(distinct f8) from extremes;
select id from extremes where d > '2000-01-01' order by id;
select id from extremes where d = 'infinity' or ts = '-infinity' order by id;
select id from extremes where ti = '24:00' order by id;
select id from extremes where ti > '23:59:59.9' order by id;
select id, isfinite(d), isfinite(ts) from extremes where d is not null order by id;
select id, extract(year from d) from extremes where isfinite(d) order by id;
select id, extract(year from ts), date_trunc('year', ts) from extremes where isfinite(ts) and ts > '1900-01-01' and id <> 4 order by id;
select id from extremes where u < '01000000-0000-0000-0000-000000000001' order by id;
select id from extremes where y > '\x00' order by id;
select id, abs(i4 + 1), -(i4 + 1), i8 / 2, i8 % 10 from extremes where id <> 2 order by id;
select i4 + 1 from extremes order by id;
select -i2 from extremes order by id;
select -i8 from extremes where id = 1;
select i8 / -1 from extremes where id = 1;
select abs(i4) from extremes where id = 1;
select i8 * 2 from extremes where id in (2, 6);
select f8 * 10 from extremes where id = 7;
select f4 * 10 from extremes where id = 7;
select f8 / 10 from extremes where id = 8;
select i8::int4 from extremes where id = 2;
select f8::int4 from extremes where id = 3;
select id, i4 % -1, i8 % -1 from extremes where id = 1;
select ts + interval '1 year' from extremes where id = 4;
-- Rounding goes half to even for floats and away from zero for numerics.
select v, v::int4, round(v), v::numeric::int4 from (values (0.5::float8), (1.5), (2.5), (-0.5), (-1.5), (-2.5)) as r (v) order by r.v;

-- Lengths and padding.
create table texts (id int4, t text, v varchar(10), c char(6), c1 char(1));
insert into texts values (1, 'abc', 'abc', 'abc', 'a'), (2, 'abc ', 'abc ', 'abc ', ' '), (3, 'abc  ', 'abc  ', 'abc  ', ''), (4, '', '', '', null),
    (5, ' ', ' ', ' ', 'b'), (6, 'äöü', 'äöü', 'äöü', 'ä'), (7, 'ABC', 'ABC', 'ABC', 'A'), (8, E'a\tb', E'a\tb', E'a\tb', 'b'), (9, null, null, null, null),
    (10, '100%', '100%', '100%', '%'), (11, 'a_c', 'a_c', 'a_c', '_'), (12, E'a\\c', E'a\\c', E'a\\c', E'\\');
vacuum analyze texts;
select id, length(t), length(v), length(c), octet_length(t), octet_length(c), char_length(c1) from texts order by id;
select id from texts where c = 'abc' order by id;
select id from texts where c = 'abc   ' order by id;
select id from texts where v = 'abc' order by id;
select id from texts where t = c order by id;
select id from texts where v = c order by id;
select c, count(*), min(id) from texts group by c order by c;
select v, count(*), min(id) from texts group by v order by v, min(id);
select count(distinct t), count(distinct v), count(distinct c) from texts;
select a.id, b.id from texts a join texts b on a.c = b.c and a.id < b.id order by a.id, b.id;
select a.id, b.id from texts a join texts b on a.t = b.c and a.id <> b.id order by a.id, b.id;
select id, c || '|', t || '|', v || '|', c || v from texts order by id;
select id, upper(t), lower(c) || '|', substr(t, 2, 2), substr(c, 0, 3), left(t, -1), right(t, 2), trim(t) || '|', reverse(t), replace(t, 'b', 'X') from texts order by id;
select id from texts where t like 'a%' order by id;
select id from texts where t like 'a_c' order by id;
select id from texts where t like 'a\_c' order by id;
select id from texts where t like 'a\\c' order by id;
select id from texts where t like '%\%' order by id;
select id from texts where t like '%x%%' escape 'x' order by id;
select id from texts where c like 'abc' order by id;
select id from texts where c like 'abc%' order by id;
select id from texts where v not like '%b%' order by id;
select id from texts where t ilike 'ABC%' order by id;
select id from texts where t ~ '^[a-c]+$' order by id;
select id from texts where t like 'a\' order by id;
select t::varchar(2), c::text || '|', t::char(4) || '|' from texts order by id;
-- Collations.
select t from texts order by t collate "C" nulls first, id;
select t from texts where t >= 'abc' collate "C" order by id;

-- Values that are compressed, or out of line.
create table toasted (id int4, small text, packed text, far text, bytes bytea, after int4);
alter table toasted alter far set storage external;
alter table toasted alter packed set storage main;
insert into toasted select i, 's' || i, repeat('packed ' || i % 5, 600), case when i % 3 = 0 then repeat('far ' || i % 7 || md5((i % 7)::text), 100) when i % 3 = 1 then 'near' end,
    decode(repeat(md5((i % 11)::text), 200), 'hex'), i * 2 from generate_series(1, 700) i;
vacuum analyze toasted;
select count(pg_column_compression(packed)) > 0 as compressed, max(pg_column_size(far)) > 3000 as far from toasted;
select count(*), sum(after), sum(length(small)), sum(length(packed)), sum(length(far)), sum(length(bytes)) from toasted;
select md5(far), count(*), sum(after) from toasted group by far order by 1;
select md5(packed), count(*) from toasted where packed like '%3%' group by packed order by 1;
select md5(bytes), count(*), min(id) from toasted group by bytes order by 1 limit 5;
select count(*) from toasted a join toasted b on a.far = b.far;
select md5(max(far)), md5(min(packed)), count(distinct far) from toasted;
select id, substr(far, 1, 12), length(packed) from toasted where id > 690 order by id;
select sum(after) from toasted where far > 'far 3';
update toasted set small = 'updated', far = far || '!' where id % 100 = 0;
select count(*), sum(length(far)), count(*) filter (where small = 'updated') from toasted;

-- Columns that went, and columns that came with a default.
create table altered (a int4, gone int8, t text, gone_too text, z int2);
insert into altered select i, i, 't' || i % 10, 'gone' || i, i % 100 from generate_series(1, 2000) i;
vacuum altered;
alter table altered drop gone;
select count(*), sum(a), sum(z), max(t) from altered;
insert into altered select i, 't' || i % 10, 'gone' || i, null from generate_series(2001, 3000) i;
alter table altered drop gone_too, add added_int int4 not null default 42, add added_text text default 'fast', add added_null float8,
    add added_bool bool default true, add added_numeric numeric(10, 3) default -1.5, add added_tz timestamptz default '2024-02-29 12:00+00';
select count(*), sum(a), sum(added_int), min(added_text), count(added_null), bool_and(added_bool), sum(added_numeric), min(added_tz) from altered;
insert into altered (a, t, added_int) select i, 't' || i % 10, 7 from generate_series(3001, 4000) i;
update altered set added_text = null where a % 10 = 0;
vacuum analyze altered;
select added_text, added_int, count(*), sum(a) from altered group by added_text, added_int order by added_text, added_int;
select t, sum(added_numeric), count(*) filter (where z is null) from altered group by t order by t;
alter table altered alter a type int8, alter z type numeric(6, 2) using z / 3.0;
select count(*), sum(a), sum(z) from altered;
alter table altered add generated int8 generated always as (a * 2) stored;
select sum(generated), count(*) from altered where generated > 4000;
alter table altered drop a cascade;
select count(*), sum(z) from altered;
select * from altered where t = 't3' and z > 30 order by z, added_text, added_int limit 3;

-- Types of one's own, and of other shapes.
create domain positive as int4 check (value > 0);
create type mood as enum ('sad', 'ok', 'happy');
create table kinds (id positive, m mood, j jsonb, a int4[], r int4range, i interval, x bit(4), p point, o oid, nm name, q "char", net inet, mo money);
insert into kinds select i, (array['sad', 'ok', 'happy', null])[1 + i % 4]::mood, jsonb_build_object('k', i % 3), array[i % 5, i], int4range(i, i + 10),
    i % 7 * interval '1 hour', (i % 16)::bit(4), point(i, i), i % 9, 'name' || i % 4, chr(65 + i % 3)::"char", ('10.0.0.' || i % 4)::inet, (i % 50)::money
    from generate_series(1, 1500) i;
vacuum analyze kinds;
select m, count(*), min(id), max(id) from kinds group by m order by m;
select count(*), sum(id) from kinds where m > 'sad' and id > 100;
select j ->> 'k' as k, count(*) from kinds group by 1 order by 1;
select a[1], count(*), sum(a[2]) from kinds where a[1] <> 2 group by 1 order by 1;
select count(*) from kinds where r @> 50;
select i, count(*), sum(i) from kinds group by i order by i;
select x, count(*) from kinds group by x order by x limit 4;
select o, nm, q, net, count(*), sum(mo) from kinds group by o, nm, q, net order by o, nm, q, net limit 6;
select count(*) from kinds k where k is not null;
select count(k), count(k.*) from kinds k where id < 10;
select max(ctid), count(distinct tableoid) from kinds where id < 10;

-- More columns than a header's byte tells, none at all, and generated names.
create table none ();
insert into none select from generate_series(1, 300);
select count(*) from none;
select format('create table wide (%s)', string_agg('c' || i || ' int4', ', ')) as statement from generate_series(1, 300) i \gset
:statement;
select format('insert into wide select %s from generate_series(1, 300) r', string_agg(format('nullif(r %% %s, 0)', i + 1), ', ')) as statement from generate_series(1, 300) i \gset
:statement;
vacuum analyze wide;
select count(*), count(c1), sum(c7), sum(c150), sum(c299), sum(c300) from wide;
select c9, sum(c300) from wide group by c9 order by c9;
