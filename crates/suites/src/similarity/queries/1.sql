select id, tanimoto(fp, (select fp from compound where id = 42)) as likeness
from compound
order by likeness desc, id
limit 10
