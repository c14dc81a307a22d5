"""Several folders are schemas."""

import json
import urllib.request

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("schemas")
    tables = {
        ("sales", "orders"): {"id": [1, 2], "shop": ["a", "b"]},
        ("sales", "shops"): {"shop": ["a", "b"]},
        ("events", "orders"): {"id": [2, 3, 4], "at": [7, 8, 9]},
        ("events", "clicks"): {"id": [5]},
    }
    for (schema, name), columns in tables.items():
        (root / schema).mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), root / schema / f"{name}.parquet")
    return root


@pytest.fixture(scope="module")
def connection(folders):
    from conftest import Server

    server = Server(folders / "sales", "--data", folders / "events")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.server = server
        yield connection
    server.stop()


def rows(connection, sql):
    return connection.execute(sql).fetchall()


def test_tables_have_their_schemas(connection):
    assert rows(connection, "select count(*) from sales.orders") == [(2,)]
    assert rows(connection, "select count(*) from events.orders") == [(3,)]
    both = "select s.id, s.shop, e.at from sales.orders s join events.orders e on s.id = e.id"
    # Once more, by the plan that is known.
    assert rows(connection, both) == rows(connection, both) == [(2, "b", 7)]
    assert rows(connection, "select (select count(*) from events.orders) - (select count(*) from sales.orders)") == [(1,)]
    # One of a kind needs no schema.
    assert rows(connection, "select count(*) from clicks") == [(1,)]
    with pytest.raises(psycopg.Error, match="could be"):
        rows(connection, "select * from orders")
    with pytest.raises(psycopg.Error, match="no table"):
        rows(connection, "select * from sales.clicks")
    with pytest.raises(psycopg.Error):
        rows(connection, 'select * from sales."/etc/passwd"')


def test_the_catalog_lists_them(connection):
    assert rows(connection, "select schemaname, tablename from pg_tables order by 1, 2") == [
        ("events", "clicks"), ("events", "orders"), ("sales", "orders"), ("sales", "shops"),
    ]
    found = rows(connection, "select n.nspname, c.relname, a.attname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
                 " join pg_attribute a on a.attrelid = c.oid where c.relname = 'orders' order by 1, 3")
    assert found == [("events", "orders", "at"), ("events", "orders", "id"), ("sales", "orders", "id"), ("sales", "orders", "shop")]
    assert rows(connection, "select table_schema, count(*) from information_schema.columns group by 1 order by 1") == [("events", 3), ("sales", 3)]
    assert rows(connection, "select relname from pg_class where oid = 'sales.shops'::regclass") == [("shops",)]
    assert rows(connection, "select relname from pg_class where oid = 'clicks'::regclass") == [("clicks",)]
    assert {name for (name,) in rows(connection, "select nspname from pg_namespace")} >= {"sales", "events", "public"}


def test_other_doors_list_them(connection):
    server = connection.server
    listed = json.loads(urllib.request.urlopen(server.http + "/tables").read())
    assert [(table["schema"], table["name"]) for table in listed][:2] == [("events", "clicks"), ("events", "orders")]
    flight = pytest.importorskip("adbc_driver_flightsql.dbapi")
    with flight.connect(server.flight, autocommit=True) as client:
        found = client.adbc_get_objects(depth="tables").read_all().to_pylist()
    names = {(schema["db_schema_name"], table["table_name"]) for catalog in found for schema in catalog["catalog_db_schemas"]
             for table in schema["db_schema_tables"]}
    assert ("sales", "orders") in names and ("events", "orders") in names
