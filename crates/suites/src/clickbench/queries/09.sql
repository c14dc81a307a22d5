select RegionID, sum(AdvEngineID), count(*) as c, avg(ResolutionWidth), count(distinct UserID)
from hits
group by RegionID
order by c desc, RegionID
limit 10
