select URL, count(*) as PageViews
from hits
where CounterID = 62
  and EventDate >= date '2013-07-01'
  and EventDate <= date '2013-07-31'
  and DontCountHits = 0
  and IsRefresh = 0
  and URL <> ''
group by URL
order by PageViews desc, URL
limit 10
