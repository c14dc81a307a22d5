"""Functions in CUDA: who may make them, through which door, and who never sees them."""

import base64
import shutil
import subprocess

import adbc_driver_flightsql.dbapi as flight
import adbc_driver_manager
import psycopg
import pytest
from conftest import PASSWORD, PROGRAM
from test_http import ask, get

MAKE = "create or replace function plus_one(n int) returns bigint language cuda as 'return n + 1ll;' twin 'cast(n as bigint) + 1'"
ANSWER = "select plus_one(41)"


@pytest.fixture(scope="module")
def granting(tmp_path_factory, data, users):
    """A server where ada may make functions, and bob everything else."""
    from conftest import Server

    folder = tmp_path_factory.mktemp("functions") / "data"
    shutil.copytree(data, folder)
    server = Server(folder, "--writable", "--users", str(users), "--cuda-functions", "ada")
    yield server
    server.stop()


def connected(server, name, **options):
    return psycopg.connect(host="127.0.0.1", port=server.port, user=name, password=PASSWORD, dbname="headrace", autocommit=True, **options)


def basic(name):
    return "Basic " + base64.b64encode(f"{name}:{PASSWORD}".encode()).decode()


def over_flight(server, name):
    given = adbc_driver_manager.DatabaseOptions
    return flight.connect(server.flight, {given.USERNAME.value: name, given.PASSWORD.value: PASSWORD})


def done(cursor, sql):
    """Has a statement done: what it answers comes when it is asked for, and so does its failure."""
    cursor.execute(sql)
    return cursor.fetch_arrow_table()


def refused(connection, sql, cause, state="42501", **options):
    with pytest.raises(psycopg.Error, match=cause) as caught:
        connection.execute(sql, **options)
    assert caught.value.sqlstate == state, sql
    return caught.value


def test_who_was_granted_it_makes_functions(granting):
    with connected(granting, "ada") as connection:
        connection.execute(MAKE)
        assert connection.execute(ANSWER).fetchone() == (42,)
        connection.execute(MAKE.replace("+ 1", "+ 2").replace("n + 1ll", "n + 2ll"), prepare=True)
        assert connection.execute(ANSWER).fetchone() == (43,)
        connection.execute("drop function plus_one")
        refused(connection, ANSWER, "plus_one", "42883")
    status, _, body = ask(granting, "/query", MAKE, Authorization=basic("ada"))
    assert status == 200, body
    with over_flight(granting, "ada") as connection, connection.cursor() as cursor:
        done(cursor, MAKE)
        # Each statement has a session of its own there.
        with pytest.raises(adbc_driver_manager.Error, match="plus_one"):
            done(cursor, ANSWER)


def test_who_was_not_is_told_by_every_door(granting):
    cause = "bob may not make functions in CUDA"
    with connected(granting, "bob") as connection:
        hint = refused(connection, MAKE, cause).diag.message_hint
        assert "--cuda-functions bob" in hint, hint
        for sql in [
            "  /* it */ " + MAKE,
            "-- it\n" + MAKE.upper().replace("'RETURN N + 1LL;'", "'return n;'"),
            MAKE.replace(" or replace", ""),
            "select 1; " + MAKE,
            "create function f(n int)",
            "drop function if exists plus_one",
        ]:
            refused(connection, sql, cause)
        # By the extended protocol, described first.
        refused(connection, MAKE, cause, prepare=True)
        connection.execute("create table of_bob as select 1 as a")
        refused(connection, ANSWER, "plus_one", "42883")
    status, _, body = ask(granting, "/query", MAKE, Authorization=basic("bob"))
    assert status == 403 and cause.encode() in body and b"--cuda-functions bob" in body, body
    with over_flight(granting, "bob") as connection, connection.cursor() as cursor:
        for sql in (MAKE, MAKE.split(" twin")[0]):
            with pytest.raises(adbc_driver_manager.Error, match=cause):
                done(cursor, sql)
            with pytest.raises(adbc_driver_manager.Error, match=cause):
                cursor.executescript(sql)


def test_nobody_makes_one_by_a_prepared_statement(granting):
    for name in ("ada", "bob"):
        with connected(granting, name) as connection:
            for body in (MAKE, MAKE.split(" twin")[0]):
                with pytest.raises(psycopg.Error):
                    connection.execute("prepare made as " + body)
                    connection.execute("execute made")
                with pytest.raises(psycopg.Error):
                    connection.execute("explain analyze " + body)
            refused(connection, ANSWER, "plus_one", "42883")


def test_one_lasts_as_long_as_its_session_and_nobody_else_has_it(granting):
    with connected(granting, "ada") as ada, connected(granting, "bob") as bob:
        ada.execute(MAKE)
        with_bob = "select plus_one(nth) from kinds order by 1"
        assert ada.execute(with_bob).fetchall() == [(2,), (3,), (4,)]
        # The same text has a plan, which is ada's.
        refused(bob, with_bob, "plus_one", "42883")
        ada.execute("create view raised as select plus_one(nth) as n from kinds")
        assert ada.execute("select sum(n) from raised").fetchone() == (9,)
        refused(bob, "select sum(n) from raised", "plus_one", "42883")
        status, _, body = get(granting, "select sum(n) from raised", Authorization=basic("bob"))
        assert status == 400 and b"plus_one" in body, body
        with connected(granting, "ada") as other:
            refused(other, ANSWER, "plus_one", "42883")
        ada.execute("discard all")
        refused(ada, ANSWER, "plus_one", "42883")
        ada.execute("drop view raised")


def test_what_only_reads_makes_none(granting):
    status, _, body = get(granting, MAKE, Authorization=basic("ada"))
    assert status == 403 and b"only reads" in body, body
    with connected(granting, "ada") as connection:
        connection.execute("begin read only")
        refused(connection, MAKE, "makes or drops a function")


def test_to_write_is_another_right(servers, data, users):
    server = servers(data, "--users", str(users), "--cuda-functions", "ada")
    with connected(server, "ada") as connection:
        connection.execute(MAKE)
        assert connection.execute(ANSWER).fetchone() == (42,)
        refused(connection, "create table t as select 1 as a", "changes tables or files")


def test_without_passwords_nobody_makes_functions(servers, data, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    server = servers(folder, "--writable")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        hint = refused(connection, MAKE, "nobody may make functions in CUDA").diag.message_hint
        assert "--users FILE --cuda-functions USER" in hint
    assert ask(server, "/query", MAKE)[0] == 403


def test_grants_name_users(data, users):
    def start(*options):
        command = [PROGRAM, "serve", "--data", data, "--postgres", "127.0.0.1:0", "--http", "off", "--flight", "off", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    ended = start("--users", users, "--cuda-functions", "ada", "--cuda-functions", "eve")
    assert ended.returncode == 1 and "--cuda-functions eve: there is no such user" in ended.stderr, ended.stderr
    ended = start("--cuda-functions", "ada")
    assert ended.returncode == 2 and "--users" in ended.stderr, ended.stderr
