"""Runs the 13 SSB queries in DuckDB and in Headrace over the same Arrow files and compares the answers.

    compare.py --headrace PATH --data DIR [--processor cpu]

DuckDB reads the files through PyArrow; every value of every row must be equal, in order.
"""

import argparse
import decimal
import json
import pathlib
import subprocess
import sys

import duckdb
import pyarrow as pa

TABLES = ("lineorder", "customer", "supplier", "part", "date")


def load(data: pathlib.Path) -> duckdb.DuckDBPyConnection:
    """A DuckDB database with the five tables read from their Arrow files."""
    connection = duckdb.connect()
    for name in TABLES:
        single = data / f"{name}.arrow"
        files = [single] if single.exists() else sorted((data / name).glob("*.arrow"))
        if not files:
            sys.exit(f"error: no Arrow file of table {name} in {data}")
        parts = []
        for file in files:
            with pa.memory_map(str(file)) as source:
                parts.append(pa.ipc.open_file(source).read_all())
        table = pa.concat_tables(parts)
        connection.register("incoming", table)
        connection.execute(f'create table "{name}" as select * from incoming')
        connection.unregister("incoming")
    return connection


def headrace_rows(binary: str, data: pathlib.Path, processor: str, sql: str) -> list:
    """The answer of Headrace, rows as lists in column order."""
    command = [binary, "--data", str(data), "--processor", processor, "--fallback", "forbid"]
    done = subprocess.run(
        [*command, "--quiet", "--format", "json", "-c", sql], capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.exit(f"error: headrace exited with {done.returncode}: {done.stderr}")
    return [list(row.values()) for row in json.loads(done.stdout)]


def plain(value):
    """Values as JSON spells them."""
    if isinstance(value, decimal.Decimal) and value == value.to_integral_value():
        return int(value)
    return value


def queries(binary: str) -> dict:
    """Query texts by id, as the binary under test has them."""
    done = subprocess.run([binary, "ssb", "queries"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--headrace", required=True)
    arguments.add_argument("--data", required=True, type=pathlib.Path)
    arguments.add_argument("--processor", default="cpu")
    given = arguments.parse_args()
    connection = load(given.data)
    wrong = 0
    texts = queries(given.headrace)
    for name, sql in texts.items():
        theirs = [[plain(v) for v in row] for row in connection.execute(sql).fetchall()]
        ours = headrace_rows(given.headrace, given.data, given.processor, sql)
        if sorted(map(str, ours)) == sorted(map(str, theirs)):
            print(f"Q{name}: {len(ours)} rows, equal")
        else:
            wrong += 1
            print(f"Q{name}: DIFFERENT\n  headrace {ours[:3]}\n  duckdb   {theirs[:3]}")
    print(f"{len(texts) - wrong} passed, {wrong} failed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
