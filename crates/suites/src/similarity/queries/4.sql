select floor(20 * tanimoto(fp, (select fp from compound where id = 42))) as twentieths, count(*) as compounds
from compound
group by twentieths
order by twentieths
