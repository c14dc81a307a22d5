"""What tools ask when they connect and when their users look around: statements of the shapes that DBeaver, Npgsql (Power BI),
Grafana, Metabase, pgAdmin and Tableau send."""

import psycopg
import pytest

ASKED = {
    "dbeaver: databases": ("select d.oid, d.* from pg_catalog.pg_database d where datallowconn and not datistemplate or d.datname = current_database()", 1),
    "dbeaver: schemas": (
        "select n.oid, n.*, d.description from pg_catalog.pg_namespace n left join pg_catalog.pg_description d on d.objoid = n.oid"
        " and d.objsubid = 0 and d.classoid = 'pg_namespace'::regclass order by nspname",
        3,
    ),
    "dbeaver: types": (
        "select t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) as base, d.description from pg_catalog.pg_type t"
        " left join pg_catalog.pg_type e on e.oid = t.typelem left join pg_catalog.pg_class c on c.oid = t.typrelid"
        " left join pg_catalog.pg_description d on t.oid = d.objoid where t.typname is not null"
        " and (c.relkind is null or c.relkind = 'c') and (e.typcategory is null or e.typcategory <> 'C')",
        None,
    ),
    "dbeaver: tables": (
        "select c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid), pg_catalog.pg_get_partkeydef(c.oid)"
        " from pg_catalog.pg_class c left join pg_catalog.pg_description d on d.objoid = c.oid and d.objsubid = 0"
        " and d.classoid = 'pg_class'::regclass where c.relnamespace = 2200 and c.relkind not in ('i', 'I', 'c')",
        3,
    ),
    "dbeaver: columns": (
        "select c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as value, d.description, p.objid"
        " from pg_catalog.pg_attribute a join pg_catalog.pg_class c on a.attrelid = c.oid"
        " left join pg_catalog.pg_attrdef ad on a.attrelid = ad.adrelid and a.attnum = ad.adnum"
        " left join pg_catalog.pg_description d on c.oid = d.objoid and a.attnum = d.objsubid"
        " left join pg_depend p on p.refobjid = a.attrelid and p.deptype = 'i' and p.refobjsubid = a.attnum and p.classid = p.refclassid"
        " where not a.attisdropped and c.relname = 'kinds' order by a.attnum",
        18,
    ),
    "dbeaver: indexes": (
        "select i.*, i.indkey as keys, c.relname, pg_catalog.pg_get_expr(i.indpred, i.indrelid), pg_catalog.pg_relation_size(i.indexrelid),"
        " pg_catalog.pg_stat_get_numscans(i.indexrelid) from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid"
        " where i.indrelid = 16384",
        0,
    ),
    "npgsql: composites": (
        "select t.oid, a.attname, a.atttypid from pg_type t join pg_namespace n on n.oid = t.typnamespace"
        " join pg_class c on c.oid = t.typrelid join pg_attribute a on a.attrelid = t.typrelid"
        " where t.typtype = 'c' and c.relkind = 'c' and attnum > 0 and not attisdropped order by t.oid, a.attnum",
        0,
    ),
    "npgsql: enums": ("select pg_type.oid, enumlabel from pg_enum join pg_type on pg_type.oid = enumtypid order by oid, enumsortorder", 0),
    "power bi: tables": (
        "select TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE from INFORMATION_SCHEMA.tables"
        " where TABLE_SCHEMA not in ('information_schema', 'pg_catalog') order by TABLE_SCHEMA, TABLE_NAME",
        3,
    ),
    "power bi: character sets": ("select character_set_name from INFORMATION_SCHEMA.character_sets", 1),
    "power bi: rows": ('select "$o"."nth" from (select "_"."nth" from "public"."kinds" "_" where "_"."nth" < 3) "$o" order by "$o"."nth" limit 9', 2),
    "grafana: tables": (
        "select case when quote_ident(table_schema) in (select case when trim(p[n]) = '\"$user\"' then user else trim(p[n]) end"
        " from generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1),"
        " array_upper(string_to_array(current_setting('search_path'), ','), 1)) as n, string_to_array(current_setting('search_path'), ',') p)"
        " then quote_ident(table_name) else quote_ident(table_schema) || '.' || quote_ident(table_name) end as \"table\""
        " from information_schema.tables where quote_ident(table_schema) not in ('information_schema', 'pg_catalog') order by 1",
        3,
    ),
    "grafana: version": ("select current_setting('server_version_num')::int / 100 as version", 1),
    "metabase: privileges": (
        "with p as (select t.schemaname as schema, t.name, pg_catalog.has_any_column_privilege(current_user,"
        " '\"' || t.schemaname || '\".\"' || t.name || '\"', 'select') as may from (select schemaname, tablename as name from pg_catalog.pg_tables"
        " union select schemaname, viewname from pg_catalog.pg_views union select schemaname, matviewname from pg_catalog.pg_matviews) t"
        " where t.schemaname !~ '^pg_' and pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage')) select p.* from p",
        3,
    ),
    "pgadmin: server": (
        "select d.oid as did, d.datname, pg_catalog.pg_encoding_to_char(d.encoding) as encoding,"
        " pg_catalog.has_database_privilege(d.oid, 'CREATE') as may from pg_catalog.pg_database d where d.datname = current_database()",
        1,
    ),
    "tableau: tables": (
        "select n.nspname, c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace"
        " where c.relkind in ('r', 'v', 'm', 'f', 'p') and n.nspname not like 'pg\\_%' and n.nspname <> 'information_schema'",
        3,
    ),
    "jetbrains: start": ("select round(extract(epoch from pg_postmaster_start_time() at time zone 'UTC')) > 1700000000 as started", 1),
}

# Npgsql reads types once, and knows arrays by the function that receives them.
TYPES = """
select n.nspname, t.oid, t.typname, t.kind, t.element from (
    select typ.oid, typ.typnamespace, typ.typname, typ.kind, typ.relkind, e.oid as element, e.typname as of,
           case when ep.proname = 'array_recv' then 'a' else e.typtype end as element_kind
    from (select typ.oid, typnamespace, typname, relkind,
                 case when proc.proname = 'array_recv' then 'a' else typ.typtype end as kind,
                 case when proc.proname = 'array_recv' then typ.typelem when typ.typtype = 'r' then rngsubtype
                      when typ.typtype = 'm' then (select rngtypid from pg_range where rngmultitypid = typ.oid)
                      when typ.typtype = 'd' then typ.typbasetype end as element_oid
          from pg_type as typ left join pg_class as cls on (cls.oid = typ.typrelid)
          left join pg_proc as proc on proc.oid = typ.typreceive
          left join pg_range on (pg_range.rngtypid = typ.oid)) as typ
    left join pg_type as e on e.oid = element_oid
    left join pg_proc as ep on ep.oid = e.typreceive
) as t join pg_namespace as n on (n.oid = typnamespace)
where kind in ('b', 'r', 'm', 'e', 'd') or (kind = 'a' and element_kind in ('b', 'r', 'm', 'e', 'd'))
order by case when kind in ('b', 'e', 'p') then 0 when kind = 'a' then 5 end
"""


@pytest.mark.parametrize("name", ASKED)
def test_it_is_answered(server, name):
    sql, rows = ASKED[name]
    with psycopg.connect(server.dsn) as connection:
        found = connection.execute(sql).fetchall()
    assert found or rows == 0
    assert rows is None or len(found) == rows


def test_npgsql_knows_arrays(server):
    with psycopg.connect(server.dsn) as connection:
        found = {row[2]: (row[3], row[4]) for row in connection.execute(TYPES)}
    assert found["int4"] == ("b", None) and found["_int4"] == ("a", 23) and found["_text"] == ("a", 25)


def test_grafana_names_tables_as_they_are_written(server):
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute(ASKED["grafana: tables"][0]).fetchall() == [("kinds",), ("many",), ("wide",)]
