-- Joins: stars, duplicates, keys that are NULL, a table with itself, outer, semi and anti joins.
create table sales (id int8, product int4, shop int4, day int4, amount numeric(10, 2), pieces int4, note text);
create table products (product int4 primary key, name text, class text, price numeric(8, 2));
create table shops (shop int4, city varchar(20), country char(2));
create table days (day int4, date date, month int4, year int4);
create table none (product int4, word text);
insert into sales select i, case when i % 13 > 0 then i * 31 % 220 end, case when i % 17 > 0 then i % 23 end, i % 400,
    (i % 9973) / 100.0, i % 9, case when i % 3 > 0 then 'note ' || i % 7 end from generate_series(1, 8000) i;
insert into products select i, 'product ' || i, 'class ' || i % 6, i * 1.25 from generate_series(0, 199) i;
-- Two shops of the same number, and one without a number.
insert into shops select i % 20, 'city ' || i % 8, (array['DE', 'FR', 'CH'])[1 + i % 3] from generate_series(0, 25) i;
insert into shops values (null, 'nowhere', 'XX');
insert into days select i, date '2020-01-01' + i, 1 + i / 31, 2020 + i / 366 from generate_series(0, 380) i;
vacuum analyze sales;
vacuum analyze products;
vacuum analyze shops;
vacuum analyze days;
vacuum analyze none;

select count(*), sum(amount) from sales join products using (product);
select count(*), sum(amount), sum(pieces * price) from sales s, products p where s.product = p.product and class = 'class 3';
select class, count(*), sum(amount), min(name), max(name) from sales join products using (product) group by class order by class;
-- Duplicates on the inner side multiply.
select count(*), sum(amount) from sales join shops using (shop);
select city, country, count(*), sum(pieces) from sales join shops using (shop) group by city, country order by city, country;
-- A star.
select year, class, country, count(*), sum(amount), sum(pieces * price)
    from sales join products using (product) join shops using (shop) join days using (day)
    where month between 2 and 5 and country in ('DE', 'FR') group by year, class, country order by year, class, country;
select count(*), sum(amount) from sales s, products p, shops h, days d where s.product = p.product and s.shop = h.shop and s.day = d.day
    and p.price > 100 and h.city <> 'city 1' and d.date < '2020-06-01' and (p.class = 'class 1' or h.country = 'CH');
-- A snowflake: the inner side is itself a join.
select name, count(*) from sales join (products join (values ('class 1', 1), ('class 2', 2)) as c (class, rank) using (class)) using (product)
    where rank = 2 group by name order by name limit 10;
-- Keys of several columns, of different types, and expressions.
select count(*) from sales s join days d on s.day = d.day and s.pieces = d.month % 9;
select count(*), sum(s.id) from sales s join products p on s.id = p.product;
select count(*) from sales s join products p on s.product + 1 = p.product * 2;
select count(*) from sales s join shops h on 'city ' || s.pieces = h.city;
select count(*) from sales s join products p on s.amount = p.price;
-- More than equality.
select count(*), sum(s.id) from sales s join products p on s.product = p.product and s.amount > p.price;
select count(*) from sales s join days d on s.day < d.day and d.day < 5;
select count(*) from (select * from sales where id < 50) s cross join shops;
-- Itself.
select count(*), sum(a.amount - b.amount) from sales a join sales b on a.id = b.id + 1;
select a.shop, count(*) from sales a join sales b on a.product = b.product and a.shop = b.shop and a.id < b.id
    where a.day < 40 group by a.shop order by a.shop;
-- Keys that are NULL meet nobody.
select count(*) from sales s join shops h on s.shop = h.shop where h.shop is null;
select count(*) from sales s join shops h on s.shop is not distinct from h.shop;
select count(*) from sales a join sales b on a.product = b.product where a.id < 40 and b.id < 40;
-- Nothing on one side.
select count(*), sum(amount) from sales join none using (product);
select count(*), sum(amount), count(word) from sales left join none using (product);
select count(*) from sales join products using (product) where price < 0;
-- Outer joins.
select count(*), count(p.product), sum(amount), sum(price) from sales left join products p using (product);
select p.class, count(*), sum(s.amount) from sales s left join products p on s.product = p.product and p.price > 50 group by p.class order by p.class;
select count(*), count(s.id) from sales s right join products p on s.product = p.product and s.amount > 90;
select count(*), count(s.id), count(h.city) from sales s full join shops h on s.shop = h.shop;
select h.country, count(s.id) from shops h left join sales s on s.shop = h.shop and s.pieces = 8 group by h.country order by h.country;
select count(*) from sales left join products p using (product) where p.product is null;
select count(*), sum(coalesce(p.price, 0)) from sales left join products p using (product) where p.class is distinct from 'class 1';
-- The streamed table is the largest of those that are on no inner side.
create table orders (id int8, product int4, day int4, note text);
insert into orders select i, i % 190, i % 400, 'order ' || i % 3 from generate_series(1, 3000) i;
vacuum analyze orders;
select count(*), count(s.id), sum(s.amount) from orders o left join sales s on s.id = o.id and s.pieces < 5;
select o.note, count(*), sum(s.pieces) from orders o left join sales s on s.product = o.product where o.day < 30 group by o.note order by o.note;
select count(*), sum(o.id) from orders o where exists (select from sales s where s.id = o.id and s.amount > 50);
select count(*), sum(o.id) from orders o where not exists (select from sales s where s.product = o.product and s.day = o.day);
-- Inner sides that are joins themselves.
select count(*), count(p.product), count(o.id), sum(price) from sales s left join (products p join orders o on o.id = p.product) on s.product = p.product;
select count(*), count(p.product), count(o.id) from sales s left join (products p left join orders o on o.id = p.product + 150) on s.product = p.product;
select p.class, o.note, count(*) from sales s left join (products p join orders o on o.id = p.product and o.day < 99) on s.product = o.product and s.pieces > p.price / 100
    group by p.class, o.note order by p.class, o.note;
select count(*), sum(s.amount) from sales s left join (products p join orders o on o.id = p.product) on s.product = p.product where coalesce(p.price, o.day) > 50;
select count(*) from sales s left join (products p join orders o on o.id = p.product) on s.product = p.product where o.id is null;
select count(*), sum(s.id) from sales s where exists (select from products p join orders o on o.id = p.product where p.product = s.product and o.day > 3);
select count(*), sum(s.id) from sales s where exists (select from products p, orders o where p.product = s.product and o.day = s.day and p.price > o.id / 30);
select count(*), sum(s.id) from sales s where not exists (select from products p join orders o on o.id = p.product where p.product = s.product and o.day <> s.day);
select count(*), sum(s.id) from sales s where s.product in (select p.product from products p left join orders o on o.id = p.product + 100 where o.id is null);
select h.city, count(*), count(p.name) from sales s join shops h using (shop) left join (products p cross join days d) on p.product = s.product and d.day = s.day + p.product
    where s.id < 3000 group by h.city order by h.city;
select count(*), count(c.day) from sales s left join (shops h left join (products p join days c on c.day = p.product) on p.product = h.shop) on h.shop = s.shop;
select count(*), count(o.id) from sales s left join (products p full join orders o on o.id = p.product) on s.product = p.product;
-- Semi and anti joins.
select count(*), sum(amount) from sales where product in (select product from products where class = 'class 2');
select count(*), sum(amount) from sales where product not in (select product from products where class = 'class 2');
select count(*), sum(amount) from sales where shop in (select shop from shops);
select count(*), sum(amount) from sales where shop not in (select shop from shops);
select count(*) from sales s where exists (select from shops h where h.shop = s.shop and h.country = 'FR');
select count(*) from sales s where not exists (select from shops h where h.shop = s.shop and h.country = 'FR');
select count(*) from sales s where exists (select from products p where p.product = s.product and p.price > s.amount);
select count(*) from products p where not exists (select from sales s where s.product = p.product and s.amount > 99);
select shop, count(*) from sales s where amount > (select avg(amount) from sales) group by shop order by shop;
-- Subqueries, WITH, VALUES and functions are looked up.
select p.class, count(*), sum(t.total) from sales s join products p using (product) join (select shop, sum(amount) as total from sales group by shop) t on t.shop = s.shop
    where s.day < 200 group by p.class order by p.class;
select count(*), sum(s.amount), sum(d.most) from sales s join (select distinct on (product) product, price as most from products order by product, price desc) d using (product);
select count(*), count(t.n) from sales s left join (select day, count(*) as n from sales where pieces = 3 group by day having count(*) > 2) t using (day);
select count(*), sum(s.id) from sales s where exists (select from (select shop from shops group by shop having count(*) > 1) t where t.shop = s.shop);
select s.id, t.rank from sales s join (select product, rank() over (order by price desc) as rank from products) t using (product) where t.rank < 3 order by s.id limit 6;
select count(*), sum(t.product) from sales s join (select product from products order by price desc limit 20) t on t.product = s.product and t.product < s.day;
with best as materialized (select product, max(amount) as most from sales group by product) select count(*), sum(b.most) from sales s join best b using (product) where b.most = s.amount;
with few as not materialized (select shop, min(city) as city from shops group by shop) select f.city, count(*) from sales s join few f using (shop) group by f.city order by f.city;
with best as materialized (select product from products where price > 200) select count(*) from sales s where exists (select from best b where b.product = s.product)
    or s.product in (select product from best);
with recursive up (n) as (select 1 union all select n + 2 from up where n < 50) select count(*), sum(s.id) from sales s join up on up.n = s.day;
with recursive up (n) as (select 1::int8 union all select s.id from up join sales s on s.id = up.n + 1 and s.pieces = up.n + 1 where up.n < 50) select * from up order by n;
with gone as (delete from none returning product) select count(*) from sales s join gone g using (product);
with made as (insert into none select 5, 'five' returning product) select count(*) from sales s join made m using (product);
delete from none;
select v.word, count(*) from sales s join (values (1, 'one'), (2, 'two')) v (n, word) on v.n = s.pieces group by v.word order by v.word;
select count(*), sum(g) from sales s join generate_series(2, 4) g on g = s.pieces;
select count(*) from sales s join (select 3 as pieces union all select 5) u using (pieces);
select count(*) from sales s join (select product from products union select shop from shops) u using (product);
select count(*), max(t.n) from sales s join (select count(*) as n from products where product > 1000 - 995) t on t.n = s.day;
-- What would fail for rows that nobody is joined with.
select count(*) from none n join sales s using (product) left join shops h on h.shop = s.shop and 10 / (h.shop - 3) > 1;
select count(t.x) from none n join sales s using (product) left join (select shop, max(10 / (shop - 3)) as x from shops group by shop) t on t.shop = s.shop;
select s.id, p.name, t.n from sales s join products p using (product) join (select day, count(*) as n from days group by day) t using (day) where s.amount > 99.6 order by s.id;
-- Rows, not groups.
select s.id, p.name, h.city, d.date from sales s join products p using (product) join shops h using (shop) join days d using (day)
    where s.amount > 99.5 order by s.id, p.name, h.city, d.date limit 25;
select s.id, p.name, s.note from sales s left join products p on s.product = p.product where s.id % 500 = 0 order by s.id;
-- Joins of what groups give.
select class, sum(total), max(best) from products join (select product, sum(amount) as total, max(amount) as best from sales group by product) s
    using (product) group by class order by class;
with by_shop as (select shop, sum(amount) as total from sales group by shop)
    select h.country, sum(b.total), count(*) from by_shop b join (select distinct shop, country from shops) h using (shop) group by h.country order by h.country;
with recursive up (n) as (select 1 union all select n + 1 from up where n < 5)
    select n, (select count(*) from sales where pieces = n) from up order by n;
select count(*) from (select product, shop from sales union select product, null from products) u;
select count(*) from (select product from sales intersect select product from products) u;
select count(*) from (select product from sales except all select product from products) u;
select 'a', count(*) from sales where pieces = 1 union all select 'b', sum(pieces) from sales order by 1;
