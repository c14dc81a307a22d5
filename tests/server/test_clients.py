"""Other drivers and tools: asyncpg, SQLAlchemy with pandas, ADBC, node-pg, pgjdbc, psql."""

import asyncio
import datetime
import decimal
import pathlib
import shutil
import subprocess

import asyncpg
import pandas
import psycopg
import pyarrow as pa
import pytest
import sqlalchemy

HERE = pathlib.Path(__file__).parent
TARGET = HERE.parent.parent / "target"


def psql(server, *words, **options):
    command = ["psql", "-X", "-q", "-h", "127.0.0.1", "-p", str(server.port), "-U", "ada", "-d", "headrace", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def test_asyncpg(server):
    async def run():
        connection = await asyncpg.connect(host="127.0.0.1", port=server.port, user="ada", database="headrace")
        row = await connection.fetchrow("select * from kinds where nth = $1", 1)
        assert (row["big"], row["price"], row["list"]) == (-(2**63), decimal.Decimal("-12.50"), [1, None])
        assert row["moment"] == datetime.datetime(2024, 3, 5, 10, 11, 12, 500000)
        assert row["texts"] == ["a,b", None, "NULL"] and row["bytes"] == b"\x00\xff"
        # It has no types of its own: those that the planner sees are what it encodes.
        assert await connection.fetchval("select count(*) from many where part = $1 and id < $2", 3, 100) == 14
        assert await connection.fetchval("select $1::date + 1", datetime.date(2024, 2, 28)) == datetime.date(2024, 2, 29)
        assert await connection.fetchval("select count(*) from kinds where price > $1", decimal.Decimal("0")) == 1
        async with connection.transaction():
            seen = 0
            async for record in connection.cursor("select id from many order by id", prefetch=1000):
                assert record["id"] == seen
                seen += 1
                if seen == 2500:
                    break
        with pytest.raises(asyncpg.UndefinedTableError):
            await connection.fetch("select * from nothing")
        with pytest.raises(asyncio.TimeoutError):
            await connection.fetch("select count(*) from many a join many b on a.part = b.part where a.id + b.id = -1", timeout=0.5)
        assert await connection.fetchval("select 1") == 1
        await connection.close()
        async with asyncpg.create_pool(host="127.0.0.1", port=server.port, user="ada", database="headrace") as pool:
            values = await asyncio.gather(*(pool.fetchval("select $1::int", nth) for nth in range(50)))
            assert values == list(range(50))

    asyncio.run(run())


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_and_pandas(server, driver):
    engine = sqlalchemy.create_engine(server.url.replace("postgresql", f"postgresql+{driver}"))
    frame = pandas.read_sql("select part, count(*) as n from many group by part order by part", engine)
    assert frame["part"].tolist() == list(range(7)) and frame["n"].sum() == 2_000_000
    chunks = pandas.read_sql("select id from many where id < 25000", engine, chunksize=10_000)
    assert [len(chunk) for chunk in chunks] == [10_000, 10_000, 5_000]
    inspector = sqlalchemy.inspect(engine)
    assert inspector.get_table_names() == ["kinds", "many", "wide"]
    assert inspector.has_table("kinds") and not inspector.has_table("nothing")
    columns = {column["name"]: column["type"] for column in inspector.get_columns("kinds")}
    assert isinstance(columns["price"], sqlalchemy.NUMERIC) and columns["price"].scale == 2
    assert isinstance(columns["list"], sqlalchemy.ARRAY)
    table = sqlalchemy.Table("kinds", sqlalchemy.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        query = sqlalchemy.select(table.c.text).where(table.c.nth == 1)
        assert connection.execute(query).scalar() == "it's \"é\""
    assert len(pandas.read_sql_table("kinds", engine)) == 3
    engine.dispose()


def test_adbc(server):
    import adbc_driver_postgresql.dbapi

    with adbc_driver_postgresql.dbapi.connect(server.url) as connection, connection.cursor() as cursor:
        cursor.execute("select id, part from many where part = 3")
        table = cursor.fetch_arrow_table()
        assert table.num_rows == 285_714 and table.schema.field("id").type == pa.int64()
        assert table["part"].unique().to_pylist() == [3]
        cursor.execute("select text, flag, double, day, bytes, list from kinds order by nth")
        rows = cursor.fetch_arrow_table().to_pylist()
        assert rows[0] == {"text": "it's \"é\"", "flag": True, "double": 1 / 3, "day": datetime.date(1999, 12, 31),
                           "bytes": b"\x00\xff", "list": [1, None]}  # fmt: skip
        cursor.execute("select count(*) from many where part = $1", (3,))
        assert cursor.fetchone() == (285_714,)


def test_node(server):
    modules = TARGET / "node-clients"
    if not (modules / "node_modules" / "pg").exists():
        modules.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "pg@8", "pg-cursor@2"], cwd=modules, check=True)
    shutil.copy(HERE / "clients" / "node.mjs", modules / "node.mjs")
    done = subprocess.run(["node", "node.mjs", str(server.port)], cwd=modules, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "node-pg: done\n", done.stdout + done.stderr


def test_pgjdbc(server):
    jar = TARGET / "jdbc-client" / "postgresql.jar"
    if not jar.exists():
        jar.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["mvn", "-q", "dependency:copy", "-Dartifact=org.postgresql:postgresql:42.7.7", f"-DoutputDirectory={jar.parent}",
             "-Dmdep.stripVersion=true"], check=True, capture_output=True, cwd=jar.parent,
        )  # fmt: skip
    command = ["java", "-cp", str(jar), str(HERE / "clients" / "Jdbc.java"), str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and done.stdout == "pgjdbc: done\n", done.stdout + done.stderr


def test_psql_describes_tables(server):
    assert [line.split("|")[1] for line in psql(server, "-At", "-c", r"\dt").stdout.splitlines()] == ["kinds", "many", "wide"]
    for command in [r"\d", r"\d+", r"\dt+", r"\dv", r"\di", r"\ds", r"\dn", r"\dn+", r"\du", r"\l", r"\df", r"\dT", r"\dp",
                    r"\db", r"\dx", r"\dy", r"\dew", r"\des", r"\det", r"\dD", r"\dC", r"\dc", r"\da", r"\dO", r"\dF",
                    r"\dRp", r"\dRs", r"\dX", r"\dL", r"\conninfo"]:  # fmt: skip
        done = psql(server, "-c", command)
        assert done.returncode == 0 and not done.stderr, (command, done.stderr)
    told = psql(server, "-c", r"\d kinds").stdout
    for line in ["nth | integer", "price | numeric(15,2)", "list | integer[]", "moment | timestamp without time zone"]:
        assert line in " ".join(told.split()).replace(" |", " |"), (line, told)
    nothing = psql(server, "-c", r"\d nothing")
    assert (nothing.returncode, nothing.stdout) == (1, ""), nothing
    assert psql(server, "-c", r"\d+ many").returncode == 0


def test_psql_copies_and_scripts(server, tmp_path):
    file = tmp_path / "out.csv"
    done = psql(server, "-c", rf"\copy (select id from many where id < 3 order by id) to '{file}' with (format csv, header)")
    assert done.returncode == 0 and file.read_text() == "id\n0\n1\n2\n", done.stderr
    script = "begin; select 1 as a; select 2 as b; commit; \\gset\nselect 'x' as y \\gset\n\\echo :y\n"
    done = psql(server, "-At", input=script)
    assert done.stdout.split() == ["1", "2", "x"], done
    done = psql(server, "-c", "select 1;\nselect nthh from kinds")
    assert "LINE 2: select nthh from kinds\n               ^" in done.stderr, done.stderr
    assert psql(server, "-At", input="select 1 \\; select 2;\n").stdout.split() == ["1", "2"]
    done = psql(server, "-At", "-v", "FETCH_COUNT=1000", "-c", "select id from many where id < 2500 order by id")
    assert done.stdout.split() == [str(nth) for nth in range(2500)]


def test_psql_cancels(server):
    import signal
    import time

    command = ["psql", "-X", "-h", "127.0.0.1", "-p", str(server.port), "-U", "ada", "-d", "headrace"]
    slow = "select count(*) from many a join many b on a.part = b.part where a.id + b.id = -1"
    client = subprocess.Popen([*command, "-c", slow], stderr=subprocess.PIPE, text=True)
    time.sleep(1)
    started = time.monotonic()
    client.send_signal(signal.SIGINT)
    _, said = client.communicate(timeout=60)
    assert "cancel" in said.lower() and time.monotonic() - started < 30, said


def test_what_tools_ask_first(server):
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for query, value in [
            ("select current_schema()", "public"),
            ("select current_database()", "headrace"),
            ("select current_user", "ada"),
            ("select current_setting('server_version_num')", "150000"),
            ("select pg_catalog.current_setting('standard_conforming_strings')", "on"),
            ("select set_config('search_path', '', false)", ""),
            ("select 'kinds'::regclass::oid = (select oid from pg_class where relname = 'kinds')", True),
            ("select 'kinds'::regclass::text", "kinds"),
            ("select format_type(atttypid, atttypmod) from pg_attribute where attname = 'price'", "numeric(15,2)"),
            ("select typname from pg_type where oid = 1007", "_int4"),
            ("select count(*) from information_schema.columns where table_name = 'kinds'", 18),
            ("select data_type from information_schema.columns where column_name = 'price'", "numeric"),
            ("select table_type from information_schema.tables where table_name = 'kinds'", "BASE TABLE"),
            ("select string_agg(nspname, ',' order by nspname) from pg_namespace", "information_schema,pg_catalog,public"),
            ("select has_table_privilege('kinds', 'select')", True),
            ("select pg_table_is_visible(oid) from pg_class where relname = 'many'", True),
            ("select count(*) from pg_index", 0),
            ("select exists(select 1 from pg_trigger)", False),
        ]:
            assert connection.execute(query).fetchone()[0] == value, query
        assert connection.execute("select version()").fetchone()[0].startswith("PostgreSQL 15")
        assert connection.execute("select version()").description[0].name == "version"
