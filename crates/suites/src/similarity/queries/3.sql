select count(*) as compounds
from compound
where tanimoto(fp, (select fp from compound where id = 42)) >= 0.3
