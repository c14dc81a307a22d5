select CounterID, avg(length(URL)) as l, count(*) as c
from hits
where URL <> ''
group by CounterID
having count(*) > 100
order by l desc, CounterID
limit 25
