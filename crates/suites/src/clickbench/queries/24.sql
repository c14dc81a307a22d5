select SearchPhrase
from hits
where SearchPhrase <> ''
order by EventTime, WatchID
limit 10
