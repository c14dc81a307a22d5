select SearchPhrase
from hits
where SearchPhrase <> ''
order by SearchPhrase
limit 10
