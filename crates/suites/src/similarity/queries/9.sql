select asked.id, count(*) as compounds, max(tanimoto(asked.fp, compound.fp)) as likeness,
       min(hamming_distance(compound.fp, asked.fp)) as distance
from (select id, fp from compound where id < 20) asked cross join compound
where asked.id <> compound.id
group by asked.id
order by asked.id
