select UserID, SearchPhrase, count(*)
from hits
group by UserID, SearchPhrase
order by UserID, SearchPhrase
limit 10
