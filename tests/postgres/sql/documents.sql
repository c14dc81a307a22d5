-- jsonb: fields by constant keys, and documents that contain a constant.
create table events (id int4, payload jsonb, other jsonb not null, w text);
insert into events select i, jsonb_build_object('type', (array['open', 'close', 'buy', 'ü €'])[1 + i % 4], 'amount', i % 90 / 4.0, 'count', i % 11, 'ok', i % 3 = 0,
        'nothing', null, 'user', jsonb_build_object('name', 'n' || i % 13, 'age', i % 60), 'list', jsonb_build_array(1, 'two', i), 'a"b''c', 'quoted ' || i % 2),
    jsonb_build_object('k', i % 7), 'w' || i % 5 from generate_series(1, 5000) i;
insert into events values (5001, null, '{}'), (5002, '[]', '[1, "k"]'), (5003, '"type"', '5'), (5004, 'null', 'true'), (5005, '{}', '{"k": null}'),
    (5006, '{"type": null, "count": 1e3, "amount": -0.50, "": "empty key"}', '{"k": "3"}'), (5007, '["type"]', '{"k": 3.0}'),
    (5008, '{"type": 5, "count": "7", "user": {"name": null}, "amount": 0.000000000000000000000000000000000000001}', '{"k": 3.00, "z": false}'),
    (5009, '{"type": {"x": 1}, "user": [{"name": "n1"}], "count": 12345678901234567890123456789012345678901234567890.5}', '{"k": [3]}'),
    (5010, '{"type": true, "user": "name"}', '{"k": {"k": 3}}');
-- Wide documents, compressed ones, and those that lie elsewhere.
create table wide (id int4, payload jsonb);
insert into wide select i, (select jsonb_object_agg('key ' || k, case when k % 3 = 0 then to_jsonb(repeat('v', i % 20) || k) when k % 3 = 1 then to_jsonb(k * 1.5 + i) else 'null' end)
    from generate_series(1, 150) k where i = i) || jsonb_build_object('id', i % 10) from generate_series(1, 600) i;
insert into wide select 1000 + i, jsonb_build_object('id', i % 10, 'key 3', (select string_agg(md5((i * 1000 + k)::text), '') from generate_series(1, 200) k)) from generate_series(1, 40) i;
vacuum analyze events, wide;
-- Filters and groups.
select count(*) from events where payload->>'type' = 'buy';
select payload->>'type' as t, count(*), sum(id), count(payload->>'type') from events group by 1 order by t nulls last;
select payload->'user'->>'name' as name, count(*), max(id) from events group by 1 order by count(*) desc, name limit 5;
select payload->>'amount' as amount, count(*) from events where payload->>'amount' like '1_.%' or payload->>'amount' like '%.5%' group by 1 order by 1 limit 12;
select payload->>'count', payload->>'ok', count(*) from events where payload->>'count' in ('1', '7', '1000') group by 1, 2 order by 1, 2;
select count(*) filter (where payload->>'nothing' is null), count(*) filter (where payload->>'ok' = 'true'), count(payload->>'missing'), count(payload), count(payload->>'') from events;
select payload->>'a"b''c' as q, count(*) from events group by 1 order by 1;
select payload->>'amount', payload->>'count' from events where id > 5000 order by id;
select payload->>'amount' as a, payload->>'count' as c, count(*) from events where id > 5000 group by 1, 2 order by 1, 2;
select id, payload->>'type' from events where id > 5004 and payload->'user'->>'name' is null order by id;
select other->>'k' as k, count(*) from events where id < 5009 group by 1 order by 1;
select count(distinct payload->>'type'), count(distinct payload->'user'->>'age'), max(length(payload->>'type')) from events where id <> 5009;
select upper(payload->>'type') || '!' as t, count(*) from events where id < 5000 group by 1 order by 1 limit 3;
-- Fields that are objects or arrays are the server's to show.
select payload->>'user' as u, count(*) from events where id > 4990 group by 1 order by 1;
select id, payload->>'list', payload->>'type' from events where id > 4998 order by id;
-- Containing.
select count(*), sum(id) from events where payload @> '{"type": "buy"}';
select count(*), min(id) from events where payload @> '{"ok": true, "count": 5}' and not payload @> '{"type": "open"}';
select id from events where other @> '{"k": 3}' and id > 5000 order by id;
select id from events where other @> '{"k": "3"}' or other @> '{"k": null}' order by id;
select id from events where '{"z": false, "k": 3.000}' <@ other order by id;
select count(*) from events where payload @> '{}';
select count(*), count(*) filter (where payload @> '{"amount": 2.50}'), count(*) filter (where payload @> '{"amount": "2.5"}') from events;
select payload @> '{"type": "open"}' as opens, count(*) from events group by 1 order by 1;
select count(*) from events where payload @> '{"user": {"name": "n1"}}';
select count(*) from events where payload @> '["type"]';
select count(*) from events where payload ? 'type';
-- Wide ones.
select payload->>'id' as id, count(*), count(payload->>'key 100'), max(length(payload->>'key 3')), count(payload->>'key 2') from wide group by 1 order by 1;
select count(*), count(distinct payload->>'key 148'), count(distinct payload->>'key 150') from wide where payload @> '{"id": 4}';
select id, payload->>'key 1', payload->>'key 99', payload->>'key 150' from wide where payload->>'key 4' = '66.0' order by id;
-- Joins.
create table kinds (name text, info jsonb);
insert into kinds values ('open', '{"cost": 1.50, "group": "a"}'), ('close', '{"cost": 2, "group": "b"}'), ('buy', '{"group": "a"}'), ('none', null);
vacuum analyze kinds;
select info->>'group' as g, count(*), sum(id) from events join kinds on name = payload->>'type' group by 1 order by 1;
select info->>'cost' as c, count(*), count(info->>'group') from events left join kinds on name = payload->>'type' and info @> '{"group": "a"}' group by 1 order by 1;
select count(*) from events where exists (select from kinds where name = payload->>'type' and info->>'group' = 'a');
-- Parts, and a column that is younger than its rows.
create table parts (id int4, w text, payload jsonb) partition by range (id);
create table parts_1 partition of parts for values from (0) to (500);
create table parts_2 (payload jsonb, id int4, w text);
alter table parts attach partition parts_2 for values from (500) to (2000);
insert into parts select i, 'w', jsonb_build_object('k', i % 4, 't', 'text ' || i % 3) from generate_series(1, 1000) i;
alter table parts add late jsonb default '{"k": "late", "n": 1.0}';
vacuum analyze parts_1, parts_2;
select payload->>'t' as t, late->>'k' as l, late->>'n' as n, count(*) from parts where payload @> '{"k": 2}' and late @> '{"n": 1}' group by 1, 2, 3 order by 1;
select count(*) from (select payload from parts_1 union all select other from events) s where payload->>'k' = '3';
-- Casts of fields, where nothing else can be meant.
create table sales (id int4, doc jsonb);
insert into sales select i, jsonb_build_object('amount', (i % 977 / 8.0)::numeric(12, 3), 'price', (i % 50)::text || '.' || i % 4, 'n', i % 1000 - 500, 'f', i / 16.0::float8, 'ok', i % 3 = 0,
        'yes', case when i % 2 = 0 then 'true' else 'false' end, 'big', 3000000000 + i, 'o', jsonb_build_object('n', (i % 7)::text)) || case when i % 10 = 0 then '{"amount": null, "n": null}' else '{}' end::jsonb
    from generate_series(1, 4000) i;
insert into sales values (4001, null), (4002, '[]'), (4003, '{"amount": 5, "price": "-0.50", "n": "-7", "f": 1e3, "ok": "true"}'), (4004, '{"amount": -0.0000000001, "price": 100}');
vacuum analyze sales;
select doc->>'ok' as ok, sum((doc->>'amount')::numeric), avg((doc->>'amount')::numeric), max((doc->>'amount')::numeric), min((doc->>'price')::numeric), count((doc->>'amount')::numeric) from sales group by 1 order by 1;
select sum((doc->>'price')::numeric), sum((doc->>'price')::numeric * 2), sum((doc->>'price')::numeric(10, 1)), sum((doc->>'amount')::numeric * (doc->>'n')::int) from sales;
select (doc->>'n')::int % 10 as n, count(*), sum((doc->>'n')::int), sum((doc->>'big')::bigint), avg((doc->>'n')::int2) from sales group by 1 order by 1;
select (doc->>'ok')::bool as ok, count(*), bool_or((doc->>'yes')::bool), max((doc->>'f')::float8), sum((doc->>'f')::float8) from sales group by 1 order by 1;
select count(*), min(id) from sales where (doc->>'amount')::numeric > 100.5 and (doc->'o'->>'n')::int in (1, 2, 3) and (doc->>'ok')::bool;
select (doc->>'price')::numeric as p, count(*) from sales where id < 300 group by 1 order by 1 limit 5;
select sum((doc->>'big')::int) from sales;
-- What is not what it is cast to is PostgreSQL's to take, or to refuse.
insert into sales values (4005, '{"amount": 0.123456789012345, "n": " 12 ", "ok": "yes", "f": "NaN", "price": "1e3"}');
select sum((doc->>'amount')::numeric), sum((doc->>'price')::numeric) from sales;
select sum((doc->>'n')::int), count((doc->>'ok')::bool), max((doc->>'f')::float8) from sales;
insert into sales values (4006, '{"n": 1.5, "ok": "maybe"}');
select sum((doc->>'n')::int) from sales;
select sum((doc->>'n')::int) from sales where id < 4000;
select count(*) from sales where (doc->>'ok')::bool;
drop table sales;
-- Other ways to ask are PostgreSQL's.
select payload #>> '{user,name}' as n, count(*) from events where id < 50 group by 1 order by 1 limit 3;
select payload->'list'->>1, payload->>w, count(*) from events where id < 50 group by 1, 2 order by 1, 2;
prepare by_key (text) as select count(*) from events where payload->>$1 = 'buy';
execute by_key ('type');
set plan_cache_mode = force_generic_plan;
execute by_key ('type');
reset plan_cache_mode;
deallocate by_key;
drop table events, wide, kinds, parts;
