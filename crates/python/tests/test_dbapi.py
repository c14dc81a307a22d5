"""DB-API 2.0."""

import pytest

from headrace import dbapi


@pytest.fixture
def cursor():
    with dbapi.connect(processor="cpu") as connection, connection.cursor() as cursor:
        yield cursor


def test_the_module_says_what_it_is():
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "qmark")


def test_rows_and_their_description(cursor):
    cursor.execute("select value as n, 'x' as s, 1.5::decimal(9, 2) as d from range(5) where value >= ?", [1])
    assert [column[0] for column in cursor.description] == ["n", "s", "d"]
    codes = [column[1] for column in cursor.description]
    assert codes[0] == dbapi.NUMBER and codes[1] == dbapi.STRING and codes[2] == dbapi.NUMBER
    assert codes[0] != dbapi.STRING and codes[1] != dbapi.DATETIME
    assert cursor.fetchone()[0] == 1
    assert [row[0] for row in cursor.fetchmany(2)] == [2, 3]
    cursor.arraysize = 10
    assert len(cursor.fetchmany()) == 1
    assert (cursor.fetchall(), cursor.fetchone(), cursor.rowcount) == ([], None, -1)


def test_statements_without_rows(cursor):
    cursor.execute("create table t (a int, b varchar)")
    assert cursor.description is None
    cursor.executemany("insert into t values (?, ?)", [(1, "x"), (2, None)])
    assert cursor.execute("select * from t order by a").fetchall() == [(1, "x"), (2, None)]
    cursor.execute("drop table t")
    with pytest.raises(dbapi.ProgrammingError, match="no rows"):
        cursor.fetchone()


def test_a_cursor_is_an_iterator(cursor):
    assert sum(row[0] for row in cursor.execute("select value from range(10)")) == 45


def test_what_is_closed_is_closed(cursor):
    cursor.close()
    with pytest.raises(dbapi.ProgrammingError):
        cursor.execute("select 1")
    connection = cursor.connection
    connection.close()
    with pytest.raises(dbapi.ProgrammingError):
        connection.cursor()


def test_there_are_no_transactions(cursor):
    cursor.connection.commit()
    with pytest.raises(dbapi.NotSupportedError):
        cursor.connection.rollback()


def test_errors_are_of_the_module(cursor):
    with pytest.raises(cursor.connection.ProgrammingError):
        cursor.execute("selec 1")
    with pytest.raises(dbapi.DatabaseError):
        cursor.execute("select 1 / 0").fetchall()


def test_constructors():
    assert dbapi.Date(2024, 1, 2).isoformat() == "2024-01-02"
    assert dbapi.Binary(b"x") == b"x"
    assert dbapi.TimestampFromTicks(0).year in (1969, 1970)
    assert dbapi.DateFromTicks(0).year in (1969, 1970)
    assert dbapi.TimeFromTicks(0).second == 0


def test_pandas_reads_from_it():
    pd = pytest.importorskip("pandas")
    import warnings

    with dbapi.connect() as connection, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        frame = pd.read_sql("select value as a from range(3)", connection)
    assert frame["a"].tolist() == [0, 1, 2]


def test_a_cursor_of_a_connection_leaves_it_open():
    import headrace

    con = headrace.connect()
    local = {"a": [5]}
    with con.cursor().connection as borrowed:
        cursor = borrowed.cursor()
        assert cursor.execute("select a from local").fetchone() == (5,)
    assert con.sql("select 1").fetchone() == (1,) and local
    con.close()
    with pytest.raises(dbapi.ProgrammingError, match="closed"):
        cursor.fetchone()
