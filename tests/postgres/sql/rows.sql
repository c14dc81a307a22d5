-- Rows of one table that a pipeline filters, whatever PostgreSQL does with them.
create table facts (id int4, k int4, amount numeric(10, 2), f float8, g float4, word text, code char(5), name varchar(9), day date, at timestamp,
    tz timestamptz, clock time, u uuid, flag bool, small int2, big int8);
insert into facts select i, case when i % 11 > 0 then i % 40 end, (i % 9973) / 100.0, case i % 500 when 1 then 'nan' when 2 then '-infinity' when 3 then '-0' else i / 8.0 end,
    i / 4.0, case when i % 7 > 0 then 'word ' || i % 90 end, 'c' || i % 50, 'n' || i % 30, date '2020-01-01' + i % 900, timestamp '2020-01-01' + i * interval '7 min',
    timestamptz '2020-01-01 00:00+00' + i * interval '9 min', time '00:00' + i * interval '1 s', md5(i::text)::uuid, i % 3 = 0, i % 100, i * 1000000007::int8
    from generate_series(1, 20000) i;
create table dims (k int4, name text);
insert into dims select i, 'dim ' || i from generate_series(0, 39) i;
vacuum analyze facts, dims;
select * from facts where id % 2500 = 17 order by id;
select id, f, g from facts where id between 498 and 504 order by id;
select id, word, code, name from facts where code = 'c7' and word like 'word 1%' order by id limit 9;
select id + 1 as next, upper(word), amount * 2 from facts where amount > 99.9 order by 1;
select id from facts where k is null and flag and small = 33 order by id desc limit 5;
select count(*) from (select from facts where id > 19990 offset 0) s;
select 1 from facts where id < 4;
select word, count(distinct k), string_agg(name, ',' order by id) from facts where id % 600 = 1 group by word order by word;
select id, rank() over (partition by k order by amount desc, id) from facts where day = '2021-03-04' order by id limit 12;
select distinct on (k) k, id, at, tz from facts where clock between '01:00' and '01:05' order by k, at, id;
-- The first rows, with rows that tie, and NULL at either end.
select word, id from facts where small < 3 order by word nulls first, id limit 5;
select k, id from facts where small < 3 order by k desc nulls last, id desc limit 5 offset 3;
select k from facts where small < 3 order by k fetch first 3 rows with ties;
-- Of many rows the first: NaN is the largest, and there is one zero.
select id, f from facts order by f desc nulls last, id limit 5;
select id, f from facts order by f nulls first, id desc limit 45 offset 38;
select id, amount, word from facts where flag order by amount desc, id limit 6;
select id, word from facts order by word collate "C" desc nulls last, id limit 5 offset 2;
select id, k from facts order by k nulls first, -id limit 3;
select id from facts order by id % 7 desc, tz desc limit 3;
select id, name from facts order by name, id limit 4;
select code, id from facts order by code desc, id limit 4;
select small, count(*) from (select small from facts order by small, id limit 250) s group by small order by small;
select small from facts order by small desc limit 5;
select f.id, d.name from facts f join dims d using (k) order by d.name collate "C" desc, f.id limit 5;
select f.id, d.name from facts f left join dims d on d.k = f.k and d.k > 30 order by d.k desc nulls first, f.id limit 5 offset 2;
select f.id, f.k from facts f where exists (select from dims d where d.k = f.k and d.k < 3) order by f.k desc, f.id limit 4;
select id, rank() over (order by id) from (select id from facts order by id desc limit 3) s order by id;
select distinct small from facts order by small limit 3;
select generate_series(1, 2), id from facts where id < 3 order by 2, 1 limit 3;
select count(*) from (select id from facts order by random() limit 5) s;
select count(*) from (select id from facts order by id limit (random() * 0)::int4 + 3) s;
select id from facts order by id limit (select 2 + count(*) from dims where k = 3);
select d.k, (select f.id from facts f where f.small = 5 order by f.id desc limit 1 offset d.k) from dims d where d.k < 3 order by 1;
select d.k, s.n from dims d, lateral (select count(*) as n from (select id from facts order by id limit d.k) t) s where d.k < 3 order by 1;
-- A bound of an earlier run does not outlive it.
select d.k, s.n from dims d, lateral (select count(*) as n from (select id from facts order by id desc limit case d.k when 1 then 4 when 3 then 2 end) t) s
    where d.k < 4 order by 1;
select id from facts where id > 19990 order by id limit all offset 7;
select id from facts where id > 19990 order by id limit null;
-- Any rows will do.
select count(*) from (select id from facts where small = 7 limit 13) s;
select count(*), count(distinct id) from (select id from facts limit 7000 offset 15000) s;
select count(*) from (select 1 from facts where small < 4 limit 750) s;
select count(*) from (select f.id from facts f join dims d using (k) where d.k < 5 limit 99) s;
select count(*) from (select id from facts order by 'one'::text limit 8) s;
-- As many as parameters say.
prepare first_of (int8, int8) as select count(*), sum(id), max(f) from (select id, f from facts where flag order by f desc nulls last, id limit $1 offset $2) s;
prepare any_of (int8) as select count(*) from (select id from facts where flag limit $1) s;
execute first_of (3, 2);
set plan_cache_mode = force_generic_plan;
execute first_of (3, 2);
execute first_of (null, 2);
execute first_of (5, null);
execute first_of (0, 0);
execute first_of (-1, 0);
execute first_of (1, -1);
execute any_of (77);
execute any_of (null);
execute any_of (-1);
reset plan_cache_mode;
deallocate first_of;
deallocate any_of;
-- Joins above it, and rows of outer sides.
select f.id, d.name from facts f join dims d using (k) where f.id % 3000 = 5 order by f.id;
select f.id, d.name from facts f left join dims d on d.k = f.k and d.name > 'dim 3' where f.id < 15 order by f.id;
select d.k, f.id from dims d left join facts f on f.k = d.k and f.id < 60 where d.k < 5 order by d.k, f.id;
select d.k from dims d where not exists (select from facts f where f.k = d.k and f.id < 30) order by d.k;
select a.id, b.id from facts a, facts b where a.id = b.id * 2 and a.id % 4000 = 2 and b.flag order by 1, 2;
select d.k, s.id from dims d, lateral (select f.id from facts f where f.k = d.k and f.id < 90 order by f.id limit 2) s order by d.k, s.id limit 9;
select k, (select min(id) from facts f where f.k = d.k and f.id > 100 and word is not null) from dims d order by k limit 5;
select id from facts where id < 9 union all select k from dims where k > 36 union all select id from facts where id > 19997 order by 1;
with few as materialized (select * from facts where id % 5000 = 1) select a.id, b.amount from few a join few b on a.id = b.id + 5000 order by a.id;
-- Joins of all tables, given as rows.
create table more (k int4, id int4, note text);
insert into more select i % 30, i * 3, 'note ' || i % 5 from generate_series(1, 600) i;
vacuum analyze more;
select f.id, d.name, m.note from facts f join dims d using (k) join more m on m.id = f.id where d.name like 'dim 1%' and f.amount > 1 order by f.id limit 12;
select count(distinct d.name), count(distinct f.word) from facts f join dims d using (k) where d.k % 7 = 1 and f.small < 9;
select f.id, d.name, m.note from facts f left join dims d on d.k = f.k and d.k < 20 left join more m on m.id = f.id and m.k < 9 where f.id % 300 = 21 order by f.id limit 12;
select f.id, m.note, d.name from facts f left join (more m join dims d on d.k = m.k) on m.id = f.id and d.k <> f.small where f.id between 55 and 70 order by 1, 2, 3;
select m.id, f.word from more m left join facts f on f.id = m.id and f.flag where m.k = 3 order by m.id;
select f.id from facts f join dims d using (k) where exists (select from more m where m.id = f.id and m.k > d.k) order by f.id limit 9;
select f.id, f.f from facts f join more m on m.id = f.id where not exists (select from dims d where d.k = f.k) and f.id < 600 order by f.id;
select f.id, coalesce(d.name, 'none') || m.note from facts f full join dims d on d.k = f.id join more m on m.id = f.id where m.id < 40 order by 1;
select f.id, row_number() over (order by f.id), m.note from facts f, more m, dims d where f.id = m.id and d.k = m.k and (d.k = 3 or f.flag) order by f.id limit 7;
insert into more select d.k, f.id, d.name from facts f join dims d using (k) where f.id > 19980;
select * from more where id > 19980 order by id;
update more m set note = f.word from facts f, dims d where f.id = m.id and d.k = f.k and d.k = 7;
select count(*), max(note) from more where k = 7;
-- Cursors back and forth, and parameters.
begin;
declare c scroll cursor for select id, word from facts where id % 4000 = 3 order by id;
fetch 3 from c;
fetch backward 2 from c;
fetch all from c;
rollback;
begin;
declare c scroll cursor for select id from facts where id in (5, 6, 7);
fetch 2 from c;
fetch backward 1 from c;
fetch absolute 3 from c;
rollback;
prepare few_of (int4, text) as select id, word from facts where id < $1 and word > $2 collate "C" order by id;
execute few_of (12, 'word 3');
set plan_cache_mode = force_generic_plan;
execute few_of (12, 'word 3');
execute few_of (null, null);
reset plan_cache_mode;
-- What is written while it is read.
begin;
insert into facts (id, word) select id + 100000, word from facts where id % 5000 = 4;
select id, word from facts where id > 90000 order by id;
update facts set word = 'changed' where id in (select id from facts where id > 110000);
select id, word from facts where id > 90000 order by id;
delete from facts a using facts b where a.id = b.id + 100000 and b.id < 9999 returning a.id;
select id from facts where id = 5 for update;
select f.id from facts f join dims d using (k) where f.id < 4 order by f.id for share of d;
rollback;
select ctid is not null, tableoid::regclass, id from facts where id = 77;
select facts from facts where id = 77;
-- Values that a pipeline cannot hold, and errors that rows have.
insert into facts (id, day, at) values (-1, 'infinity', '-infinity'), (-2, '2020-02-02', null);
select id, day, at from facts where id < 0 order by id;
select id, day, at from facts where flag order by day desc nulls last, id desc limit 3;
select count(*) from (select id, at from facts where day is not null limit 19500) s;
select id from facts where day > '2022-06-17' and id % 9 = 4 order by id limit 4;
select 10 / (id - 3) from facts where id between 2 and 4;
select id from facts where 10 / (id - 3) > 1 and id between 2 and 4;
-- Partitions.
create table parts (id int4, k int4, word text) partition by range (id);
create table parts_0 partition of parts for values from (0) to (1000);
create table parts_1 (word text, k int4, id int4);
alter table parts attach partition parts_1 for values from (1000) to (3000);
insert into parts select i, i % 10, 'w' || i % 4 from generate_series(0, 2999) i;
vacuum analyze parts;
select * from parts where id % 700 = 8 order by id;
select id, word from parts where id > 2990 and k < 3 order by id;
select * from parts order by k desc, id limit 5;
select p.id, q.id from parts p join parts q on p.id = q.id + 1000 where q.id % 900 = 1 order by 1;
