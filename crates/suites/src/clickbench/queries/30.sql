select SearchEngineID, ClientIP, count(*) as c, sum(IsRefresh), avg(ResolutionWidth)
from hits
where SearchPhrase <> ''
group by SearchEngineID, ClientIP
order by c desc, SearchEngineID, ClientIP
limit 10
