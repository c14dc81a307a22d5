"""Failures: class, place, code and remedy."""

import pytest

import headrace

CASES = [
    ("selec 1", headrace.ParserError, "syntax", "42601", (1, 1)),
    ("select 1 +", headrace.ParserError, "syntax", "42601", None),
    ("select * from nothing", headrace.CatalogError, "unknown_table", "42P01", (1, 15)),
    ("select\n  nothing\nfrom t", headrace.CatalogError, "unknown_column", "42703", (2, 3)),
    ("select nothing(1)", headrace.CatalogError, "unknown_function", "42883", (1, 8)),
    ("select a from t, t as u", headrace.CatalogError, "ambiguous_column", "42702", (1, 8)),
    ("select a, count(*) from t", headrace.ProgrammingError, "ungrouped", "42803", (1, 8)),
    ("select sum('x'), abs(true) from t", headrace.ProgrammingError, None, None, None),
    ("select 1 / 0", headrace.DataError, "division_by_zero", "22012", None),
    ("select 9223372036854775807 + a from t", headrace.DataError, "overflow", "22003", None),
    ("select cast('x' as int)", headrace.DataError, "value", "22P02", (1, 13)),
    ("select * from 'nowhere.parquet'", headrace.FileError, "missing_file", "58P01", (1, 15)),
    ("set headrace.processor = 'potato'", headrace.Error, None, None, None),
    ("select sleep", headrace.CatalogError, "unknown_column", "42703", (1, 8)),
]


@pytest.mark.parametrize(("query", "exception", "kind", "sqlstate", "place"), CASES, ids=lambda case: str(case)[:30])
def test_a_failure_says_what_where_and_which(con, query, exception, kind, sqlstate, place):
    con.sql("create table t as select 1 as a")
    with pytest.raises(exception) as raised:
        con.sql(query).fetchall()
    error = raised.value
    assert error.cause and error.cause in str(error)
    if kind is not None:
        assert (error.kind, error.sqlstate) == (kind, sqlstate)
    if place is not None:
        assert (error.line, error.column) == place
        assert "^" in str(error)


def test_the_remedy_is_behind_the_cause(con):
    con.sql("create table trips as select 1 as km")
    with pytest.raises(headrace.CatalogError) as raised:
        con.sql("select km from tirps").fetchall()
    assert "trips" in raised.value.hint
    assert str(raised.value).endswith(f"hint: {raised.value.hint}")


def test_a_file_that_is_none_is_corrupt(con, tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(headrace.Error, match="bad.parquet"):
        con.read_parquet(tmp_path / "bad.parquet").fetchall()


def test_time_is_limited(con):
    con.sql("set statement_timeout = '300ms'")
    with pytest.raises(headrace.TimeoutError) as raised:
        con.sql("select count(*) from range(100000000000) a where a.value % 7 = 3").fetchall()
    assert raised.value.sqlstate == "57014"


def test_the_hierarchy_is_that_of_db_api():
    for name in ("InterfaceError", "DatabaseError"):
        assert issubclass(getattr(headrace, name), headrace.Error)
    for name in ("DataError", "OperationalError", "IntegrityError", "InternalError", "ProgrammingError", "NotSupportedError"):
        assert issubclass(getattr(headrace, name), headrace.DatabaseError)


def test_every_kind_has_a_class():
    from headrace import _errors

    kinds = [
        "syntax", "unknown_table", "unknown_column", "unknown_function", "ambiguous_column", "duplicate_column",
        "ungrouped", "types", "statement", "unsupported", "fallback", "forbidden", "busy", "setting", "value", "overflow",
        "division_by_zero", "out_of_memory", "missing_file", "io", "corrupt", "file_changed", "cancelled", "timed_out",
        "device", "internal",
    ]
    assert sorted(_errors._CLASSES) == sorted(kinds)
