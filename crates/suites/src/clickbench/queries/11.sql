select MobilePhone, MobilePhoneModel, count(distinct UserID) as u
from hits
where MobilePhoneModel <> ''
group by MobilePhone, MobilePhoneModel
order by u desc, MobilePhone, MobilePhoneModel
limit 10
