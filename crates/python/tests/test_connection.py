"""Connections, their tables and settings."""

import time

import pytest

import headrace


def test_a_folder_is_a_database(folder):
    con = headrace.connect(folder)
    assert con.tables() == ["trips"]
    assert con.sql("select city, sum(km) as km from trips group by city order by km").fetchall() == [
        ("Oslo", 0.5),
        ("Rome", 14.7),
    ]


def test_files_and_tables_may_be_several(folder, tmp_path):
    other = tmp_path / "more.json"
    other.write_text('{"a": 1}\n{"a": 2}\n')
    assert sorted(headrace.connect([folder / "trips.csv", other]).tables()) == ["more", "trips"]


def test_tables_may_be_given_by_name():
    pa = pytest.importorskip("pyarrow")
    con = headrace.connect({"t": pa.table({"a": [1, 2]})})
    assert con.sql("select sum(a) from t").fetchone() == (3,)


@pytest.mark.parametrize("places", ["nowhere", "nowhere.parquet"])
def test_what_is_not_there_is_an_error(tmp_path, places):
    with pytest.raises(headrace.FileError, match="nowhere") as raised:
        headrace.connect(tmp_path / places)
    assert raised.value.sqlstate == "58P01"


def test_statements_that_change_run_at_once(con):
    assert con.sql("create table t as select value as a from range(3)") is None
    con.sql("insert into t values (10)")
    assert con.table("t").aggregate("sum(a) as s").fetchone() == (13,)
    assert con.sql("drop table t") is None
    assert con.tables() == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("show tables", [("t",)]),
        ("describe t", None),
        ("explain select 1", None),
        ("select 1; ", [(1,)]),
        ("from t", [(1,)]),
        ("values (1), (2)", [(1,), (2,)]),
        ("with x as (select 5 as n) select * from x", [(5,)]),
    ],
)
def test_every_statement_answers(con, statement, expected):
    con.sql("create table t as select 1 as a")
    rows = con.sql(statement).fetchall()
    assert rows == expected if expected is not None else rows


def test_what_a_statement_showed_is_a_relation(con):
    con.sql("create table t as select 1 as a, 'x' as b")
    assert con.sql("describe t").aggregate("count(*) as c").fetchone() == (2,)


def test_settings(con):
    con.set(threads=3, processor="cpu")
    shown = dict(row[:2] for row in con.sql("show all").fetchall())
    assert shown["headrace.threads"] == "3"
    with pytest.raises(headrace.Error, match="potato"):
        con.set(processor="potato")


@pytest.mark.parametrize("limit", ["potato", "-1", 10])
def test_a_memory_limit_is_a_size(limit):
    with pytest.raises(headrace.SettingError):
        headrace.connect(memory_limit=limit)


def test_a_closed_connection_is_closed(con):
    con.close()
    assert "closed" in repr(con)
    with pytest.raises(headrace.ProgrammingError, match="closed"):
        con.sql("select 1")


def test_the_default_connection_is_one():
    assert headrace.default_connection() is headrace.default_connection()
    headrace.execute("create or replace table default_t as select 7 as a")
    assert headrace.table("default_t").fetchall() == [(7,)]
    headrace.execute("drop table default_t")


def test_readers_take_paths_and_options(con, folder):
    trips = con.read_csv(folder / "trips.csv", header=True)
    assert trips.columns == ["id", "km", "city"]
    trips.write(folder / "t.parquet")
    trips.write(folder / "t.arrow")
    trips.write(folder / "t.json")
    rows = trips.order("id").fetchall()
    for read in (con.read_parquet, con.read_arrow, con.read_json):
        path = folder / f"t.{read.__name__.removeprefix('read_')}"
        assert read(path).select("id", "km", "city").order("id").fetchall() == rows
    trips.write(folder / "u.parquet")
    assert con.read_parquet([folder / "t.parquet", folder / "u.parquet"]).count() == 6


def test_files_are_written_whole_or_not_at_all(con, tmp_path):
    bad = con.sql("select 1 / (value - 50000) as x from range(100000)")
    with pytest.raises(headrace.DataError):
        bad.write(tmp_path / "bad.csv")
    assert not (tmp_path / "bad.csv").exists()
    # Whoever wrote it removes what it had written.
    until = time.monotonic() + 5
    while list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.01)
    assert list(tmp_path.iterdir()) == []
    assert con.sql("select 1 as a").write(tmp_path / "good.csv", header=False) == 1
    assert (tmp_path / "good.csv").read_text() == "1\n"


def test_a_connection_is_not_pickled(con):
    import pickle

    with pytest.raises(TypeError):
        pickle.dumps(con)
