"""Arrow Flight SQL: ADBC's driver and JDBC's."""

import datetime
import pathlib
import subprocess

import adbc_driver_flightsql.dbapi as flight
import adbc_driver_manager
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from conftest import PASSWORD

HERE = pathlib.Path(__file__).parent
TARGET = HERE.parent.parent / "target"


def test_adbc_takes_columns(server):
    with flight.connect(server.flight) as connection, connection.cursor() as cursor:
        cursor.execute("select id, part from many where part = 3")
        table = cursor.fetch_arrow_table()
        assert table.num_rows == 285_714 and table.schema.field("part").type == pa.int32()
        cursor.execute("select nth, text, code, price, list from kinds order by nth")
        row = cursor.fetch_arrow_table().to_pylist()[0]
        assert (row["text"], row["code"], row["list"]) == ("it's \"é\"", "a", [1, None]) and str(row["price"]) == "-12.50"
        reader = connection.cursor()
        reader.execute("select a.text from wide a, kinds b")
        assert sum(batch.num_rows for batch in reader.fetch_record_batch()) == 6000
        reader.close()


def test_adbc_binds_values(server):
    with flight.connect(server.flight) as connection, connection.cursor() as cursor:
        for part in range(3):
            cursor.execute("select count(*) from many where part = $1 and id < $2", (part, 700))
            assert cursor.fetchone() == (100,)
        cursor.execute("select nth from kinds where text = $1 and day = $2", ("it's \"é\"", datetime.date(1999, 12, 31)))
        assert cursor.fetchone() == (1,)


def test_adbc_sees_tables(server):
    with flight.connect(server.flight) as connection:
        found = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
        tables = [t["table_name"] for c in found for s in c["catalog_db_schemas"] for t in s["db_schema_tables"]]
        assert sorted(tables) == ["kinds", "many", "wide"]
        assert connection.adbc_get_table_schema("many").names == ["id", "part"]
        assert connection.adbc_get_info()["vendor_name"] == "Headrace"


def test_failures_are_told(server):
    with flight.connect(server.flight) as connection, connection.cursor() as cursor:
        for sql, text in [("select nthh from kinds", "nthh"), ("select * from nothing", "nothing"), ("selec", "42601")]:
            with pytest.raises(adbc_driver_manager.Error) as caught:
                cursor.execute(sql)
                cursor.fetch_arrow_table()
            assert text in str(caught.value)
        with pytest.raises(adbc_driver_manager.Error):
            cursor.executescript("create table t as select 1") if hasattr(cursor, "executescript") else cursor.execute(
                "create table t as select 1"
            )


def test_users_have_passwords(servers, data, users):
    server = servers(data, "--users", str(users))

    def options(name, password):
        return {adbc_driver_manager.DatabaseOptions.USERNAME.value: name,
                adbc_driver_manager.DatabaseOptions.PASSWORD.value: password}  # fmt: skip

    with flight.connect(server.flight, options("ada", PASSWORD)) as connection, connection.cursor() as cursor:
        cursor.execute("select 1")
        assert cursor.fetchone() == (1,)
    for given in [options("ada", "wrong"), options("eve", PASSWORD), {}]:
        with pytest.raises(adbc_driver_manager.Error):
            with flight.connect(server.flight, given) as connection, connection.cursor() as cursor:
                cursor.execute("select 1")
    with pytest.raises(adbc_driver_manager.Error):
        bearer = {DatabaseOptions.AUTHORIZATION_HEADER.value: "Bearer YTpi.YTpi"}
        with flight.connect(server.flight, bearer) as connection, connection.cursor() as cursor:
            cursor.execute("select 1")


def test_tls(servers, data, users, certificate):
    cert, key = certificate
    server = servers(data, "--users", str(users), "--tls-certificate", str(cert), "--tls-key", str(key))
    options = {adbc_driver_manager.DatabaseOptions.USERNAME.value: "ada",
               adbc_driver_manager.DatabaseOptions.PASSWORD.value: PASSWORD,
               DatabaseOptions.TLS_ROOT_CERTS.value: cert.read_text()}  # fmt: skip
    with flight.connect(server.flight, options) as connection, connection.cursor() as cursor:
        cursor.execute("select count(*) from many")
        assert cursor.fetchone() == (2_000_000,)


def test_jdbc(server):
    jar = TARGET / "jdbc-client" / "flight-sql-jdbc-driver.jar"
    if not jar.exists():
        jar.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["mvn", "-q", "dependency:copy", "-Dartifact=org.apache.arrow:flight-sql-jdbc-driver:18.3.0",
             f"-DoutputDirectory={jar.parent}", "-Dmdep.stripVersion=true"], check=True, capture_output=True, cwd=jar.parent,
        )  # fmt: skip
    command = ["java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", str(jar), str(HERE / "clients" / "Flight.java"),
               server.flight.rsplit("/", 1)[1]]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and done.stdout.endswith("flight jdbc: done\n"), done.stdout[-2000:] + done.stderr[-3000:]
