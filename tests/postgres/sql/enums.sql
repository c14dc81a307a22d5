-- Enums and domains.
create type state as enum ('new', 'paid', 'sent', 'back');
create domain cents as numeric(10, 2) check (value >= 0);
create domain code as text collate "C";
create domain day as date;
create domain mood as state;
create domain tag as char(4);
create table orders (id int4, state state, mood mood, total cents, code code, day day, tag tag, shop int4);
insert into orders select i, case when i % 9 > 0 then (enum_range(null::state))[1 + i % 4] end, (enum_range(null::state))[1 + i * 7 % 3],
    case when i % 5 > 0 then i % 977 / 4.0 end, 'c' || i % 20, date '2024-01-01' + i % 60, 't' || i % 3, i % 6 from generate_series(1, 9000) i;
-- Labels that were added later, and between others.
alter type state add value 'lost' before 'paid';
insert into orders select i, 'lost', 'lost', 1, 'c1', '2024-03-03', 't', 1 from generate_series(9001, 9100) i;
create table states (state state primary key, name text);
insert into states values ('new', 'New'), ('paid', 'Paid'), ('sent', 'Sent'), ('lost', 'Lost');
vacuum analyze orders, states;

select state, count(*), sum(total), avg(total) from orders group by state order by state;
select mood, state, count(*), max(total) from orders group by mood, state order by mood, state;
select count(*), count(state), count(distinct state), sum(total) from orders where state = 'paid';
select count(*) from orders where state in ('paid', 'lost') and mood <> 'new';
select count(*) from orders where state is distinct from 'paid' and mood is not null;
select count(*) filter (where state = 'sent') as sent, sum(case when state = 'back' then total else 0 end) as back, sum(case state when 'new' then 1 when 'lost' then 2 else 0 end) as n from orders;
select coalesce(state, 'back') as s, nullif(mood, 'paid'::state) as m, count(*) from orders group by 1, 2 order by 1, 2;
select case when id % 2 = 0 then state else 'lost' end as s, count(*) from orders group by 1 order by 1;
-- Their order is that of the labels.
select count(*) from orders where state > 'paid';
select min(state), max(state), min(mood) from orders;
select greatest(state, 'paid') as s, count(*) from orders group by 1 order by 1;
select id, state from orders where total > 240 order by state desc nulls last, id limit 5;
select state::text as s, count(*) from orders group by 1 order by 1;
-- Rows, and joins.
select id, state, mood, total, code, day, tag from orders where code = 'c7' and shop = 1 order by id limit 5;
select name, count(*), sum(total) from orders join states using (state) group by name order by name;
select state, count(*) from orders where exists (select from states where states.state = orders.state) group by state order by state;
select o.state, s.state, count(*) from orders o left join states s on s.state = o.state and s.name <> 'Paid' group by 1, 2 order by 1, 2;
-- Domains.
select code, day, count(*), sum(total * 2), min(total), max(day) from orders where total >= 100 and day >= '2024-02-25' and code < 'c3' group by code, day order by code, day;
select date_trunc('month', day)::date as m, count(*), sum(total::numeric) from orders group by 1 order by 1;
select length(code) as l, upper(code) as u, count(*) from orders group by 1, 2 order by 1, 2 limit 5;
select tag, count(*) from orders group by tag order by tag;
select count(*) from orders where tag = 't1';
select sum((total + 1)::cents), sum(coalesce(total, 0)) from orders where shop = 2;
prepare by_state (state) as select count(*), sum(total) from orders where state = $1;
set plan_cache_mode = force_generic_plan;
execute by_state ('paid');
execute by_state ('lost');
execute by_state (null);
drop table orders, states;
drop type state cascade;
