select family, count(*) as compounds, max(tanimoto(fp, (select fp from compound where id = 42))) as likeness
from compound
group by family
order by likeness desc, family
limit 10
