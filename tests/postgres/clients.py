"""The commands that talk to a server from outside: `headrace pg export`, `headrace doctor --postgres`.

An exported file is read by PyArrow and compared with what the server says of every value; what is
written meanwhile must not show. Run by tests/postgres/run, which starts the server.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

import pyarrow
import pyarrow.compute
import pyarrow.ipc

from lib import wire

SQL = pathlib.Path(__file__).parent / "clients.sql"

# What the server says of a value, by its type, so that it can be compared with an Arrow value as text.
MICROSECONDS = "(extract(epoch from {}) * 1000000)::int8"
SAID = {
    "float4": "encode(float4send({}), 'hex')", "float8": "encode(float8send({}), 'hex')",
    "date": "{} - date '1970-01-01'", "time": MICROSECONDS, "timestamp": MICROSECONDS, "timestamptz": MICROSECONDS,
    "uuid": "encode(uuid_send({}), 'hex')", "bytea": "encode({}, 'hex')",
}


def shown(column: pyarrow.ChunkedArray) -> list:
    """Values as the server's expressions above give them."""
    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        return column.cast(kind.value_type).to_pylist()
    if pyarrow.types.is_date32(kind):
        column = column.cast(pyarrow.int32())
    elif pyarrow.types.is_temporal(kind):
        column = column.cast(pyarrow.int64())
    form = {
        pyarrow.bool_(): lambda v: "true" if v else "false", pyarrow.float32(): lambda v: struct.pack(">f", v).hex(),
        pyarrow.float64(): lambda v: struct.pack(">d", v).hex(), pyarrow.binary(): bytes.hex,
        pyarrow.binary(16): bytes.hex,
    }.get(kind, str)
    if pyarrow.types.is_decimal(kind):
        form = lambda v: f"{v:f}"
    return [None if v is None else form(v) for v in column.to_pylist()]


class Suite:
    """Checks against one server, with one program."""

    def __init__(self, folder: pathlib.Path, headrace: str):
        self.folder, self.headrace = folder, headrace
        self.server = wire.Connection(folder)
        self.server.query(SQL.read_text())
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="clients-"))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        self.environment |= {"PGHOST": str(folder), "PGUSER": "postgres", "PGDATABASE": "postgres"}
        self.passed, self.failed = 0, []

    def check(self, name: str, holds, found="") -> None:
        if holds:
            self.passed += 1
        else:
            self.failed.append(name)
            print(f"FAILED {name}: {str(found)[:2000]}", file=sys.stderr)

    def command(self, *words, **more) -> list:
        return [self.headrace, *words, *(f"--{k}={v}" for k, v in more.items())]

    def run(self, *words) -> subprocess.CompletedProcess:
        return subprocess.run(self.command(*words), env=self.environment, capture_output=True, text=True, timeout=120)

    def export(self, *words) -> pyarrow.Table:
        """The file that an export writes, and what was said of it."""
        file = self.work / "exported.arrow"
        done = self.run("pg", "export", "-o", str(file), "--force", *words)
        if done.returncode:
            raise RuntimeError(f"{words}: exit {done.returncode}: {done.stderr}")
        self.said = done.stderr
        table = pyarrow.ipc.open_file(pyarrow.memory_map(str(file))).read_all()
        table.validate(full=True)
        return table

    def compare(self, name: str, table: pyarrow.Table, source: str, order: str) -> None:
        """The rows of a file are those of a source, as the server says them."""
        described = self.server.rows(
            f"create temp view described as select * from {source}; select attname, typname from pg_attribute"
            " join pg_type t on t.oid = atttypid where attrelid = 'described'::regclass and attnum > 0 order by attnum")
        self.server.query("drop view described")
        terms = []
        for i, (column, kind) in enumerate(described):
            quoted = '"' + column.replace('"', '""') + '"'
            term = SAID.get(kind, "{}::text").format(quoted)
            decimal = table.schema.field(column).type
            if kind == "numeric" and pyarrow.types.is_decimal(decimal):
                term = f"round({quoted}, {decimal.scale})::text"
            terms.append(f"{term} as shown_{i}")
        wanted = self.server.rows(f"select {', '.join(terms)} from {source} {order}")
        found = list(zip(*map(shown, table.columns)))
        if found != wanted:
            lines = [f"row {i}: {a} wanted {b}" for i, (a, b) in enumerate(zip(found, wanted)) if a != b]
            self.check(name, False, f"{len(found)} rows, {len(wanted)} wanted; {lines[:2]}")
        else:
            self.check(name, len(wanted) > 0, "nothing was compared")

    def fails(self, name: str, code: int, pattern: list, *words) -> None:
        """An export that must fail, say these words and leave nothing."""
        with tempfile.TemporaryDirectory() as folder:
            done = self.run("pg", "export", "-o", f"{folder}/new.arrow", *words)
            said = all(part in done.stderr for part in pattern)
            left = os.listdir(folder)
        self.check(name, done.returncode == code and said and not left, f"exit {done.returncode}, {left}, {done.stderr}")


def types(suite: Suite) -> None:
    for table in ["everything", "extremes", "texts", "altered", "churned"]:
        suite.compare(table, suite.export("--table", table, "--jobs", "2"), table, "order by ctid")
    everything = suite.export("--table", "everything")
    suite.check("casts are said", "as text: " in suite.said and "json" in suite.said and "tags (int4[])" in suite.said,
                suite.said)
    fields = {field.name: field.type for field in everything.schema}
    wanted = {"n1": pyarrow.decimal128(12, 2), "n3": pyarrow.decimal128(8, 0), "tz": pyarrow.timestamp("us", "UTC"),
              "u": pyarrow.binary(16), "mood": pyarrow.dictionary(pyarrow.int32(), pyarrow.utf8())}
    suite.check("types", all(fields[name] == kind for name, kind in wanted.items()), fields)
    free = suite.export("--table", "free_numeric")
    suite.check("digits are measured", free.schema.field("n").type == pyarrow.decimal128(12, 4), free.schema)
    suite.compare("measured numeric", free, "free_numeric", "order by ctid")
    given = suite.export("--table", "free_numeric", "--numeric", "26,6")
    suite.compare("numeric of given digits", given, "free_numeric", "order by ctid")
    text = suite.export("--table", "free_numeric", "--numeric", "text")
    suite.check("numeric as text keeps every digit", text["n"].to_pylist() == [
        row[0] for row in suite.server.rows("select n::text from free_numeric order by ctid")], text)
    named = suite.export("--table", "texts", "--dictionary", "t")
    suite.check("dictionaries", pyarrow.types.is_dictionary(named.schema.field("t").type), named.schema)
    suite.compare("texts as dictionary", named, "texts", "order by ctid")
    facts = suite.export("--table", "facts", "--jobs", "3")
    suite.check("columns declared NOT NULL", not facts.schema.field("id").nullable, facts.schema)
    suite.check("few values are told", "--dictionary kind" in suite.said, suite.said)
    if int(suite.server.value("show server_version_num")) >= 180000:
        suite.server.query("create table unchecked as select nullif(i, 3) as n from generate_series(1, 9) i;"
                           " alter table unchecked add constraint later not null n not valid")
        unchecked = suite.export("--table", "unchecked")
        suite.check("NOT NULL that is not checked yet", unchecked.schema.field("n").nullable and unchecked["n"].null_count == 1,
                    unchecked.schema)


def shapes(suite: Suite) -> None:
    suite.compare("a partitioned table", suite.export("--table", "parted", "--jobs", "3"), "parted",
                  "order by tableoid::regclass::text collate \"C\", ctid")
    suite.compare("a table with children", suite.export("--table", "parent"), "parent", "order by a")
    suite.compare("a view", suite.export("--table", "seen"), "seen", "order by id")
    suite.check("a view is read whole", "read by one connection: it is no plain table" in suite.said, suite.said)
    suite.compare("a materialized view", suite.export("--table", "kept"), "kept", "order by ctid")
    suite.compare("a name with capitals", suite.export("--table", '"Odd Name"'), '"Odd Name"', "order by ctid")
    suite.check("an empty table", suite.export("--table", "empty").num_rows == 0)
    suite.check("no columns", suite.export("--table", "none").num_columns == 0 and "500 rows" in suite.said, suite.said)
    suite.compare("a query", suite.export("--query", "select id, kind, '{1}'::int4[] as tags from facts where id < 300 order by id desc;"),
                  "(select id, kind, '{1}'::int4[] as tags from facts where id < 300) q", "order by id desc")
    suite.compare("a query left alone", suite.export("--query", "select id from facts where id < 9 order by id desc -- end"),
                  "(select id from facts where id < 9) q", "order by id desc")
    done = suite.run("pg", "export", "--table", "kept", "-o", f"{suite.work}/")
    suite.check("a folder gets the table's name", done.returncode == 0 and (suite.work / "kept.arrow").exists(), done)
    sums = set()
    for jobs in "1", "2", "5":
        suite.export("--table", "facts", "--jobs", jobs)
        sums.add(hashlib.sha256((suite.work / "exported.arrow").read_bytes()).hexdigest())
    suite.check("the same file from any number of connections", len(sums) == 1, sums)
    parts = suite.server.value("select pg_table_size('facts') / (16 << 20)")
    suite.check("of several parts", int(parts) >= 2, parts)


def folders(suite: Suite, has_extension: bool) -> None:
    """Files of a bounded size in a folder: one table for whoever reads it, whatever the connections."""
    tables = suite.work / "folders"
    tables.mkdir()
    sums = set()
    for jobs in "1", "4":
        done = suite.run("pg", "export", "--table", "facts", "--dictionary", "kind", "-o", f"{tables}/", "--file-size", "5MB",
                         "--jobs", jobs, "--force")
        suite.check("a folder is written", done.returncode == 0 and os.listdir(tables) == ["facts"], done)
        files = sorted((tables / "facts").iterdir())
        sums.add(tuple(hashlib.sha256(file.read_bytes()).hexdigest() for file in files))
    suite.check("the same files from any number of connections", len(sums) == 1, sums)
    sizes = [file.stat().st_size for file in files]
    suite.check("their sizes are bounded", len(files) > 3 and max(sizes) <= 5_000_000 and f"{len(files)} files" in done.stderr,
                (sizes, done.stderr))
    parts = [pyarrow.ipc.open_file(pyarrow.memory_map(str(file))).read_all() for file in files]
    suite.compare("a folder's rows", pyarrow.concat_tables(parts).unify_dictionaries(), "facts", "order by ctid")
    done = suite.run("pg", "export", "--table", "facts", "-o", f"{tables}/", "--file-size", "5MB")
    suite.check("a folder is not replaced unasked", done.returncode == 1 and "--force" in done.stderr, done)
    (tables / "facts" / "mine.txt").touch()
    done = suite.run("pg", "export", "--table", "facts", "-o", f"{tables}/", "--file-size", "5MB", "--force")
    suite.check("nor is one with other files", done.returncode == 1 and "other things" in done.stderr
                and sorted(os.listdir(tables / "facts")) == sorted(["mine.txt", *(f.name for f in files)]), done)
    (tables / "facts" / "mine.txt").unlink()
    if has_extension:
        sql = "select kind, count(*), sum(id), sum(amount) from {} group by kind order by kind"
        for place in suite.work, tables, tables / "facts":
            place.chmod(0o755)
        suite.server.query("create extension headrace; create schema files;"
                           f" import foreign schema \"{tables}\" from server headrace_files into files")
        found = suite.server.rows(sql.format("files.facts"))
        suite.check("IMPORT FOREIGN SCHEMA has it", found == suite.server.rows(sql.format("facts")), found)
        suite.server.query("drop schema files cascade; drop extension headrace")


def queries(suite: Suite) -> None:
    """The file as Headrace itself reads it, where the program is all of Headrace."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=suite.work))
    done = suite.run("pg", "export", "--table", "facts", "--dictionary", "kind", "-o", f"{folder}/")
    suite.check("exported for a query", done.returncode == 0, done.stderr)
    sql = "select kind, count(*) as n, sum(amount) as amount from facts group by kind order by kind"
    found = suite.run("--quiet", "--format", "csv", "--data", str(folder), "--fallback", "forbid", "-c", sql)
    wanted = "".join(",".join(row) + "\n" for row in suite.server.rows(sql))
    suite.check("Headrace answers as the server", found.stdout == "kind,n,amount\n" + wanted, found)


def refusals(suite: Suite) -> None:
    fails = suite.fails
    fails("NaN", 1, ["public.not_a_number: row 3, column n: NaN", "nullif"], "--table", "not_a_number")
    fails("an infinite date", 1, ["column d", "infinite date", "isfinite"], "--query", "select date 'infinity' as d")
    fails("an infinite moment", 1, ["infinite timestamp"], "--query", "select timestamptz '-infinity' as d")
    fails("24:00", 1, ["24:00:00", "nullif"], "--query", "select time '24:00' as d")
    fails("too few digits", 1, ["column n", "decimal(3, 1)"], "--table", "free_numeric", "--numeric", "3,1")
    fails("too many digits", 1, ["40 digits before", "--numeric text"], "--query", "select 1e39::numeric as n")
    fails("no such table", 1, ["no table nowhere", "\\d"], "--table", "nowhere")
    fails("no such function", 1, ["nothing_such", "42883"], "--query", "select nothing_such()")
    fails("a failure after some files", 1, ["division by zero"], "--file-size", "1MB",
          "--query", "select i, md5(i::text) as t, 1 / (900000 - i) as n from generate_series(1, 1000000) i")
    fails("files that are too small", 2, ["1MB"], "--table", "facts", "--file-size", "10kB")
    fails("parameters", 2, ["parameters"], "--query", "select $1::int4")
    fails("names twice", 2, ["two columns are named a"], "--query", "select 1 as a, 2 as a")
    fails("writes", 1, ["read-only", "25006"], "--query", "select nextval('counter') as n")
    fails("a division on the way", 1, ["division by zero"], "--query", "select 1 / (5000 - i) as n from generate_series(1, 9000) i")
    fails("no such column", 2, ["--dictionary id", "columns of texts: kind"], "--table", "facts", "--dictionary", "id")
    fails("no server", 1, ["nowhere", "PGHOST"], "--dsn", "host=/nowhere", "--table", "facts")
    fails("nobody to vouch for a server", 2, ["root.crt"], "--dsn", "sslmode=verify-ca", "--table", "facts")
    fails("no rights", 1, ["42501", "SELECT"], "--dsn", "user=nobody", "--table", "facts")
    fails("table and query", 2, ["cannot be used"], "--table", "a", "--query", "select 1")
    secret = suite.export("--dsn", "user=nobody", "--table", "secured")
    suite.check("row security holds", secret.column("a").to_pylist() == [1, 2] and "row security" in suite.said, secret)
    file = suite.work / "exported.arrow"
    before = file.read_bytes()
    done = suite.run("pg", "export", "--table", "facts", "-o", str(file))
    suite.check("nothing is replaced unasked", done.returncode == 1 and "--force" in done.stderr
                and file.read_bytes() == before, done.stderr)
    done = suite.run("pg", "export", "--table", "not_a_number", "-o", str(file), "--force")
    suite.check("a failure leaves the old file", done.returncode == 1 and file.read_bytes() == before, done.stderr)


def writers(suite: Suite, seconds: float) -> None:
    """Money moves between accounts, and rows move in the table; no export sees any of it half done."""
    stop, trouble, moved = threading.Event(), [], [0]

    def move(seed: int) -> None:
        chance = random.Random(seed)
        session = wire.Connection(suite.folder)
        try:
            while not stop.is_set():
                # Each has rows of its own to move: an update that waits for a row that moves would miss it.
                moving = 90000 + 3 * chance.randrange(3000) + seed
                a, b, amount = chance.randrange(90000), chance.randrange(90000), chance.randrange(1000)
                session.query(
                    f"begin; update accounts set balance = balance - {amount} where id = {min(a, b)};"
                    f" update accounts set balance = balance + {amount} where id = {max(a, b)};"
                    f" with gone as (delete from accounts where id = {moving} returning *)"
                    " insert into accounts select * from gone; commit")
                moved[0] += 1
        except wire.ServerError as error:
            trouble.append(error)
        finally:
            session.close()

    threads = [threading.Thread(target=move, args=(seed,)) for seed in range(3)]
    [thread.start() for thread in threads]
    end, exports, wrong = time.monotonic() + seconds, 0, []
    try:
        while time.monotonic() < end or exports < 2 and time.monotonic() < end + 30:
            before = moved[0]
            table = suite.export("--table", "accounts", "--jobs", "3")
            found = (table.num_rows, pyarrow.compute.sum(table["balance"]).as_py(),
                     pyarrow.compute.count_distinct(table["id"]).as_py())
            if found != (100_000, 100_000_000, 100_000):
                wrong.append(found)
            exports += moved[0] > before
    finally:
        stop.set()
        [thread.join() for thread in threads]
    suite.check("exports beside writers", exports > 1 and not wrong and not trouble, (exports, wrong[:3], trouble[:1]))


def tls(suite: Suite, port: int, folder: pathlib.Path) -> None:
    """TLS as libpq has it; the server says of each session whether it is encrypted."""
    asked = "select ssl::text, coalesce(client_dn, '') as dn from pg_stat_ssl where pid = pg_backend_pid()"
    encrypted, plain = {"ssl": ["true"], "dn": [""]}, {"ssl": ["false"], "dn": [""]}

    def server_of(dsn: str) -> str:
        return f"{dsn} port={port}" if "host=" in dsn else f"host=localhost port={port} {dsn}"

    def is_now(name: str, wanted, dsn: str) -> None:
        try:
            found = suite.export("--query", asked, "--dsn", server_of(dsn)).to_pydict()
        except RuntimeError as error:
            found = str(error)
        suite.check(f"TLS: {name}", found == wanted, found)

    def refused(name: str, words: list, dsn: str) -> None:
        suite.fails(f"TLS: {name}", 1, words, "--query", asked, "--dsn", server_of(dsn))

    root, alone = f"sslrootcert={folder}/root.crt", f"sslrootcert={folder}/alone.crt"
    for dsn, wanted in [("", encrypted), ("sslmode=prefer", encrypted), ("sslmode=disable", plain), ("sslmode=allow", plain),
                        ("sslmode=require", encrypted), (f"sslmode=verify-ca {root}", encrypted),
                        (f"sslmode=verify-full {root}", encrypted), (f"host=127.0.0.1 sslmode=verify-ca {root}", encrypted)]:
        is_now(dsn, wanted, dsn)
    # The user's own authority is heeded in every mode.
    home = suite.work / "home"
    (home / ".postgresql").mkdir(parents=True)
    suite.environment["HOME"] = str(home)
    (home / ".postgresql" / "root.crt").write_bytes((folder / "alone.crt").read_bytes())
    refused("another authority", ["invalid peer certificate", "sslrootcert=FILE"], "sslmode=require")
    is_now("prefer goes on without what it cannot trust", plain, "sslmode=prefer")
    (home / ".postgresql" / "root.crt").write_bytes((folder / "root.crt").read_bytes())
    is_now("the user's authority", encrypted, "sslmode=verify-full")
    refused("another name", ["not valid for name", "must have the name"], "host=127.0.0.1 sslmode=verify-full")
    refused("the system's authorities", ["invalid peer certificate"], "sslrootcert=system")
    key = suite.work / "postgres.key"
    key.write_bytes((folder / "postgres.key").read_bytes())
    client = f"sslcert={folder}/postgres.crt sslkey={key}"
    key.chmod(0o644)
    refused("a key that others may read", ["chmod 600"], f"sslmode=require {client}")
    key.chmod(0o600)
    is_now("a client's certificate", {"ssl": ["true"], "dn": ["/CN=postgres"]}, f"sslmode=require {client}")
    large = suite.export("--table", "facts", "--jobs", "3", "--dsn", f"host=localhost port={port} sslmode=verify-full")
    suite.compare("a table through TLS", large, "facts", "order by ctid")

    def reload(*settings: str) -> None:
        for setting in settings:
            suite.server.query(f"alter system set {setting}")
        suite.server.query("select pg_reload_conf()")
        time.sleep(0.3)

    reload(f"ssl_cert_file = '{folder}/alone.crt'", f"ssl_key_file = '{folder}/alone.key'")
    is_now("a server that vouches for itself", encrypted, f"sslmode=verify-full {alone}")
    refused("and is not known", ["invalid peer certificate"], f"sslmode=verify-ca {root}")
    reload("ssl = off")
    is_now("a server without TLS", plain, "")
    refused("which must have it", ["ssl = off"], "sslmode=require")
    del suite.environment["HOME"]


def interruptions(suite: Suite) -> None:
    for delay, words in [(0.3, ["--query", "select pg_sleep(20)::text as s"]),
                         (0.6, ["--query", "select i, md5(i::text) as t from generate_series(1, 100000000) i"]),
                         (0.6, ["--query", "select i, md5(i::text) as t from generate_series(1, 100000000) i", "--file-size", "1MB"]),
                         (0.5, ["--table", "slow", "--jobs", "2"])]:
        with tempfile.TemporaryDirectory() as folder:
            running = subprocess.Popen(suite.command("pg", "export", "-o", f"{folder}/new.arrow", *words),
                                       env=suite.environment, stderr=subprocess.PIPE, text=True)
            time.sleep(delay)
            running.send_signal(signal.SIGINT)
            try:
                said = running.communicate(timeout=10)[1]
            except subprocess.TimeoutExpired:
                running.kill()
                said = "did not end"
            left = os.listdir(folder)
        suite.check(f"Ctrl-C: {words[1:]}", running.returncode == 130 and not left, (running.returncode, left, said))
    time.sleep(0.5)
    busy = suite.server.value("select count(*) from pg_stat_activity where application_name = 'headrace'")
    suite.check("sessions end with Ctrl-C", busy == "0", busy)
    # The server goes on its own: as good as a crash.
    with tempfile.TemporaryDirectory() as folder:
        running = subprocess.Popen(suite.command("pg", "export", "-o", f"{folder}/new.arrow", "--table", "slow"),
                                   env=suite.environment, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        suite.server.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'headrace'")
        said = running.communicate(timeout=20)[1]
        left = os.listdir(folder)
    suite.check("terminated sessions", running.returncode == 1 and not left and "57P01" in said, (running.returncode, left, said))


def by_the_extension(suite: Suite, findings) -> None:
    """What the doctor knows from the extension, and from nobody else."""
    ask, server = findings, suite.server
    found = ask("")["extension headrace"]
    suite.check("the extension is there, but not in this database", "broken: 0.1.0 is installed, but not" in found, found)
    server.query("create extension headrace")
    found = ask("")["extension headrace"]
    suite.check("the extension is loaded", "ok: 0.1.0, loaded" in found, found)
    said = ask("")
    suite.check("the GPUs", "ok: " in said.get("GPU", "") and ("none, pipelines" in said["GPU"] or "MPS" in said["GPU service"]), said)
    for name in "enabled", "enable_join", "enable_scan", "enable_direct_read":
        with_setting(server, f"headrace.{name}", "off", lambda: suite.check(
            f"{name} is off", f"SET headrace.{name} = on" in ask("").get(f"headrace.{name}", "")))
    with_setting(server, "headrace.min_table_size", "1MB", lambda: suite.check(
        "its threshold counts", "churned" in ask("") and "extremes" not in ask(""), ask("").keys()))
    with_setting(server, "headrace.startup_cost", "1e9", lambda: suite.check(
        "costs are told", "headrace.startup_cost is 1e+09" in ask("")["facts"], ask("")["facts"]))
    said = ask("", "--all")
    for table, words in [("everything", "point (type point)"), ("everything", "tags (type integer[])"),
                         ("everything", "moods (type mood[])"), ("free_numeric", "n (numeric without declared digits, of which ANALYZE free_numeric would tell some)"),
                         ("everything", "n3 (numeric without declared digits, of which ANALYZE everything would tell some)")]:
        suite.check(f"--all: {table}: {words}", words in said.get(table, ""), said.get(table))
    for taken in ["n1 ", "mood (type mood)"]:
        suite.check(f"columns that are taken: {taken}", taken not in said["everything"], said["everything"])
    suite.check("parts are taken", "own plan" not in said["parted"] + said["parent"], said["parted"] + said["parent"])
    secured = ask("user=nobody", "--all")
    suite.check("row security", "BYPASSRLS" in secured["secured"], secured["secured"])
    suite.check("what may not be read is unknown", "unknown: " in secured["facts"], secured["facts"])
    server.query("drop extension headrace")


def with_setting(server, name: str, value: str, what) -> None:
    """Of new sessions of the database."""
    server.query(f"alter database postgres set {name} = '{value}'")
    what()
    server.query(f"alter database postgres reset {name}")


def doctor(suite: Suite, has_extension: bool) -> None:
    """What is said of a table changes with what is done about it."""
    def findings(*words) -> dict:
        done = suite.run("doctor", "--postgres", *words, "--json")
        report = json.loads(done.stdout)
        suite.check("the exit code is the report's", done.returncode == report["exit_code"], done)
        said = {}
        for finding in report["findings"]:
            said.setdefault(finding["subject"], []).append(f"{finding['level']}: {finding['found']} -> {finding['remedy']}")
        return {subject: "\n".join(lines) for subject, lines in said.items()} | {"all": report}

    said = findings("")
    extension = said["extension headrace"]
    if not has_extension:
        suite.check("no extension", "broken: not installed -> " in extension, extension)
    suite.check("exit code 2", said["all"]["exit_code"] == 2, said["all"]["summary"])
    suite.check("large tables alone", "facts" in said and "extremes" not in said and "tables" in said, said.keys())
    suite.check("what to run", "VACUUM facts; CHECKPOINT" in said["facts"] and "vacuumed never" in said["facts"], said["facts"])
    suite.check("autovacuum", "autovacuum = on" in said["autovacuum"], said["autovacuum"])
    suite.server.query("vacuum facts")
    said = findings("")
    suite.check("a vacuum helps", said["facts"].startswith("ok: ") and "100.0% all-visible" in said["facts"], said["facts"])
    if suite.server.value("select count(*) from pg_available_extensions where name = 'pg_visibility'") == "1":
        suite.server.query("update facts set amount = 0 where id % 5 = 0; create extension pg_visibility")
        said = findings("")
        suite.check("the map itself is asked", "slow: 0.0% of its blocks are all-visible, vac" in said["facts"], said["facts"])
        suite.server.query("drop extension pg_visibility")
    said = findings("", "--all")
    suite.check("a partitioned table is one", "VACUUM parted; CHECKPOINT" in said["parted"] and "parted_2" not in said, said.keys())
    suite.check("TOAST", "TOAST table, of t, by" in said["texts"], said["texts"])
    if has_extension:
        by_the_extension(suite, findings)
    shown = suite.run("doctor", "--postgres").stdout
    suite.check("for people", "database postgres" in shown and "  facts " in shown and "fix: " in shown, shown)
    done = suite.run("doctor", "--postgres", "host=/nowhere")
    suite.check("no server to examine", done.returncode == 1 and "hint: " in done.stderr, done)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("headrace")
    parser.add_argument("--socket", type=pathlib.Path, required=True)
    parser.add_argument("--without-extension", action="store_true")
    parser.add_argument("--port", type=int)
    parser.add_argument("--tls", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    suite = Suite(arguments.socket, str(pathlib.Path(arguments.headrace).resolve()))
    types(suite)
    shapes(suite)
    folders(suite, not arguments.without_extension)
    if pathlib.Path(arguments.headrace).name == "headrace":
        queries(suite)
    refusals(suite)
    doctor(suite, not arguments.without_extension)
    writers(suite, arguments.seconds)
    interruptions(suite)
    if arguments.tls:
        tls(suite, arguments.port, arguments.tls)
    without = "" if arguments.tls else "; TLS not tested: the server has none"
    print(f"clients: {suite.passed} passed, {len(suite.failed)} failed{without}")
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
