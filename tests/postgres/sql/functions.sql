-- Functions and operators of moments, texts and numbers: what they are at their edges, and where they are
-- PostgreSQL's own plan's.
create table moments (id int4, d date, ts timestamp, tz timestamptz, n int4);
insert into moments
    select i, date '1990-01-01' + i * 37 % 20000, timestamp '1985-03-01 00:00' + i * interval '5 days 3:17:11.123457', timestamptz '2018-01-01 00:00+00' + i * interval '7:29:59.75', i % 50 - 25
    from generate_series(1, 3000) i;
insert into moments values
    (4001, '0044-03-15 BC', '0044-03-15 12:34:56.789 BC', '0044-03-15 12:34:56.789+00 BC', 0), (4002, '0001-01-01', '0001-01-01', '0001-01-01+00', 1),
    (4003, '0001-12-31 BC', '0001-12-31 23:59:59.999999 BC', '0001-12-31 23:59:59.999999+00 BC', -1), (4004, '2000-12-31', '2000-12-31', '2000-12-31+00', 2),
    (4005, '2001-01-01', '2001-01-01', '2001-01-01+00', 3), (4006, '1900-12-31', '1900-12-31', '1900-12-31+00', 4), (4007, null, null, null, null),
    (4008, '2024-02-29', '2024-02-29 23:59:59.999999', '2024-02-29 23:59:59.999999+00', 5), (4009, '0101-01-01 BC', '0101-01-01 BC', '0101-01-01+00 BC', 6),
    (4010, '2400-02-29', '2400-02-29', '2400-02-29+00', 7), (4011, '1899-01-01', '1899-01-01', '1899-01-01 00:00+00', 8);
vacuum analyze moments;
select id, extract(century from d), extract(millennium from d), extract(decade from d), extract(week from d), extract(isoyear from d), extract(epoch from d) from moments where id > 4000 order by id;
select id, extract(second from ts), extract(milliseconds from ts), extract(microseconds from ts), extract(epoch from ts), extract(century from ts), extract(isoyear from ts), extract(week from ts) from moments where id > 4000 order by id;
select id, date_part('second', ts), date_part('milliseconds', ts), date_part('microseconds', ts), date_part('epoch', ts), date_part('decade', d), date_part('week', d) from moments where id > 4000 order by id;
select sum(extract(second from ts)), sum(extract(milliseconds from ts)), sum(extract(microseconds from ts)), sum(extract(epoch from ts)), sum(extract(epoch from d)) from moments;
select extract(decade from d), count(*), min(extract(week from d)), max(extract(doy from d)) from moments group by 1 order by 1;
select extract(hour from d) from moments;
select extract(julian from d) from moments where id = 4002;

-- Time zones: whatever the session's is when a statement is run.
set time zone 'Europe/Vienna';
select extract(hour from tz), count(*), min(tz), max(tz) from moments where id < 4000 group by 1 order by 1;
select date_trunc('month', tz), count(*) from moments where id < 4000 group by 1 order by 1 limit 5;
select id, date_trunc('day', tz), date_trunc('hour', tz), date_trunc('year', tz), tz::date, tz::timestamp from moments where id > 4000 order by id;
select id, extract(year from tz), extract(second from tz), extract(epoch from tz), date_part('dow', tz) from moments where id > 4000 order by id;
select count(*), count(*) filter (where tz < date '2019-03-31'), count(*) filter (where tz >= timestamp '2019-03-31 02:30'), count(*) filter (where d::timestamptz < tz), count(*) filter (where ts > tz) from moments;
select id, ts::timestamptz, d::timestamptz from moments where id > 4000 order by id;
prepare by_hour as select extract(hour from tz), count(*) from moments where id < 4000 group by 1 order by 1 limit 3;
set plan_cache_mode = force_generic_plan;
execute by_hour;
set time zone 'America/New_York';
execute by_hour;
set time zone 'Asia/Kolkata';
execute by_hour;
set time zone '<+02>-2:30';
execute by_hour;
set time zone interval '-03:30' hour to minute;
execute by_hour;
begin;
set local time zone 'Pacific/Apia';
execute by_hour;
rollback;
execute by_hour;
reset plan_cache_mode;
create function hours_there() returns setof bigint language sql set timezone = 'Asia/Tokyo' as 'select count(*) from moments where id < 4000 and extract(hour from tz) < 2';
select hours_there();
set time zone 'Australia/Lord_Howe';
select date_trunc('hour', tz), date_trunc('minute', tz), count(*) from moments where id < 30 group by 1, 2 order by 1, 2 limit 8;
-- Local times that are skipped, or come twice.
create table clocks (id int4, tz timestamptz, ts timestamp);
insert into clocks select i, timestamptz '2021-03-28 00:00+00' + i * interval '10 min', timestamp '2021-03-28 00:00' + i * interval '10 min' from generate_series(0, 30) i;
insert into clocks select 100 + i, timestamptz '2021-10-31 00:00+00' + i * interval '10 min', timestamp '2021-10-31 00:00' + i * interval '10 min' from generate_series(0, 30) i;
insert into clocks select 200 + i, timestamptz '2011-12-29 20:00-10' + i * interval '3 h', timestamp '2011-12-29 12:00' + i * interval '3 h' from generate_series(0, 20) i;
insert into clocks select 300 + i, timestamptz '2014-10-25 20:00+00' + i * interval '20 min', timestamp '2014-10-26 00:00' + i * interval '20 min' from generate_series(0, 20) i;
vacuum analyze clocks;
set time zone 'Europe/Vienna';
select id, tz::timestamp, ts::timestamptz, date_trunc('hour', tz), tz + interval '1 day', tz - interval '1 month 1 hour' from clocks order by id;
set time zone 'Pacific/Apia';
select id, tz::timestamp, ts::timestamptz, date_trunc('day', tz), tz + interval '1 day', tz - interval '1 month' from clocks where id >= 200 order by id;
set time zone 'Europe/Moscow';
select id, tz::timestamp, ts::timestamptz, date_trunc('day', tz), tz::date from clocks where id >= 300 order by id;
set time zone 'Europe/Dublin';
select sum(extract(epoch from ts::timestamptz)), sum(extract(hour from tz)), sum(extract(epoch from date_trunc('week', tz))) from clocks;
-- Zones by name.
select (tz at time zone 'Europe/Vienna')::date, count(*) from clocks group by 1 order by 1;
select sum(extract(hour from tz at time zone 'UTC')), sum(extract(epoch from ts at time zone 'Asia/Tokyo')), min(date_trunc('day', tz, 'America/Caracas')) from clocks;
select sum(extract(hour from tz at time zone 'CET')) from clocks;
select sum(extract(hour from tz at time zone 'No/Where')) from clocks;
reset time zone;
set time zone 'UTC';

-- Moments and intervals.
select id, d + n, d - n, n + d, d - date '2000-01-01', d + interval '1 month', d - interval '1 year 2 mons 3 days 04:05:06.7' from moments where id > 4000 order by id;
select id, ts + interval '1 month', ts - interval '1 mon -1 day', ts + interval '-100 years', ts - interval '0.000001 s' from moments where id > 4000 order by id;
select count(*), sum(d - date '1990-01-01'), sum(d - (d - n)) from moments where d >= date '1994-01-01' + n and d < '1994-01-01'::date + interval '1 year';
select id from moments where ts + interval '29 days' < timestamp '1985-05-01' order by id limit 5;
select date_trunc('month', ts + interval '1 month') - interval '1 day', count(*) from moments where id < 300 group by 1 order by 1 limit 5;
prepare later (interval, int) as select count(*), min(ts + $1), max(d - $1), min(d + $2) from moments where id < 4000 and ts - $1 < '2000-01-01';
execute later ('1 mon', 3);
execute later ('1 year 2 days -00:00:01', -3);
execute later (null, null);
set plan_cache_mode = force_generic_plan;
execute later ('1 mon', 3);
execute later ('-178000000 years', 3);
reset plan_cache_mode;
select d + 2147483647 from moments where id = 4002;
select count(*) from moments where d + 2140000000 > '2000-01-01';
select count(*) from moments where d - 2000000 > '2000-01-01';
select ts - interval '5000 years' from moments where id = 4001;
select ts + interval '178956970 years' from moments where id = 4002;
select count(*) from moments where ts - interval '10000 years' < '2000-01-01';
-- A parameter that is a key, too.
prepare keyed (timestamptz, int) as select date_trunc('year', $1), $2 + 1, n % ($2 + 1), count(*) from moments where n > 0 group by 1, 2, 3 order by 3;
set plan_cache_mode = force_generic_plan;
execute keyed ('2020-05-06', 2);
reset plan_cache_mode;
-- Beyond what is known of the calendar.
create table far (id int4, d date, ts timestamp, tz timestamptz);
insert into far values (1, '5874897-12-31', '294276-12-31 23:59:59.999999', '294276-12-31 23:59:59.999999+00'), (2, '262142-12-31', '262142-12-31', '262142-12-31+00'), (3, '4714-11-24 BC', '4714-11-24 BC', '4714-11-24+00 BC'), (4, '2000-01-01', '2000-01-01', '2000-01-01+00');
vacuum analyze far;
select id, extract(year from d), extract(doy from d) from far order by id;
select id, extract(year from ts), extract(dow from ts) from far where id > 1 order by id;
select id, extract(year from tz), extract(hour from tz) from far where id > 1 order by id;
select id, extract(year from tz), extract(hour from tz) from far where id = 4;
select id, d + 1 from far where id > 1 order by id;
select id, d - 1 from far order by id;

-- Texts.
create table words (id int4, t text, p text collate "C", v varchar(20), c char(8), n int4);
insert into words select i, (array['Apple', 'bANANA', 'cherry pie', '  date  ', 'x', '', 'Elderberry-Fig', 'a%b_c'])[1 + i % 8] || i % 7, (array['Apple', 'ÄPFEL', 'straße', 'abc'])[1 + i % 4],
    (array['Var', 'CHAR', 'xx yy'])[1 + i % 3], (array['ab', 'ab  ', 'ABCDEFGH', ''])[1 + i % 4], i % 12 - 4 from generate_series(1, 1000) i;
insert into words values (2001, null, null, null, null, null);
vacuum analyze words;
select lower(t), upper(v), count(*) from words group by 1, 2 order by 1, 2 limit 8;
select lower(p), upper(p), count(*) from words group by 1, 2 order by 1, 2;
select upper(p collate "C"), count(*) from words where lower(p) like '%a%' group by 1 order by 1;
select lower(p collate "default"), count(*) from words group by 1 order by 1;
select substr(t, 3), substring(t, n), substring(t from 2 for 3), substr(p, n, 4), count(*) from words group by 1, 2, 3, 4 order by 1, 2, 3, 4 limit 8;
select substr(t, 2, n) from words;
select count(*), min(substr(p, -2147483648, 2147483647)), max(substr(p, 2147483647)), max(substr(p, 2, 2147483647)) from words;
select left(t, n), right(t, n), count(*) from words group by 1, 2 order by 1, 2 limit 12;
select sum(length(left(p, -2))), sum(length(right(p, -2147483648))) between 0 and 10000, sum(octet_length(left(p, -2147483648))) from words;
select btrim(t), ltrim(t), rtrim(t, '0123456'), btrim(p, 'Äße'), count(*) from words group by 1, 2, 3, 4 order by 1, 2, 3, 4 limit 12;
select replace(t, 'a', 'AA'), replace(p, 'ß', 'ss'), replace(p, '', 'x'), count(*) from words group by 1, 2, 3 order by 1, 2, 3 limit 12;
select strpos(t, 'rr'), position('ß' in p), position('' in t), starts_with(t, 'b'), t ^@ 'App', count(*) from words group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5;
select reverse(p), reverse(t), count(*) from words group by 1, 2 order by 1, 2 limit 5;
select t || '-' || v, concat(t, null, '-', p), c || '|', c::text || '|', count(*) from words group by 1, 2, 3, 4 order by 1, 2, 3, 4 limit 8;
select length(c), octet_length(c), char_length(v), count(*) from words group by 1, 2, 3 order by 1, 2, 3;
select count(*), max(t || p collate "C"), min(upper(v) collate "C"), count(upper(t) || null) from words;
select count(*) from words where t ilike 'APPLE_';
select count(*) from words where t not ilike '%AN%' and c ilike 'AB%';
select count(*) from words where p ilike 'ä%';
select count(*) from words where t like '%x%%' escape 'x' or t like '%!_c%' escape '!';
select count(*) from words where lower(t) in ('apple0', 'x1') or substr(t, 1, 1) = 'b' or upper(v) > 'V' collate "C";
select a.id, b.id from words a join words b on lower(a.t) = lower(b.t) and a.id < b.id where a.id < 40 and b.id < 100 order by 1, 2 limit 4;
prepare cut (int, text) as select count(*), min(left(t, $1) collate "C"), max(replace(t, $2, '') collate "C") from words where right(t, $1) <> $2;
execute cut (2, 'a');
execute cut (-2, null);
select count(*) from words where repeat(t, 3) like 'xx%';

-- Numbers, and choices among values.
create table numbers (id int4, a numeric(12, 3), b numeric(10, 2), f float8, g float4, i int4, j int8, k int4, w numeric(38, 2));
insert into numbers select x, (x * 7919 % 20011 - 10000) / 1000.0, (x * 31 % 997 - 400) / 100.0, (x % 41 - 20) / 4.0, (x % 9 - 4) / 2.0, x % 13 - 6, nullif(x % 17, 3) - 8, nullif(x % 5, 2), x / 3.0 from generate_series(1, 2000) x;
insert into numbers values (3001, 999999999.999, -99999999.99, 'nan', 'nan', null, null, null, 999999999999999999999999999999999999.99), (3002, null, null, 'infinity', '-infinity', 0, 0, 0, -999999999999999999999999999999999999.99),
    (3003, 0.5, -0.5, -0.4, -0.5, 1, 1, 1, 0.5), (3004, -0.0005, 0.05, 4503599627370497.5, 2.5, 1, 2, 3, null);
vacuum analyze numbers;
select id, round(a), round(a, 1), round(a, 5), trunc(a), trunc(a, 2), trunc(a, 4), ceil(a), floor(a), sign(a), ceiling(b), mod(a, 0.7), a % 2 from numbers where id > 3000 order by id;
select id, round(f), trunc(f), ceil(f), floor(f), round(g), ceiling(g) from numbers where id > 3000 order by id;
select round(f), trunc(f), ceil(f), floor(f), count(*) from numbers where id < 3000 group by 1, 2, 3, 4 order by 1, 2, 3, 4;
select sum(round(a)), sum(round(a, 2)), sum(trunc(a, 1)), sum(ceil(a)), sum(floor(b)), sum(sign(a)), sum(mod(a, 0.7)), sum(a % 3.33) from numbers;
select ceil(w), floor(w), round(w, 1) from numbers where id = 3001;
select round(w, 20) from numbers where id = 3001;
select mod(a, b) from numbers where id < 500;
select id, greatest(i, j, k), least(i, j, k), greatest(f, g), least(f, 0), greatest(a, null), least(i, null) from numbers where id > 2990 order by id;
select greatest(i, k), least(j, i), count(*) from numbers group by 1, 2 order by 1, 2 limit 8;
select sum(greatest(i, j, k)), sum(least(a, 0.500)), max(greatest(date '2020-01-01' + i, '2020-01-03')), count(*) filter (where greatest(i, k) is distinct from least(i, k)) from numbers;
select count(greatest(t, v)), count(least(p, 'b' collate "C")), max(greatest(p, 'b' collate "C")) from words;
select nullif(greatest(i, 3), 3), count(*) from numbers group by 1 order by 1;
-- Places before the point.
select id, round(a, -1), trunc(a, -1), round(b, -2), trunc(-a, -2), round(a, -18) from numbers where id > 2990 order by id;
select round(b, -1) as r, count(*), sum(round(a, -2)), sum(trunc(a * 100, -3)) from numbers group by 1 order by 1 limit 8;
select round(w, -3), trunc(w, -1) from numbers where id = 3001;
select round(a, -19) from numbers where id = 3001;
-- Texts of moments by patterns that show the year and what follows.
select to_char(ts, 'YYYY-MM') as m, count(*), min(id) from moments where id < 4000 group by 1 order by 1 limit 6;
select to_char(tz, 'yyyy-mm-dd') as d, count(*) from moments where id < 4000 group by 1 order by 1 limit 6;
select to_char(d, 'DD.MM.YYYY') as d, to_char(ts, 'YYYY') as y, count(*) from moments where id between 100 and 200 group by 1, 2 order by 1, 2 limit 6;
select to_char(ts, 'YYYY-MM-DD HH24:MI:SS'), to_char(tz, 'YYYYMMDDHH24'), count(*) from moments where id > 4003 and id <> 4009 group by 1, 2 order by 1, 2;
select to_char(ts, 'YYYY') as y, count(*) from moments group by 1 having count(*) > 72 or to_char(ts, 'YYYY') < '0100' order by 1;
select to_char(d, 'YYYY-MM') as m, count(*) from moments where id > 4000 group by 1 order by 1;
select to_char(ts, 'YYYY-MM') || '!' as m, count(*) from moments where id < 20 group by 1 order by 1;
select to_char(ts, 'MM') as m, count(*) from moments group by 1 order by 1;
select to_char(ts, 'YYYY Mon') as m, count(*) from moments where id < 50 group by 1 order by 1;
set timezone = 'Europe/Berlin';
select to_char(tz, 'YYYY-MM-DD HH24') as h, count(*), min(id) from (select timestamptz '2024-10-27 00:00+00' + n * interval '10 min' as tz, id from moments where n between -9 and 24) s group by 1 order by 1 limit 8;
select to_char(tz, 'YYYY-MM-DD') as d, to_char(d, 'YYYY-MM-DD HH24') as h, count(*) from moments where id < 12 group by 1, 2 order by 1;
create table changing (tz timestamptz);
insert into changing select timestamptz '2024-10-26 22:00+00' + i * interval '10 min' from generate_series(0, 60) i;
vacuum analyze changing;
select to_char(tz, 'YYYY-MM-DD HH24') as h, count(*) from changing group by 1 order by 1;
reset timezone;
select to_char(tz, 'YYYY-MM-DD HH24') as h, count(*) from changing group by 1 order by 1;
drop table changing;
-- Ones among an integer's bits.
select sum(bit_count(n::bit(32))), sum(bit_count(id::int8::bit(64))), max(bit_count((-n)::bit(32))), sum(bit_count((-id::int8)::bit(64))) from moments;
select count(*) from moments where bit_count(n::bit(32)) > 29;
