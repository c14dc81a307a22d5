select TraficSourceID, SearchEngineID, AdvEngineID,
  case when SearchEngineID = 0 and AdvEngineID = 0 then Referer else '' end as Src,
  URL as Dst, count(*) as PageViews
from hits
where CounterID = 62
  and EventDate >= date '2013-07-01'
  and EventDate <= date '2013-07-31'
  and IsRefresh = 0
group by TraficSourceID, SearchEngineID, AdvEngineID, Src, Dst
order by PageViews desc, TraficSourceID, SearchEngineID, AdvEngineID, Src, Dst
limit 10 offset 10
