-- Tables of tests/postgres/clients.py.
select setseed(0.5);
create type mood as enum ('glad', 'so so', 'sad');
create domain price as numeric(9, 3);
-- Every type, with NULLs in about an eighth of all places.
create table everything (b bool, i2 int2, n1 numeric(12, 2), i4 int4, t text, i8 int8, f4 float4, v varchar(40),
    f8 float8, d date, c char(7), ti time, n2 numeric(38, 10), ts timestamp, u uuid, tz timestamptz, by bytea,
    n3 numeric(5, -3), n4 numeric(3, 3), point point, tags int4[], mood mood, p price, j json, jb jsonb, iv interval,
    tt timetz, o oid, na name, ch "char", ip inet, moods mood[], r int4range, last int2);
insert into everything select
    nullif(i % 8, 0) > 3, nullif((random() * 65535 - 32768)::int4, i % 8)::int2,
    nullif(round((random() * 2e10 - 1e10)::numeric, 2), i % 8 - 1),
    case when i % 9 > 0 then (random() * 4294967295 - 2147483648)::int8::int4 end,
    case when i % 10 > 0 then repeat(chr(65 + i % 26) || 'ü', (random() ^ 4 * 120)::int4) end,
    case when i % 11 > 0 then (random() * 1e18)::int8 * (i % 3 - 1) end,
    case when i % 7 > 0 then random() * 10 ^ (i % 30) end, case when i % 8 > 0 then 'v' || i end,
    case when i % 6 > 0 then random() * 10 ^ (i % 300 - 150) end,
    case when i % 8 > 1 then date '2000-01-01' + i % 40000 - 20000 end, case when i % 8 > 2 then 'c' || i % 1000 end,
    case when i % 8 > 3 then time '00:00' + random() * interval '86399 s' end,
    case when i % 5 > 0 then (random() * 1e9)::numeric * 10 ^ (i % 15) / 1e5 end,
    case when i % 8 > 4 then timestamp '1900-01-01' + random() * interval '200 years' end,
    case when i % 8 > 5 then md5(i::text)::uuid end,
    case when i % 8 > 0 then timestamptz '1900-01-01' + random() * interval '200 years' end,
    case when i % 8 > 1 then decode(md5(i::text), 'hex') end, case when i % 4 > 0 then (random() * 99999000)::int8 - 5000 end,
    case when i % 4 > 1 then round(random()::numeric * 0.998, 3) end, case when i % 3 > 0 then point(i, i) end,
    case when i % 3 > 1 then array[i, i + 1] end, (enum_range(null::mood))[i % 4], case when i % 7 > 0 then i * 0.125 end,
    case when i % 5 > 0 then json_build_object('a', i) end, case when i % 6 > 0 then jsonb_build_array(i, null, 'x') end,
    case when i % 4 > 0 then i * interval '1 hour 3 us' - interval '1 month' end, case when i % 3 > 0 then timetz '12:00+02' end,
    i, 'name' || i, case when i % 2 > 0 then 'x' end, case when i % 3 > 0 then inet '10.0.0.1' + i end,
    array['sad', 'so so']::mood[], int4range(i, i + 5), i % 30000
    from generate_series(1, 20000) i;
create table extremes (i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, d date, ti time, ts timestamp, tz timestamptz,
    n1 numeric(38, 0), n2 numeric(38, 38), n3 numeric(1, 0), t text, by bytea);
insert into extremes values
    (-32768, -2147483648, -9223372036854775808, '-infinity', '-infinity', '4714-11-24 BC', '00:00', '4714-11-24 00:00:00 BC',
     '4714-11-24 00:00:00 BC', -('9' || repeat('9', 37))::numeric, -('0.' || repeat('9', 38))::numeric, -9, '', ''),
    (32767, 2147483647, 9223372036854775807, 'infinity', 'infinity', '5874897-12-31', '23:59:59.999999',
     '294246-12-31 23:59:59.999999', '294246-12-31 23:59:59.999999', ('9' || repeat('9', 37))::numeric,
     ('0.' || repeat('9', 38))::numeric, 9, repeat('x', 126), repeat('y', 126)::bytea),
    (0, 0, 0, 'nan', 'nan', '1970-01-01', '12:00', 'epoch', 'epoch', 0, 0, 0, repeat('x', 127), repeat('y', 127)::bytea),
    (1, 1, 1, '-0', '-0', '2000-01-01', '00:00:00.000001', '2000-01-01', '2000-01-01', 1, 1e-38, 1, 'ÄÖÜ€😀', '\x00ff00'),
    (null, null, null, 1e-45, 5e-324, '1999-12-31', null, '1999-12-31 23:59:59.999999', null, 10000, 0.0001, null, null, null);
-- Short, long, compressed in the row, and in the TOAST table.
create table texts (id int4, t text, by bytea);
alter table texts alter by set storage external;
insert into texts select i, case i % 6 when 0 then '' when 1 then 'short' when 2 then null when 3 then repeat('abc ' || i, 300 + i)
        when 4 then (select string_agg(md5((i * j)::text), '') from generate_series(1, 200) j) else repeat('ü', 1 + i % 3000) end,
    case i % 3 when 0 then null when 1 then repeat('z' || i, 2000)::bytea else '\x00' end from generate_series(1, 3000) i;
create table altered (a int4, gone int8, t text);
insert into altered select i, i, 't' || i from generate_series(1, 3000) i;
alter table altered drop gone;
alter table altered add added int4 not null default 42, add more text default 'more';
create table churned (id int4 primary key, t text, n int8) with (fillfactor = 60);
insert into churned select i, repeat('t', i % 50), i from generate_series(1, 20000) i;
update churned set n = n + 1 where id % 3 = 0;
delete from churned where id % 5 = 0;
update churned set t = t || 'longer', n = n * 2 where id % 7 = 0;
create table free_numeric (n numeric, huge numeric(60, 2));
insert into free_numeric select nullif(i % 5, 0) * 1234567.25 * (i % 3 - 1), i from generate_series(1, 999) i;
insert into free_numeric values (0.0125, 12345678901234567890.25), (-12345678.5, -1), (null, null);
create table not_a_number (n numeric(10, 2));
insert into not_a_number values (1), (2), ('nan'), (4);
-- Some parts' worth, with few distinct kinds.
create table facts (id int4 not null, kind text, amount int8);
insert into facts select i, 'kind ' || i % 9, i from generate_series(1, 1200000) i;
analyze facts;
create table parted (at date not null, n int4) partition by range (at);
create table parted_2 partition of parted for values from ('2001-01-01') to ('2002-01-01');
create table parted_1 partition of parted for values from ('2000-01-01') to ('2001-01-01') partition by hash (n);
create table parted_1_a partition of parted_1 for values with (modulus 2, remainder 0);
create table parted_1_b (n int4, at date not null);
alter table parted_1 attach partition parted_1_b for values with (modulus 2, remainder 1);
insert into parted select date '2000-01-01' + i % 700, i from generate_series(1, 30000) i;
create table parent (a int4, t text);
create table child (more int8) inherits (parent);
create table other (more text, t text, a int4);
alter table other inherit parent;
insert into parent select i, 'parent' from generate_series(1, 100) i;
insert into child select i, 'child' from generate_series(101, 200) i;
insert into other (a, t) select i, 'other' from generate_series(201, 300) i;
create view seen as select id, kind from facts where id <= 50 order by id;
create materialized view kept as select id, amount from facts where id <= 5000;
create table "Odd Name" ("a b" int4, "q""uote" text, "Ünï" int4);
insert into "Odd Name" values (1, 'x', 2), (3, null, 4);
create table empty (a int4, n numeric);
create table none ();
insert into none select from generate_series(1, 500);
create sequence counter;
create role nobody login;
create table secured (a int4);
insert into secured select i from generate_series(1, 9) i;
alter table secured enable row level security;
create policy only_few on secured to nobody using (a < 3);
grant select on secured to nobody;
create table accounts (id int4 primary key, balance int8 not null, filler text) with (fillfactor = 50);
insert into accounts select i, 1000, repeat('x', 400) from generate_series(0, 99999) i;
create function slowly(n int4) returns int4 language plpgsql as $$ begin perform pg_sleep(0.001); return n; end $$;
create view slow as select slowly(id) as id, amount from facts;
