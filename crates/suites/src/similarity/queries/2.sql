select id, hamming_distance(fp, (select fp from compound where id = 42)) as distance
from compound
order by distance, id
limit 10
