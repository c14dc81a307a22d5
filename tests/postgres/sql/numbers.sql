-- Numbers that declare no digits: statistics say what may be taken for granted, and what is otherwise is PostgreSQL's.
create table items (id int4, shop int4, price numeric, quantity numeric, rate numeric, code numeric, empty numeric, note text);
insert into items select i, i % 7, (i * 37 % 20001 / 100.0 - 50)::numeric(12, 2), case when i % 5 > 0 then trim_scale((i % 40) / 8.0) end,
    1.0 / (1 + i % 9), i % 50, null, case when i % 3 = 0 then 'x' end from generate_series(1, 9000) i;
insert into items values (9001, null, null, null, null, null, null, null), (9002, 3, 0.00, 0, null, 0, null, 'z');
create table codes (code numeric primary key, factor numeric, name text);
insert into codes select i, trim_scale(i / 4.0), 'code ' || i from generate_series(0, 45) i;
vacuum analyze items, codes;
-- All show as many: sums, means, extremes, deviations, groups, distinct values.
select shop, sum(price), avg(price), min(price), max(price), count(price) from items group by shop order by shop;
select shop, sum(code), avg(code), min(code), max(code), stddev(price), var_pop(code) from items group by shop order by shop;
select code, count(*), sum(price) from items group by code order by code limit 6;
select count(distinct price), sum(distinct code), count(distinct quantity) from items;
select sum(price * 2), sum(price + 0.5), sum(-price), sum(abs(price)), sum(price * price), sum(price % 7), sum(sign(price)) from items;
select sum(coalesce(price, 0)), sum(case when shop = 1 then price else 0 end), sum(nullif(price, 0)), sum(greatest(price, 0)), max(least(price, code)) from items;
select sum(round(price, 1)), sum(trunc(price)), sum(ceil(price)), sum(price::numeric(10, 4)), max(price::float8) from items;
select count(*) from items where price > 20.5 and code in (1, 2, 3.0) or price = 7;
select id, price, code from items where price between 100 and 100.5 order by id;
select id, price, code from items order by price desc nulls last, id limit 4;
select price > 50 as much, count(*) from items group by 1 order by 1;
-- They differ: what is shown is what was written.
select shop, sum(quantity), avg(quantity), min(quantity), max(quantity), count(quantity) from items group by shop order by shop;
select shop, sum(rate), avg(rate), max(rate), min(rate) from items group by shop order by shop;
select sum(quantity) filter (where quantity in (1, 2, 3)), sum(quantity) filter (where quantity = 1.5), sum(quantity) filter (where quantity > 100) from items;
select shop, sum(quantity * price), sum(quantity + code), sum(-quantity), sum(abs(quantity) * 2), sum(quantity % 2) from items group by shop order by shop;
select shop, sum(coalesce(quantity, 0)), sum(case when note is null then quantity else price end), sum(round(quantity, 1)), sum(trunc(quantity)) from items group by shop order by shop;
select shop, round(stddev(quantity), 8), var_samp(quantity), variance(rate * 2) from items group by shop order by shop;
select quantity, count(*), max(id) from items group by quantity order by quantity;
select quantity, shop, sum(price) from items where quantity < 1 group by quantity, shop order by quantity, shop limit 5;
select id, quantity, rate from items where quantity between 1.2 and 1.3 order by id limit 5;
select id, quantity from items order by quantity desc nulls last, id limit 4;
select distinct quantity from items where quantity > 4.5 order by quantity;
select quantity is null, count(*), count(quantity) from items group by 1 order by 1;
select sum(empty), count(empty), max(empty) from items;
-- Joins: by such numbers, and of them.
select name, sum(price), sum(quantity * factor), max(factor), min(factor) from items join codes using (code) group by name order by name limit 5;
select factor, count(*), sum(factor), sum(price) from items join codes using (code) group by factor order by factor limit 5;
select count(*), count(name), sum(factor), avg(factor) from items left join codes on items.code = codes.code;
select shop, sum(factor), sum(coalesce(factor, 0.125)) from items left join codes on items.code = codes.code and codes.factor > 3 group by shop order by shop;
select count(*), sum(price) from items i where exists (select from codes c where c.code = i.code and c.factor < 5);
select count(*), sum(quantity) from items i where not exists (select from codes c where c.code = i.code);
select i.id, i.quantity, c.factor from items i join codes c using (code) where i.id < 12 order by i.id;
insert into codes values (46, 0.5000000, 'code 46'), (47, 1.25, 'code 47'), (48, 'nan', 'code 48');
select sum(factor), min(factor) from items join codes using (code) where code = 46;
select sum(factor), min(factor), max(factor) from items join codes using (code) where code = 47;
select sum(factor) from items join codes using (code) where code > 40;
select code, sum(price) from items join codes using (code) where code > 44 group by code order by code;
-- Domains, partitions, and members of a UNION ALL.
create domain amount as numeric check (value > -1000);
create domain cents as numeric(10, 2);
create table accounts (id int4, a amount, c cents) partition by range (id);
create table accounts_1 partition of accounts for values from (0) to (3000);
create table accounts_2 (c cents, id int4, a amount);
alter table accounts attach partition accounts_2 for values from (3000) to (10000);
insert into accounts select i, (i % 90) / 4.0, i / 8.0 from generate_series(1, 6000) i;
vacuum analyze accounts_1, accounts_2;
select sum(a), sum(c), min(a), max(c), sum(a * 2), sum(c + 0.125), avg(c * c) from accounts;
select a, count(*) from accounts where a < 2 group by a order by a;
select sum(v), max(v), count(*) from (select price as v from items union all select quantity from items union all select c::numeric from accounts_2) s;
select sum(v), min(v), count(*) from (select price as v, shop from items union all select code, shop from items union all select quantity, id from items) s where shop < 5;
-- A value that statistics have not seen leaves the answer to PostgreSQL's own plan: more digits, and what is no decimal.
create table few (id int4, v numeric, w numeric) with (autovacuum_enabled = off);
insert into few select i, i * 0.25, case when i % 2 = 0 then 0.5 else 1.25 end from generate_series(1, 3000) i;
vacuum analyze few;
select sum(v), max(v), sum(w), min(w) from few;
insert into few values (4001, 1.5, 1.5);
select sum(v), max(v) from few;
-- The session remembers it.
set headrace.fallback = forbid;
select sum(v), max(v), min(v) from few;
reset headrace.fallback;
select sum(w), max(w) from few;
update few set w = 0.500 where id = 10;
select w, count(*) from few group by w order by w;
update few set w = 0.50000000 where id = 10;
select sum(w), min(w), max(w) from few;
select w, count(*) from few group by w order by w;
select sum(w), min(w), max(w) from few where id <> 10;
insert into few values (4002, 1.123456789, 1.123456789);
select sum(v), max(v), sum(w), max(w) from few;
delete from few where id > 4000;
insert into few values (4003, 123456789012345678901234567890, 'nan');
select sum(v), count(v), sum(w), max(w), count(w) from few;
vacuum analyze few;
select sum(v), count(v), sum(w), max(w), count(w) from few;
-- Values that lie elsewhere, and those of a column that is younger than its rows.
create table long (id int4, v numeric, t text);
alter table long alter v set storage external, alter t set storage external;
insert into long select i, i % 100 + 0.25, repeat('x', 4000) from generate_series(1, 400) i;
create type mood as enum ('sad', 'ok', 'happy');
alter table long add w numeric default 2.5, add x numeric default 7.50, add m mood default 'ok', add c cents default 1.25;
insert into long select i, i % 100 + 0.50, 'y', i / 8.0, 1.25, 'happy', 2.5 from generate_series(401, 800) i;
vacuum analyze long;
select sum(v), sum(w), sum(x), min(w), max(x), sum(length(t)) from long;
select w, count(*) from long group by w order by w limit 3;
set headrace.fallback = forbid;
select m, sum(c), sum(length(t)), sum(v), max(w) from long group by m order by m;
reset headrace.fallback;
-- What is known at execution only.
prepare by_price (numeric) as select count(*), sum(price) from items where price > $1;
execute by_price (20.5);
deallocate by_price;
drop table items, codes, accounts, few, long;
