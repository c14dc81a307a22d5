select cat, count(*) as n, avg(ax) as avg_ax
from t0 natural join t1
group by cat
order by cat
