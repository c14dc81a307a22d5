-- Numbers of which some show other digits behind the point than others: choices, and what is made of them.
create table orders (id int4, shop int4, prio int4, total numeric(12, 2), amount numeric(10, 2), rate numeric(6, 4), n int4);
insert into orders select i, i % 8, i % 3, case when i % 5 > 0 then i * 37 % 20001 / 100.0 - 50 end, case when i % 8 <> 6 then i % 977 * 1.25 end,
    i % 101 / 10000.0, case when i % 4 > 0 then i % 50 end from generate_series(1, 8000) i;
update orders set amount = null, total = 0 where shop = 7;
update orders set total = null where shop = 6;
vacuum analyze orders;

-- The same digits, of which there may be more before the point.
select shop, sum(coalesce(total, 0.00)), sum(case when prio = 1 then total else 0.00 end), avg(coalesce(total, -1.25)) from orders group by shop order by shop;
-- Others: a group of zeros alone shows 0.
select shop, sum(coalesce(amount, 0)), sum(case when prio = 1 then amount else 0 end), sum(case when prio = 1 then amount end), sum(coalesce(total, 0)) from orders group by shop order by shop;
select sum(coalesce(amount, 0)), sum(case when prio = 7 then amount else 0 end), sum(case when prio = 7 then amount else 0.000 end) from orders;
select shop, avg(coalesce(amount, 0)), avg(case when prio = 7 then amount else 0 end), avg(case prio when 1 then amount when 2 then rate else 1 end) from orders group by shop order by shop;
select shop, sum(case when prio = 0 then amount when prio = 1 then rate else n::numeric end) as s, count(case when prio = 0 then amount else 0 end) as c,
    count(distinct case when prio = 0 then amount else 0 end) as d from orders group by shop order by shop;
-- Nothing to sum, and rows that FILTER leaves.
select sum(coalesce(amount, 0)), avg(coalesce(amount, 0)), max(coalesce(amount, 0)) from orders where id < 0;
select shop, sum(coalesce(amount, 0)) filter (where prio = 2 and amount is null), avg(coalesce(total, 0)) filter (where total is null) from orders group by shop order by shop;
-- What is made of them.
select shop, sum(amount * coalesce(rate, 0)), sum(total * case when prio = 1 then 1 else 0.5 end), sum(-coalesce(total, 0)), sum(abs(coalesce(total, 0))) from orders group by shop order by shop;
select shop, sum(coalesce(total, 0) + coalesce(rate, 0)), sum(coalesce(total, 0) - case when prio = 1 then 0.5 else 0 end), sum(coalesce(total, 0) % 7) from orders group by shop order by shop;
select shop, sum(round(coalesce(total, 0), 1)), sum(trunc(coalesce(total, 0) * 1.5)), sum(ceil(coalesce(total, 0))), sum(coalesce(total, 0)::numeric(8, 3)), sum(rate::numeric(5, 2)) from orders group by shop order by shop;
select shop, sum(nullif(coalesce(total, 0), 0)), sum(greatest(total, 0)), sum(least(amount, 100, rate)), sum(coalesce(nullif(amount, 1.250), rate, 0)) from orders group by shop order by shop;
select shop, round(stddev(coalesce(total, 0)), 6), var_pop(coalesce(amount, 0)), variance(case when prio = 1 then n::numeric else 0.5 end), var_samp(case when prio = 7 then amount else 0 end) from orders group by shop order by shop;
select shop, max(coalesce(total, 0)::float8), sum(case when coalesce(total, 0) > 10 then 1 else 0 end) from orders group by shop order by shop;
-- Compared.
select count(*), min(id) from orders where coalesce(total, 0) > 100 or coalesce(amount, 0) = 0.000 or coalesce(total, 0) in (1, 2.5, -3.5);
select count(*) from orders where case when prio = 1 then total else 0 end is null;
select count(*) from orders where coalesce(amount, 0) is distinct from coalesce(total, 0.0);
-- Extremes, of which equal ones may show different digits.
select shop, max(coalesce(amount, 0)), min(case when prio = 1 then amount else 2000 end) from orders where shop < 6 group by shop order by shop;
select shop, max(case when prio = 7 then amount else 0 end), min(case when prio < 7 then total else 0 end) from orders group by shop order by shop;
select max(case when id = 3 then 7.50 when id = 4 then 7.5 else 0 end) = 7.5 from orders;
-- Groups, and distinct values that are summed, are shown as one of them.
select coalesce(amount, 0) = 0 as is_zero, count(*) from orders group by 1 order by 1;
select scale(coalesce(n::numeric, 0.5)) as s, count(*) from orders group by 1 order by 1;
select coalesce(n::numeric, 0.5) as v, count(*) from orders group by v order by v limit 5;
select sum(distinct coalesce(n::numeric, 0.5)) from orders;
-- Beyond 38 digits.
select sum(coalesce(amount::numeric(36, 2), rate * 1.00000000000000000000)) from orders;
select sum(case when shop = 1 then 123456789012345678901234567890.5 else rate end) from orders;
drop table orders;
