-- Partitioned tables, and tables with children: one answer over all parts, wherever their columns and files are.
create table facts (id int8, k int4, day date, amount numeric(10, 2), word text, note varchar(10)) partition by range (day);
create table facts_2022 partition of facts for values from ('2022-01-01') to ('2023-01-01');
-- Columns in another order, behind one that was dropped, and a column more recent than half of the rows.
create table facts_2023 (word text, gone int4, amount numeric(10, 2), day date not null, k int4, id int8);
insert into facts_2023 select 'w' || i % 7, i, i / 8.0, date '2023-01-01' + i % 365, i % 12, i from generate_series(1, 3000) i;
alter table facts_2023 drop gone;
alter table facts_2023 add note varchar(10) default 'older';
alter table facts attach partition facts_2023 for values from ('2023-01-01') to ('2024-01-01');
-- Partitions of partitions.
create table facts_2024 partition of facts for values from ('2024-01-01') to ('2025-01-01') partition by list (k);
create table facts_2024_low partition of facts_2024 for values in (0, 1, 2, 3);
create table facts_2024_high partition of facts_2024 for values in (4, 5, 6, 7, 8, 9) partition by hash (id);
create table facts_2024_high_0 partition of facts_2024_high for values with (modulus 3, remainder 0);
create table facts_2024_high_1 (note varchar(10), word text, id int8, day date, k int4, amount numeric(10, 2));
alter table facts_2024_high attach partition facts_2024_high_1 for values with (modulus 3, remainder 1);
create table facts_2024_high_2 partition of facts_2024_high for values with (modulus 3, remainder 2);
create table facts_2024_rest partition of facts_2024 default;
create table facts_rest partition of facts default;
insert into facts select i, i % 14, date '2022-01-01' + i % 1200, (i % 9973) / 100.0, case when i % 5 > 0 then 'word ' || i % 11 end, 'n' || i % 3
    from generate_series(1, 20000) i;
insert into facts values (0, null, null, null, null, null), (-1, 3, '2031-05-05', 7.25, 'far', 'off');
create table dims (k int4 primary key, name text);
insert into dims select i, 'name ' || i from generate_series(0, 9) i;
\set look 'select count(*), sum(amount), min(id), max(day), count(word), max(note collate "C") from facts;'
:look
vacuum (freeze, analyze) facts;
vacuum analyze dims;
:look
select k, count(*), sum(amount), avg(amount), min(day) from facts group by k order by k;
select note, count(*) from facts group by note order by note;
select count(*), sum(id) from facts where word = 'word 3' and amount > 50;
-- Parts that PostgreSQL rules out while planning: all but one, some, all.
select count(*), sum(amount) from facts where day >= '2023-02-01' and day < '2023-03-01';
select count(*), sum(amount) from facts where day >= '2023-11-01' and day < '2024-03-01' and k < 3;
select count(*), sum(amount) from facts where day >= '2024-01-01' and day < '2025-01-01' and k = 5 and id = 7000;
select count(*), sum(amount) from facts where day is null;
select count(*), sum(amount) from facts where day > '2023-01-01' and day < '2022-01-01';
select k, count(*) from facts where day > '2023-01-01' and day < '2022-01-01' group by k;
-- A part, and a partitioned part, alone.
select count(*), sum(amount) from facts_2023;
select k, count(*) from facts_2024_high group by k order by k;
-- What is volatile is computed of rows in their order.
create sequence turns;
select turn, id from (select id, day, nextval('turns') as turn from facts where k = 5 order by id desc, day) s limit 3;
-- Parts that are ruled out only when parameters are known, and plans that are used again.
prepare by_day (date, int4) as select count(*), sum(amount), max(word collate "C") from facts where day >= $1 and day < $1 + $2;
execute by_day ('2022-06-01', 90);
set plan_cache_mode = force_generic_plan;
execute by_day ('2022-06-01', 90);
execute by_day ('2024-06-01', 900);
execute by_day ('2044-06-01', 9);
create table facts_2044 partition of facts for values from ('2044-01-01') to ('2045-01-01');
insert into facts values (99999, 1, '2044-06-03', 5.5, 'future', 'n');
execute by_day ('2044-06-01', 9);
alter table facts detach partition facts_2044;
execute by_day ('2044-06-01', 9);
create view words as select day, word as w, amount from facts;
prepare by_word (text) as select count(*), sum(amount) from words where w = $1;
execute by_word ('word 3');
alter table facts rename word to text;
execute by_word ('word 3');
alter table facts rename text to word;
reset plan_cache_mode;
deallocate by_day;
deallocate by_word;
drop view words;
-- Joins: with the parts streamed, and with the parts looked up.
select name, count(*), sum(amount) from facts join dims using (k) group by name order by name;
select name, count(*) from facts left join dims using (k) group by name order by name;
select count(*), sum(amount) from facts f where exists (select from dims d where d.k = f.k and d.name > 'name 4');
select count(*), sum(amount) from facts f where not exists (select from dims d where d.k = f.k and d.name > 'name 4');
select count(*), sum(f.amount) from facts f join facts_2024 g on f.id = g.id and f.k = g.k where g.amount > 99;
select count(*), sum(f.amount - g.amount) from facts f join facts g on f.id = g.id + 1 where g.day < '2022-03-01';
set enable_partitionwise_aggregate = on;
set enable_partitionwise_join = on;
select k, count(*), sum(amount) from facts group by k order by k;
select day, count(*) from facts where day between '2023-12-25' and '2024-01-05' group by day order by day;
select count(*) from facts f join facts g using (day, id) where f.amount = g.amount;
reset enable_partitionwise_aggregate;
reset enable_partitionwise_join;
-- Some blocks changed, in some parts; rows that move from one to another.
update facts set amount = amount + 1 where id % 500 = 3;
:look
update facts set day = day + 365 where id % 1000 = 7;
:look
delete from facts_2022 where id % 3 = 0;
:look
vacuum facts_2022;
:look
begin;
truncate facts_2023;
:look
insert into facts select i, 2, '2023-04-04', i, 'mine', 'n' from generate_series(1, 40) i;
select k, count(*), sum(amount) from facts where day < '2024-01-01' group by k order by k;
rollback;
:look
begin;
alter table facts add extra int4 default 5;
select count(*), sum(extra), sum(extra + k) from facts;
alter table facts drop amount;
select note, count(*), sum(extra), sum(id) from facts group by note order by note;
rollback;
:look
-- Children of a table that has rows itself, with columns of their own.
create table logs (at int4, what text, size int8);
create table logs_old (reason text, kept bool) inherits (logs);
create table logs_new (size int8, what text, at int4);
alter table logs_new inherit logs;
create table logs_newer () inherits (logs_new, logs_old);
insert into logs select i, 'a' || i % 4, i from generate_series(1, 2000) i;
insert into logs_old select i, 'b' || i % 4, i, 'because', true from generate_series(1, 3000) i;
insert into logs_new select i, 'c' || i % 4, i from generate_series(1, 1000) i;
insert into logs_newer (at, what, size) select i, 'd' || i % 4, i from generate_series(1, 500) i;
vacuum analyze logs, logs_old, logs_new, logs_newer;
select count(*), sum(size), max(at) from logs;
select what, count(*), sum(size) from logs group by what order by what;
select count(*), sum(size), max(at) from only logs;
select count(*), sum(size), max(at) from logs_new;
select reason, count(*) from logs_old group by reason order by reason;
alter table logs_newer no inherit logs_old;
alter table logs_newer no inherit logs_new;
drop table logs_newer;
drop table logs_new, logs_old;
-- A table that had children once.
select count(*), sum(size), max(at) from logs;
-- Which part a row is of is not known to a pipeline.
select tableoid::regclass, count(*) from facts group by 1 order by 1;
-- Rights are those on the whole, and so is row security.
grant select on facts to regress_reader;
revoke all on facts_2023 from regress_reader;
set role regress_reader;
:look
select count(*) from facts_2023;
reset role;
revoke select on facts from regress_reader;
set role regress_reader;
:look
reset role;
grant select on facts to regress_reader;
create policy larger on facts for select to regress_reader using (k > 3);
create policy nothing on facts_2023 for select to regress_reader using (false);
alter table facts_2023 enable row level security;
set role regress_reader;
select count(*), sum(amount) from facts;
reset role;
create table extra as select i as a from generate_series(1, 40000) i;
grant select on extra to regress_reader;
alter table facts enable row level security;
set role regress_reader;
select count(*), sum(amount) from facts;
select count(*) from (select k as a from facts union all select a from extra) u;
reset role;
drop table extra;
-- Parts that are no plain tables.
create unlogged table facts_2032 partition of facts for values from ('2032-01-01') to ('2033-01-01');
insert into facts values (5, 5, '2032-02-02', 5, 'five', 'n');
:look
-- Many parts, most of them empty.
create table many (id int4, k int4) partition by hash (id);
do $$ begin
    for part in 0..99 loop
        execute format('create table many_%s partition of many for values with (modulus 100, remainder %s)', part, part);
    end loop;
end $$;
insert into many select i % 30, i from generate_series(1, 20000) i;
select count(*), sum(k), count(k) filter (where id = 7) from many;
vacuum analyze many;
select count(*), sum(k), count(k) filter (where id = 7) from many;
select id, count(*) from many group by id order by id;
-- Unions of tables: one stream over all of them.
select k, count(*) from (select k, amount from facts_2022 union all select k, amount from facts_2023) u group by k order by k;
create table newer (what text, number int8, amount numeric(10, 2), part int4, free numeric, small int2);
alter table newer drop what, add word varchar(9) default 'newer';
insert into newer (number, amount, part, free) select i, i / 4.0, i % 16, i from generate_series(1, 2500) i;
vacuum analyze newer;
select k, count(*), sum(amount), max(id), min(w collate "C") from
    (select id, k, amount, word as w from facts_2023 union all select number, part, amount, word from newer union all select id, k, amount, note from facts_2024) u group by k order by k;
select count(*), sum(id) from (select id, k from facts union all select number, part from newer) u where k = 5 and id > 100;
select count(*), sum(id), sum(twice) from (select id, id as twice from facts_2023 union all select number, part from newer) u;
select count(*), sum(one), sum(two) from (select id, k from facts_2023 union all select number, d.k from newer, dims d where d.k = number) u (one, two);
select count(*), sum(a) from (select amount as a from facts_2023 union all select free from newer) u;
select count(*), sum(a) from (select id as a from facts_2023 union all select number + 1 from newer) u;
select count(*), sum(a) from (select id as a from facts_2023 union all select small from newer) u;
select count(*), sum(a), sum(c) from (select id as a, 1 as c from facts_2023 union all select number, 2 from newer) u;
select count(*), sum(a) from (select id as a from facts_2023 where k < 5 union all select number from newer where part < 5) u;
select count(*) from (select k from facts_2023 union all select shop from (values (1), (2)) v (shop) union all select part from newer) u where k = 1;
select d.name, count(*), sum(u.amount) from (select k, amount from facts_2023 union all select part, amount from newer) u join dims d using (k) group by d.name order by d.name;
select count(*), sum(f.amount) from facts f join (select number, part from newer union all select id, k from facts_2022 where false) u on u.number = f.id and u.part = f.k;
select count(*) from facts f where exists (select from (select part from newer where number < 4 union all select k from dims where k = 9) u where u.part = f.k);
select id, k from facts_2023 where k = 3 and id < 50 union all select number, part from newer where part = 3 and number < 50 order by 1, 2;
select * from (select id, k from facts_2023 union all select number, part from newer) u where k = 3 and id < 50 order by 1, 2;
select id, k from facts_2023 union all select number, part from newer order by 2 desc, 1 limit 4;
select count(*) from (select id from facts_2023 union all select number from newer limit 99) u;
update newer set amount = amount + 1 where number % 50 = 3;
delete from facts_2023 where id % 60 = 4;
select count(*), sum(amount), max(w) from (select amount, word as w from facts_2023 union all select amount, word from newer) u;
create view both_of as select id, k, word from facts_2023 union all select number, part, word from newer;
grant select on both_of to regress_reader;
set role regress_reader;
select count(*), max(id) from both_of;
reset role;
alter table newer enable row level security;
create policy own on newer for select to regress_reader using (part > 3);
grant select on newer, facts_2023 to regress_reader;
set role regress_reader;
select count(*), max(a) from (select k as a from facts_2023 union all select part from newer) u;
reset role;
-- Rescans, with parameters and without.
select d.k, (select count(*) from facts f where f.k = d.k and f.day < '2023-01-01') from dims d order by d.k;
select d.k, (select sum(amount) from facts) from dims d order by d.k;
