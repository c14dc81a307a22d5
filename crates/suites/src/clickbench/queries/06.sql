select min(EventDate), max(EventDate)
from hits
