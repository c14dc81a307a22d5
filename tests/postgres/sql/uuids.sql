-- uuids: conditions, orders, keys, groups, choices, casts, rows.
create table things (id int4 not null, u uuid, w uuid not null, k int4, t text collate "C");
insert into things select i, case when i % 11 > 0 then md5((i % 70)::text)::uuid end, md5('w' || i)::uuid, i % 9, case when i % 5 > 0 then md5((i % 70)::text) end
    from generate_series(1, 5000) i;
insert into things values (5001, '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 1, 'low'),
    (5002, 'FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF', '{00000000000000000000000000000000}', 2, 'high'),
    (5003, '7fffffff-ffff-ffff-ffff-ffffffffffff', '80000000-0000-0000-0000-000000000000', 3, 'middle'),
    (5004, '09999999-9999-9999-9999-999999999999', '0a000000-0000-0000-0000-000000000000', 4, 'digits');
create table kinds (u uuid primary key, name text);
insert into kinds select md5(i::text)::uuid, 'kind ' || i from generate_series(0, 49) i;
insert into kinds values ('00000000-0000-0000-0000-000000000000', 'low');
vacuum analyze things, kinds;
-- Conditions.
select count(*), min(id), max(id) from things where u = 'c4ca4238-a0b9-2382-0dcc-509a6f75849b';
select count(*) from things where u <> 'c4ca4238-a0b9-2382-0dcc-509a6f75849b';
select count(*) from things where 'c4ca4238-a0b9-2382-0dcc-509a6f75849b' < u;
select count(*) filter (where u < '80000000-0000-0000-0000-000000000000') as lt, count(*) filter (where u <= '7fffffff-ffff-ffff-ffff-ffffffffffff') as le,
    count(*) filter (where u > '7fffffff-ffff-ffff-ffff-ffffffffffff') as gt, count(*) filter (where u >= '7fffffff-ffff-ffff-ffff-ffffffffffff') as ge,
    count(*) filter (where u < '00000000-0000-0000-0000-000000000000') as none, count(*) filter (where u <= 'ffffffff-ffff-ffff-ffff-ffffffffffff') as "all" from things;
select id from things where w between '09000000-0000-0000-0000-000000000000' and '0a000000-0000-0000-0000-000000000000' order by id;
select count(*) from things where u in ('c4ca4238-a0b9-2382-0dcc-509a6f75849b', 'C81E728D9D4C2F636F067F89CC14862C', null);
select count(*) from things where u not in ('c4ca4238-a0b9-2382-0dcc-509a6f75849b', 'c81e728d-9d4c-2f63-6f06-7f89cc14862c');
select count(*) from things where u = any (array['c4ca4238-a0b9-2382-0dcc-509a6f75849b', 'ffffffff-ffff-ffff-ffff-ffffffffffff']::uuid[]);
select count(*) from things where u < any (array['c4ca4238-a0b9-2382-0dcc-509a6f75849b', '00000000-0000-0000-0000-000000000000']::uuid[]);
select count(*) filter (where u is null), count(*) filter (where u is not null), count(u), count(w), count(distinct u), count(distinct w) from things;
select count(*) from things where u is distinct from 'c4ca4238-a0b9-2382-0dcc-509a6f75849b';
select count(*) from things where u is not distinct from null;
select count(*) from things where u = w;
select count(*), count(*) filter (where u < w) from things where (u < w or u > 'f0000000-0000-0000-0000-000000000000') and not u = w;
select count(*) from things where u = 'c4ca4238-a0b9-2382-0dcc-509a6f75849';
prepare by_u (uuid, uuid) as select count(*), sum(id) from things where u between $1 and $2 or w = $1;
execute by_u ('a0000000-0000-0000-0000-000000000000', 'd0000000-0000-0000-0000-000000000000');
set plan_cache_mode = force_generic_plan;
execute by_u ('a0000000-0000-0000-0000-000000000000', 'd0000000-0000-0000-0000-000000000000');
execute by_u (null, 'd0000000-0000-0000-0000-000000000000');
reset plan_cache_mode;
deallocate by_u;
-- Groups, distinct values, aggregates.
select u, count(*), sum(id) from things group by u order by u limit 7;
select u, k, count(*) from things where k < 3 group by u, k having count(*) > 9 order by u desc nulls last, k limit 7;
select coalesce(u, 'ffffffff-ffff-ffff-ffff-ffffffffffff') as v, count(*) from things group by 1 order by 1 desc limit 3;
select k, count(distinct u), count(distinct u) filter (where id > 2500), count(u) from things group by k order by k;
select count(*), md5(string_agg(u::text, ',' order by u)) from (select distinct u from things) s;
select count(*) from (select u, w from things group by u, w) s;
-- Choices.
select case when u < '80000000-0000-0000-0000-000000000000' then u else w end as v, count(*) from things where id > 4990 group by 1 order by 1;
select nullif(u, 'c4ca4238-a0b9-2382-0dcc-509a6f75849b') is null as gone, count(*) from things group by 1 order by 1;
select case u when 'c4ca4238-a0b9-2382-0dcc-509a6f75849b' then 'one' when 'c81e728d-9d4c-2f63-6f06-7f89cc14862c' then 'two' else 'more' end as word, count(*)
    from things group by 1 order by 1;
select greatest(u, w), least(u, w, '80000000-0000-0000-0000-000000000000'), count(*) from things where id > 4985 group by 1, 2 order by 1, 2;
-- Joins: by uuids on both sides, outer, semi and anti ones.
select name, count(*), min(id) from things join kinds using (u) group by name order by name limit 7;
select count(*), count(name) from things left join kinds using (u);
select count(*) from things t where exists (select from kinds where u = t.u and name > 'kind 3');
select count(*) from things t where not exists (select from kinds where u = t.u);
select count(*) from things where u in (select u from kinds where name like 'kind 4%');
select a.k, count(*) from things a join things b on a.w = b.w and a.u is not distinct from b.u group by a.k order by a.k;
select x.u, count(*) from things x join kinds y on x.u = y.u group by x.u order by x.u limit 4;
select min(t.id), k.u from things t left join kinds k on k.u = t.u and k.name < 'kind 2' group by k.u order by k.u nulls first limit 4;
-- Texts of uuids.
select count(*) from things where u::text like 'c4%';
select left(u::text, 2) as two, count(*) from things where u < '10000000-0000-0000-0000-000000000000' group by 1 order by 1;
select u::text, u::varchar as v, count(*) from things where k = 2 group by u::text, u::varchar order by 2 limit 3;
select count(*) from things where replace(u::text, '-', '') = t;
select upper(w::text) as w, length(u::text), 'u-' || u from things where id in (5001, 5002) order by 1;
select u::char(8) as c, count(*) from things where id > 5000 group by 1 order by 1;
select count(*) from things where id > 4000 and t = md5('1') and t::uuid = u;
select t::uuid from things where t = 'low';
-- Rows and the first of them.
select * from things where u < '05000000-0000-0000-0000-000000000000' order by id limit 6;
select id, u, w from things where id > 5000 order by id;
select u, id from things order by u, id limit 4;
select w from things order by w desc limit 3;
select u, id from things order by u desc nulls last, id limit 2 offset 1;
select name, w from things join kinds using (u) order by w limit 3;
select id, rank() over (order by w) from things where id > 4998 order by 2;
-- Columns that came with a value, blocks that are not all-visible, parts, children.
alter table things add late uuid default '12345678-9abc-def0-1234-56789abcdef0', add never uuid;
update things set late = null where id % 100 = 1;
update things set never = w where id % 100 = 2;
select late, count(*), count(never) from things group by late order by late;
select id, never from things where never is not null and late = '12345678-9abc-def0-1234-56789abcdef0' order by never limit 3;
create table parts (id int4, u uuid) partition by hash (u);
create table parts_0 partition of parts for values with (modulus 2, remainder 0);
create table parts_1 (u uuid, gone int4, id int4);
alter table parts_1 drop gone;
alter table parts attach partition parts_1 for values with (modulus 2, remainder 1);
insert into parts select id, u from things;
vacuum analyze parts;
select count(*), count(distinct u), sum(id) from parts where u > '40000000-0000-0000-0000-000000000000';
select count(*) from parts where u = 'c4ca4238-a0b9-2382-0dcc-509a6f75849b';
select u, count(*) from (select u from things union all select w from things union all select u from kinds) s group by u order by count(*) desc, u limit 3;
-- Beside values out of line, which the server reads.
create table long (id int4, u uuid, t text);
alter table long alter t set storage external;
insert into long select id, u, case when id % 3 = 0 then repeat(w::text, 90) else 'short' end from things where id % 20 = 1;
vacuum analyze long;
select u, count(*), sum(length(t)) from long group by u order by u limit 3;
select u, length(t) as l from long where u > 'f0000000-0000-0000-0000-000000000000' and length(t) > 9 order by id limit 3;
create domain own as uuid check (value <> '00000000-0000-0000-0000-000000000000');
create table owned (o own, u uuid);
insert into owned select u, u from things where id <= 5000;
vacuum analyze owned;
select count(o), count(distinct o), count(u) from owned where o > 'a0000000-0000-0000-0000-000000000000';
select o, count(*) from owned group by o order by o limit 2;
