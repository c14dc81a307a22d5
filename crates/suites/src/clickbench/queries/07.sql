select AdvEngineID, count(*) as c
from hits
where AdvEngineID <> 0
group by AdvEngineID
order by c desc, AdvEngineID
