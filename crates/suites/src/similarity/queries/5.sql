select id, l2_distance(v, (select v from embedding where id = 42)) as distance
from embedding
order by distance, id
limit 10
