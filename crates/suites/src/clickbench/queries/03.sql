select avg(UserID)
from hits
