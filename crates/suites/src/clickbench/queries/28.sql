select regexp_replace(Referer, '^https?://(?:www\.)?([^/]+)/.*$', '\1') as k,
  avg(length(Referer)) as l, count(*) as c, min(Referer)
from hits
where Referer <> ''
group by k
having count(*) > 100
order by l desc, k
limit 25
