-- NaN and infinities among floats, and sums that overflow.
create table readings (id int4, sensor int4, x float8, y float4);
insert into readings select i, i % 7, i % 101 / 8.0, i % 53 / 4.0 from generate_series(1, 7000) i;
update readings set x = 'nan', y = 'nan' where id in (100, 200);
update readings set x = 'infinity', y = 'infinity' where id = 303;
update readings set x = '-infinity', y = '-infinity' where id in (404, 505, 506);
update readings set x = 'infinity' where id = 513;
update readings set x = null, y = null where sensor = 6;
vacuum analyze readings;
select sensor, count(x), sum(x), avg(x), avg(y), min(x), max(x) from readings group by sensor order by sensor;
select sum(x), avg(x), avg(y) from readings;
select sum(x), avg(x), avg(y) from readings where id < 100;
select sum(x) filter (where id <> 303), avg(x) filter (where sensor = 2), sum(distinct x), avg(distinct y) from readings where sensor < 3;
select sensor, sum(x * 2 - y), avg(abs(y)) from readings where x < 'infinity' group by sensor order by sensor;
select sum(x), avg(x) from readings where sensor = 6;
-- An overflow is an error.
select sum(case when id % 2 = 0 then 1.5e308 else x end) from readings where id < 100;
select sensor, sum(case when id in (10, 17) then 1.5e308 else 0 end) from readings group by sensor order by sensor;
drop table readings;
