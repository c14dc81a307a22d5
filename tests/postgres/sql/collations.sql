-- icu
-- Orders and equalities of ICU's collations.
create table collated (id int4, i text collate "und-x-icu", p text collate "C");
insert into collated select i, w, w from unnest(array['abc', 'ABC', 'äöü', 'abc ', '', null, 'zebra']) with ordinality u (w, i) union all select 100 + i, chr(64 + i), chr(96 + i) from generate_series(1, 26) i;
vacuum analyze collated;
select min(i), max(i), min(p), max(p) from collated;
select count(*) from collated where i > 'b';
select count(*) from collated where p > 'b';
select count(*) from collated where i > 'b' collate "C";
select i, count(*) from collated where id > 90 and i < 'e' group by i order by i;
select count(*) from collated where i < p;
create collation anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
create table nocase (id int4, t text collate anycase);
insert into nocase select i, (array['one', 'ONE', 'One', 'two', 'TWO', null])[1 + i % 6] from generate_series(1, 600) i;
vacuum analyze nocase;
select lower(min(t) collate "C"), count(*) from nocase group by t order by 1;
select count(*) from nocase where t = 'one';
select count(*) from nocase where t in ('one', 'TWO');
select count(distinct t) from nocase;
-- What is equal and written differently: PostgreSQL shows the first.
select t, array_agg(id order by id) as ids from nocase where id <= 12 group by t order by t;
select distinct t from nocase where id > 3 order by t;
select t from nocase where id > 4 union select t from nocase where id = 1 order by t;
select count(*) from nocase a join nocase b on a.t = b.t where a.id <= 6 and b.id <= 6;
select count(*) from nocase where t like 'o%';
-- Capital and small letters: those of ASCII alone are known, others are PostgreSQL's own plan's.
select lower(i), upper(i), count(*) from collated where id > 90 group by 1, 2 order by 1, 2 limit 4;
select upper(i) collate "C" as u, count(*) from collated group by 1 order by 1 nulls first limit 4;
select count(*) from collated where i ilike '%A_C%' and id < 3;
select count(*) from collated where id > 90 and i ilike '_';
select count(*) from collated where i ilike 'Ä%';
select count(*) from collated where p ilike 'ÄÖ_' collate "und-x-icu";
create collation turkish (provider = icu, locale = 'tr');
select lower('I' collate turkish), count(*) from collated where upper(p collate turkish) = 'I' or lower(p collate turkish) = 'i';
select replace(t, 'one', 'x') from nocase limit 1;
select greatest(i, 'm') collate "C" as g, count(*) from collated group by 1 order by 1 limit 3;
