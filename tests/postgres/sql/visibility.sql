-- Which rows a query sees: by transactions, by rights, and by what kind of relation it reads.
create table facts (id int4, k int4, amount int8, word text) with (autovacuum_enabled = off);
insert into facts select i, i % 10, i * 3, 'w' || i % 100 from generate_series(1, 20000) i;
create table dims (k int4, name text);
insert into dims select i, 'name ' || i from generate_series(0, 9) i;
\set look 'select count(*), sum(amount), min(id), max(id), count(distinct word) from facts;'
-- Never vacuumed, then vacuumed, then changed after it.
:look
vacuum (freeze, analyze) facts;
vacuum analyze dims;
:look
update facts set amount = amount + 1 where id % 1000 = 0;
:look
delete from facts where id between 500 and 700;
:look
insert into facts select i, i % 10, i, 'new' from generate_series(20001, 20100) i;
:look
vacuum facts;
:look
update facts set word = word || ' longer than before, so that it moves to another block' where id % 777 = 0;
select k, count(*), sum(amount), max(word) from facts group by k order by k;
-- One's own uncommitted changes, savepoints, aborts.
begin;
insert into facts values (30000, 3, 1000000, 'mine');
:look
delete from facts where k = 9;
:look
savepoint one;
update facts set amount = 0 where k = 1;
:look
savepoint two;
delete from facts;
:look
select name, count(id) from dims left join facts using (k) group by name order by name;
rollback to two;
:look
rollback to one;
:look
select name, count(*), sum(amount) from facts join dims using (k) group by name order by name;
rollback;
:look
begin;
truncate facts;
:look
insert into facts select i, 1, i, 'after' from generate_series(1, 50) i;
:look
rollback;
:look
begin;
alter table facts add extra int4 default 5;
select count(*), sum(extra) from facts;
alter table facts drop amount;
select count(*), sum(id), sum(extra) from facts;
rollback;
:look
begin;
delete from facts where id = 1;
insert into facts values (1, 1, 3, 'w1');
update facts set amount = amount where id = 2;
update facts set amount = amount where id = 2;
:look
commit;
:look
-- A statement does not see what it does itself.
insert into facts select id + 100000, k, amount, word from facts where id <= 100;
:look
with gone as (delete from facts where id > 100000 returning amount) select (select count(*) from facts), count(*), sum(amount) from gone;
:look
with changed as (update facts set amount = amount + 1 where k = 2 returning id) select count(*), (select sum(amount) from facts where k = 2) from changed;
select sum(amount) from facts where k = 2;
create table copied as select k, sum(amount) as total, count(*) from facts group by k;
select * from copied order by k;
update copied c set total = s.total from (select k, max(amount) as total from facts group by k) s where s.k = c.k;
select * from copied order by k;
delete from copied where k in (select k from facts where amount > 59990 group by k);
select * from copied order by k;
insert into copied select k, count(*), 0 from facts where id < 100 group by k on conflict do nothing;
select count(*), sum(total) from copied;
-- Row locks.
begin;
select count(*) from (select from facts where k = 3 for update) locked;
select count(*) from (select from facts where k = 4 for share) locked;
:look
commit;
:look
-- Cursors see the rows of when they were opened.
begin;
declare early cursor for select k, count(*), sum(amount) from facts group by k order by k;
declare late cursor for select id, amount from facts where k = 7 order by id;
declare scrolling scroll cursor for select k, sum(amount) from facts group by k order by k;
fetch 2 from early;
delete from facts where k > 4;
fetch 3 from early;
fetch 3 from late;
fetch all from early;
fetch 3 from scrolling;
fetch backward 2 from scrolling;
fetch last from scrolling;
fetch first from scrolling;
move 2 in scrolling;
fetch next from scrolling;
declare now cursor for select count(*), sum(amount) from facts;
fetch now;
close early;
rollback;
begin;
declare held cursor with hold for select k, sum(amount) from facts group by k order by k;
commit;
delete from facts where k = 0;
fetch all from held;
close held;
:look
begin;
declare doomed cursor for select id, 100 / (id - 5) from facts where id < 10 order by id;
savepoint one;
fetch 20 from doomed;
rollback to one;
:look
rollback;
begin;
declare c cursor for select id from facts where id < 10 order by id for update;
fetch 2 from c;
update facts set amount = -1 where current of c;
select amount from facts where id = 2;
rollback;
-- Samples: all rows, none, and the same ones for the same seed.
select count(*), sum(amount) from facts tablesample bernoulli (100);
select count(*), sum(amount) from facts tablesample system (0);
select count(*), sum(amount) from facts tablesample bernoulli (10) repeatable (1);
-- Temporary, unlogged, materialised.
create temp table temporary as select * from facts where id <= 3000;
select k, count(*), sum(amount) from temporary group by k order by k;
delete from temporary where k = 1;
select count(*), sum(t.amount) from temporary t join facts f using (id);
create unlogged table unlogged as select * from facts where id <= 3000;
vacuum unlogged;
select k, count(*), sum(amount) from unlogged group by k order by k;
update unlogged set amount = amount + 1 where id % 7 = 0;
delete from unlogged where id % 11 = 0;
select k, count(*), sum(amount) from unlogged group by k order by k;
vacuum unlogged;
select k, count(*), sum(amount) from unlogged group by k order by k;
create materialized view matters as select k, word, sum(amount) as total from facts group by k, word;
select count(*), sum(total) from matters where k <> 5;
delete from facts where word = 'w3';
select count(*), sum(total) from matters where k <> 5;
refresh materialized view matters;
select count(*), sum(total) from matters where k <> 5;
-- Partitions and children.
create table parts (id int4, k int4, amount int8) partition by range (id);
create table parts_low partition of parts for values from (minvalue) to (1000);
create table parts_mid (amount int8, extra_first text, id int4, k int4);
alter table parts_mid drop extra_first;
alter table parts attach partition parts_mid for values from (1000) to (2000);
create table parts_high partition of parts for values from (2000) to (maxvalue) partition by hash (k);
create table parts_high_0 partition of parts_high for values with (modulus 2, remainder 0);
create table parts_high_1 partition of parts_high for values with (modulus 2, remainder 1);
insert into parts select i, i % 10, i from generate_series(1, 4000) i;
vacuum analyze parts;
select count(*), sum(amount) from parts;
select tableoid::regclass, count(*), sum(amount) from parts group by 1 order by 1;
select k, count(*), sum(amount) from parts where id between 900 and 2100 group by k order by k;
select count(*), sum(amount) from parts where id = 1500;
select name, count(*), sum(p.amount) from parts p join dims using (k) where id > 500 group by name order by name;
update parts set id = id + 1000 where id between 950 and 999;
select tableoid::regclass, count(*), sum(amount) from parts group by 1 order by 1;
set enable_partitionwise_aggregate = on;
set enable_partitionwise_join = on;
select k, count(*), sum(amount) from parts group by k order by k;
reset enable_partitionwise_aggregate;
reset enable_partitionwise_join;
create table child (note text) inherits (facts);
insert into child select i, 5, 1, 'child', 'note' from generate_series(1, 100) i;
:look
select count(*), sum(amount) from only facts;
select count(*), sum(amount) from child where word = 'child';
drop table child;
-- Views.
create view small as select id, k, amount from facts where id <= 5000;
select k, count(*), sum(amount) from small where k > 5 group by k order by k;
create view totals as select k, sum(amount) as total from facts group by k;
select sum(total), count(*) from totals join dims using (k) where name <> 'name 3';
-- Rights: on tables, on columns, through views.
create table secrets (id int4, owner text, open int4, secret int4);
insert into secrets select i, case when i % 2 = 0 then 'regress_reader' else 'regress_other' end, i % 10, i from generate_series(1, 3000) i;
vacuum analyze secrets;
set role regress_reader;
select count(*) from secrets;
reset role;
grant select (id, open) on secrets to regress_reader;
set role regress_reader;
select count(*) from secrets;
select open, count(*) from secrets group by open order by open;
select sum(secret) from secrets;
select count(*) from secrets where secret > 10;
select open from secrets group by open having sum(secret) > 0;
select count(*) from secrets s join secrets t on s.id = t.secret;
select count(s) from secrets s;
reset role;
create view opened as select open, sum(secret) as total from secrets group by open;
grant select on opened to regress_reader;
set role regress_reader;
select sum(total), count(*) from opened;
select sum(open) from secrets;
reset role;
-- Row security.
grant select on secrets to regress_reader, regress_other;
create policy own on secrets using (owner = current_user);
alter table secrets enable row level security;
select count(*), sum(secret) from secrets;
prepare mine as select count(*), sum(secret) from secrets where open < 7;
execute mine;
set role regress_reader;
select count(*), sum(secret), min(owner), max(owner) from secrets;
execute mine;
select open, count(*) from secrets group by open order by open;
select sum(total) from opened;
set role regress_other;
select count(*), sum(secret), min(owner), max(owner) from secrets;
execute mine;
set row_security = off;
select count(*) from secrets;
reset row_security;
reset role;
alter table secrets disable row level security;
execute mine;
-- A function that tells what it sees must not see more than the view's rows.
create function tells(n int4) returns bool language plpgsql cost 0.0000001 as $$ begin
    if n % 2 = 1 then raise exception 'saw %', n; end if;
    return true;
end $$;
create view guarded with (security_barrier) as select * from secrets where owner = 'regress_reader';
select count(*), sum(secret) from guarded where tells(secret);
select count(*) from guarded where 1000 / (secret - 1001) < 10;
-- Functions that tell, and functions that change between calls.
create sequence counter;
select count(*), max(n) from (select nextval('counter') as n from facts where k = 3 limit 5) s;
select count(*) from facts where k = 3 and id <= (select 100);
select count(*) from facts where random() >= 0;
select count(*) > 0 from facts where now() > '2020-01-01' and clock_timestamp() > '2020-01-01';
create function noisy(n int4) returns int4 language plpgsql as $$ begin raise notice 'noisy %', n; return n; end $$;
select sum(noisy(id)) from facts where id in (11, 12);
-- Prepared statements: plans made for a value, and plans for every value.
prepare by_key (int4, text) as select count(*), sum(amount), min(word) from facts where k = $1 and word <> $2;
set plan_cache_mode = force_custom_plan;
execute by_key (1, 'w1');
execute by_key (null, 'w1');
set plan_cache_mode = force_generic_plan;
execute by_key (1, 'w1');
execute by_key (2, 'w12');
execute by_key (null, null);
delete from facts where k = 2 and id < 1000;
execute by_key (2, 'w12');
alter table facts add later int4 default 1;
execute by_key (2, 'w12');
create index facts_k on facts (k);
execute by_key (2, 'w12');
drop index facts_k;
truncate dims;
insert into dims select i, 'renamed ' || i from generate_series(0, 4) i;
prepare arithmetic (int4, numeric) as select k + $1, sum(amount * $2), count(*) filter (where id > $1) from facts group by k + $1 having count(*) > $1 order by 1;
execute arithmetic (1, 1.5);
execute arithmetic (2, null);
prepare limited (int4) as select id from facts where k = 3 order by id limit $1 offset $1;
execute limited (3);
execute limited (0);
prepare division (int4) as select sum(amount / $1) from facts;
execute division (7);
execute division (0);
execute division (7);
reset plan_cache_mode;
-- Functions with parameters.
create function total_of(wanted int4) returns numeric language sql stable as $$ select sum(amount) from facts where k = wanted $$;
create function total_of_text(wanted text) returns setof facts language sql stable as $$ select * from facts where word = wanted and id < 300 $$;
create function walk(lowest int4) returns text language plpgsql as $$
declare r record; found_rows int8 := 0; total numeric := 0;
begin
    for r in select k, sum(amount) as s from facts where id > lowest group by k order by k loop
        found_rows := found_rows + 1;
        total := total + r.s;
        if r.k = 1 then
            update facts set amount = amount + 1 where id = lowest + 1;
        end if;
    end loop;
    begin
        perform sum(1 / (id - id)) from facts where id > lowest;
    exception when division_by_zero then
        found_rows := found_rows + 1000;
    end;
    return found_rows || ' ' || total || ' ' || (select count(*) from facts where id > lowest);
end $$;
select total_of(3), total_of(null), total_of(4);
select k, total_of(k) from dims order by k;
select count(*), sum(id) from total_of_text('w7');
select walk(0);
select walk(15000);
select walk(15000);
do $$
declare n int8;
begin
    for i in 1..8 loop
        select count(*) into n from facts where k = i;
        raise notice 'k % has % rows', i, n;
    end loop;
end $$;
-- Rescans: laterals, correlated subqueries, loops.
select d.k, x.n, x.s from dims d, lateral (select count(*) as n, sum(amount) as s from facts f where f.k = d.k) x order by d.k;
select d.k, x.id, x.amount from dims d, lateral (select id, amount from facts f where f.k = d.k order by amount desc, id limit 2) x order by d.k, x.id;
select d.k, (select sum(amount) from facts f where f.k = d.k and f.id > d.k * 1000) from dims d order by d.k;
select d.k, (select max(word) from facts f where f.k = d.k having count(*) > 100) from dims d order by d.k;
select count(*) from facts f where id < 300 and amount > (select avg(amount) from facts g where g.k = f.k and g.id < 300);
select k from dims d where exists (select from facts f where f.k = d.k and f.id > 19990) order by k;
set enable_hashjoin = off;
set enable_mergejoin = off;
select d.name, sum(f.amount) from dims d join (select k, sum(amount) as amount from facts group by k) f using (k) group by d.name order by d.name;
select count(*) from dims d join facts f on f.k = d.k + 1 where f.id < 1000;
reset enable_hashjoin;
reset enable_mergejoin;
select i, (select count(*) from facts where id % 5 = i) from generate_series(0, 4) i order by i;
select id from facts where k = 3 order by id limit 3;
select * from (select id from facts where k = 3 order by id limit 3) a union all select * from (select k from dims order by k limit 2) b order by 1;
select exists (select from facts where k = 3), exists (select from facts where k = 333);
-- Settings that change what a text or a date means.
create table moments (tz timestamptz, f float8);
insert into moments select timestamptz '2024-03-30 22:00+00' + i * interval '1 hour', i / 16.0 from generate_series(1, 48) i;
vacuum analyze moments;
select date_trunc('day', tz) as day, count(*) from moments group by 1 order by 1;
select extract(hour from tz) as h, count(*) from moments group by 1 order by 1 limit 4;
set timezone = 'Europe/Berlin';
select date_trunc('day', tz) as day, count(*), sum(f) from moments group by 1 order by 1;
select extract(hour from tz) as h, count(*) from moments group by 1 order by 1 limit 4;
select tz::date as d, count(*) from moments group by 1 order by 1;
select count(*) from moments where tz < '2024-03-31';
set datestyle = 'German';
select min(tz), max(tz), min(tz)::text from moments;
reset timezone;
reset datestyle;
-- Blocks that were visible to everybody when they were written, and are again, but with other rows.
create table rewritten (id int4, v int4) with (fillfactor = 40);
insert into rewritten select i, 1 from generate_series(1, 20000) i;
vacuum analyze rewritten;
checkpoint;
select sum(v), count(*) from rewritten;
update rewritten set v = 100 where id % 3 = 0;
delete from rewritten where id % 7 = 0;
vacuum rewritten;
select sum(v), count(*) from rewritten;
checkpoint;
select sum(v), count(*) from rewritten;
begin isolation level serializable;
select sum(v), count(*) from rewritten;
commit;
