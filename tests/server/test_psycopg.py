"""psycopg 3 and psycopg 2: values in both formats, parameters, cursors, COPY, transactions."""

import datetime
import decimal
import threading
import time

import psycopg
import psycopg2
import pytest
from psycopg import sql

UTC = datetime.timezone.utc
KINDS = [
    (1, True, -128, -32768, -(2**63), 0, 0.5, 1 / 3, decimal.Decimal("-12.50"), "it's \"é\"", "a", b"\x00\xff",
     datetime.date(1999, 12, 31), datetime.time(12, 0, 0, 1), datetime.datetime(2024, 3, 5, 10, 11, 12, 500000),
     datetime.datetime(2024, 3, 5, 10, tzinfo=UTC), [1, None], ["a,b", None, "NULL"]),
    (2, False, 127, 32767, 2**63 - 1, 2**64 - 1, pytest.approx(-1e-7), float("inf"), decimal.Decimal("0.01"), "", "b",
     b"", datetime.date(2024, 2, 29), datetime.time(0), datetime.datetime(1970, 1, 1),
     datetime.datetime(1999, 1, 1, tzinfo=UTC), [], []),
    (3,) + (None,) * 17,
]  # fmt: skip


@pytest.fixture
def connection(server):
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("binary", [False, True])
def test_values_of_every_type_come_back(connection, binary):
    with connection.cursor(binary=binary) as cursor:
        rows = cursor.execute("select * from kinds order by nth").fetchall()
    assert rows == KINDS


def test_psycopg2_reads_the_same(server):
    with psycopg2.connect(server.dsn) as connection, connection.cursor() as cursor:
        cursor.execute("select * from kinds where nth > %s order by nth", (0,))
        rows = [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in cursor.fetchall()]
    assert rows == KINDS


@pytest.mark.parametrize(
    "value",
    [1, -5, 2**40, 1.5, float("nan"), True, "a 'text'", b"\x00\x01", decimal.Decimal("123456789.000001"),
     decimal.Decimal("-0.5"), datetime.date(2024, 2, 29), datetime.time(1, 2, 3, 4),
     datetime.datetime(2024, 1, 1, 2, 3, 4, 5), datetime.datetime(2024, 1, 1, tzinfo=UTC), [1, 2], ["a", None, "b,c"],
     None],
)  # fmt: skip
@pytest.mark.parametrize("binary", [False, True])
def test_parameters_come_back(connection, value, binary):
    mark = "%b" if binary else "%t"
    if isinstance(value, str):
        mark += "::text"
    if isinstance(value, list) and isinstance(value[0], str):
        mark += "::text[]"
    row = connection.execute(f"select {mark} as v", (value,), binary=binary).fetchone()
    if isinstance(value, float) and value != value:
        assert row[0] != row[0]
    else:
        assert row == (value,)


def test_parameters_stand_where_values_stand(connection):
    query = "select count(*) from many where part = %s and id < %s and id in (select id from many where id between %s and %s)"
    assert connection.execute(query, (3, 1000, 0, 500)).fetchone() == (72,)
    assert connection.execute("select id from many order by id limit %s offset %s", (2, 5)).fetchall() == [(5,), (6,)]
    assert connection.execute("select count(*) from kinds where day = %s", ("1999-12-31",)).fetchone() == (1,)
    assert connection.execute("select count(*) from kinds where nth = any(%s)", ([1, 3, 9],)).fetchone() == (2,)


def test_statements_are_prepared_and_stay_right(connection):
    for nth in range(12):
        row = connection.execute("select %s + nth from kinds where nth = %s", (nth, 2), prepare=True).fetchone()
        assert row == (nth + 2,)


@pytest.mark.parametrize("withhold", [False, True])
def test_server_cursors_go_forward(server, withhold):
    with psycopg.connect(server.dsn) as connection:
        with connection.cursor("c", withhold=withhold) as cursor:
            cursor.itersize = 1000
            cursor.execute("select id from many where part = %s order by id", (3,))
            assert cursor.fetchmany(3) == [(3,), (10,), (17,)]
            if withhold:
                connection.commit()
            assert sum(1 for _ in cursor) == 2_000_000 // 7 - 3 + (1 if 2_000_000 % 7 > 3 else 0)
        with pytest.raises(psycopg.errors.InvalidCursorName):
            connection.execute("fetch 1 from c")


def test_cursors_end_with_their_transaction(server):
    with psycopg.connect(server.dsn) as connection:
        connection.execute("declare c cursor for select 1")
        connection.commit()
        with pytest.raises(psycopg.errors.InvalidCursorName):
            connection.execute("fetch all from c")


def test_copies(connection):
    def copied(query):
        with connection.cursor().copy(query) as copy:
            return b"".join(bytes(data) for data in copy)

    assert copied("copy (select nth, text from kinds order by nth) to stdout") == b"1\tit's \"\xc3\xa9\"\n2\t\n3\t\\N\n"
    csv = copied("copy kinds (nth, text, list) to stdout with (format csv, header)")
    assert csv.startswith(b'nth,text,list\n1,"it\'s ""\xc3\xa9""","{1,NULL}"\n2,"",{}\n3,,\n')
    with connection.cursor().copy("copy (select nth, price, moment from kinds order by nth) to stdout (format binary)") as copy:
        copy.set_types(["int4", "numeric", "timestamp"])
        assert list(copy.rows()) == [(row[0], row[8], row[14]) for row in KINDS]
    with connection.cursor().copy("copy many to stdout") as copy:
        assert sum(bytes(data).count(b"\n") for data in copy) == 2_000_000
    assert connection.execute("select 1").fetchone() == (1,)


def test_what_is_copied_in_is_refused(connection):
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        with connection.cursor().copy("copy kinds from stdin") as copy:
            copy.write(b"1\n")
    assert connection.execute("select 1").fetchone() == (1,)


def test_errors_have_their_state_and_place(connection):
    for query, kind, position in [
        ("select nthh from kinds", psycopg.errors.UndefinedColumn, 8),
        ("select * from nothing", psycopg.errors.UndefinedTable, None),
        ("selec 1", psycopg.errors.SyntaxError, None),
        ("select 1/0", psycopg.errors.DivisionByZero, None),
        ("select cast('x' as int)", psycopg.errors.InvalidTextRepresentation, None),
        ("create table t as select 1", psycopg.errors.InsufficientPrivilege, None),
        ("select * from '/etc/passwd'", psycopg.errors.InsufficientPrivilege, None),
    ]:
        with pytest.raises(kind) as caught:
            connection.execute(query)
        diag = caught.value.diag
        assert diag.message_primary and diag.severity == "ERROR", query
        if position:
            assert diag.statement_position == str(position), query
    with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
        connection.execute("select nthh from kinds")
    assert "nth" in caught.value.diag.message_hint


def test_transactions(server):
    with psycopg.connect(server.dsn) as connection:
        connection.execute("select 1")
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("select * from nothing")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("select 1")
        connection.rollback()
        with connection.transaction():
            with pytest.raises(psycopg.errors.UndefinedTable):
                with connection.transaction():
                    connection.execute("select * from nothing")
            assert connection.execute("select 2").fetchone() == (2,)
    with psycopg.connect(server.dsn) as connection, connection.pipeline():
        cursors = [connection.execute("select %s::int", (nth,)) for nth in range(20)]
        assert [cursor.fetchone()[0] for cursor in cursors] == list(range(20))


def test_what_runs_is_cancelled(connection):
    slow = "select count(*) from many a join many b on a.part = b.part where a.id + b.id = -1"
    started = time.monotonic()
    threading.Timer(0.5, connection.cancel_safe).start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute(slow)
    assert time.monotonic() - started < 30
    connection.execute("set statement_timeout = '300ms'")
    started = time.monotonic()
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute(slow)
    assert time.monotonic() - started < 30
    connection.execute("reset statement_timeout")
    # One that comes when nothing runs has no later victim.
    connection.cancel_safe()
    time.sleep(0.2)
    assert connection.execute("select count(*) from many").fetchone() == (2_000_000,)


def test_settings_are_the_sessions(server, connection):
    connection.execute("set application_name = 'tests'")
    assert connection.execute("show application_name").fetchone() == ("tests",)
    assert connection.info.parameter_status("application_name") == "tests"
    connection.execute("set headrace.threads = 1")
    assert connection.execute("show headrace.threads").fetchone()[-1] == "1"
    with psycopg.connect(server.dsn, autocommit=True) as other:
        assert other.execute("show headrace.threads").fetchone()[-1] != "1"
    connection.execute("discard all")
    assert connection.execute("show application_name").fetchone() == ("",)
    assert connection.execute("show headrace.threads").fetchone()[-1] != "1"
    with pytest.raises(psycopg.Error):
        connection.execute("set client_encoding = 'latin1'")
    assert connection.execute("show transaction isolation level").fetchone() == ("read committed",)


def test_large_answers_come_in_pieces(server):
    before = server.memory_bytes()
    with psycopg.connect(server.dsn) as connection:
        with connection.cursor("big") as cursor:
            cursor.itersize = 100
            cursor.execute("select a.text from wide a, kinds b, kinds c")
            seen = 0
            for (text,) in cursor:
                assert len(text) == 10_000
                seen += 1
                if seen == 5000:
                    break
        # 180 MB, by the extended protocol and without a limit of rows.
        cursor = psycopg.RawCursor(connection)
        for nth, _ in enumerate(cursor.stream("select a.text from wide a, kinds b, kinds c where b.nth > $1", (0,))):
            pass
        assert nth == 2000 * 9 - 1
    assert server.memory_bytes() - before < 150_000_000


def test_names_that_need_quotes(connection):
    query = sql.SQL("select {} as {} from kinds where nth = 1").format(sql.Identifier("text"), sql.Identifier('a "b" c'))
    cursor = connection.execute(query)
    assert cursor.description[0].name == 'a "b" c' and cursor.fetchone() == (KINDS[0][9],)
