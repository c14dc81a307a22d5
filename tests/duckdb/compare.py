"""Runs the queries of a suite in DuckDB and in Headrace over the same Arrow files and compares the answers.

    compare.py --headrace PATH --data DIR [--suite ssb] [--processor cpu] [--fallback forbid]

DuckDB reads the files through PyArrow. The rows must be the same, and their order where the query asks for
one: exactly, decimals included, but for quotients and averages of decimals, which DuckDB has as floats. Of rows
that tie with the last one of a LIMIT, only what they are ordered by must be the same.
"""

import argparse
import decimal
import json
import math
import pathlib
import re
import subprocess
import sys

import duckdb
import pyarrow as pa

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lib import program  # noqa: E402

TABLES = {
    "ssb": ("lineorder", "customer", "supplier", "part", "date"),
    "tpch": ("lineitem", "orders", "partsupp", "part", "customer", "supplier", "nation", "region"),
    "tpcds": (
        *("store_sales", "store_returns", "catalog_sales", "catalog_returns", "web_sales", "web_returns", "inventory"),
        *("call_center", "catalog_page", "customer", "customer_address", "customer_demographics", "date_dim"),
        *("household_demographics", "income_band", "item", "promotion", "reason", "ship_mode", "store", "time_dim"),
        *("warehouse", "web_page", "web_site"),
    ),
    "clickbench": ("hits",),
}

# What the queries are ordered by: columns of their answers. An order that leaves no ties is every column's.
ORDER = {
    "ssb": {
        **dict.fromkeys(("2.1", "2.2", "2.3"), (1, 2)),
        **dict.fromkeys(("3.1", "3.2", "3.3", "3.4"), (2, 3)),
        **{"4.1": (0, 1), "4.2": (0, 1, 2), "4.3": (0, 1, 2)},
    },
    "tpch": {
        **{"1": (0, 1), "2": (0, 2, 1, 3), "3": (1, 2), "4": (0,), "5": (1,), "7": (0, 1, 2), "8": (0,)},
        **{"9": (0, 1), "10": (2,), "11": (1,), "12": (0,), "13": (1, 0), "15": (0,), "16": (3, 0, 1, 2)},
        **{"18": (4, 3), "20": (0,), "21": (1, 0), "22": (0,)},
    },
    "tpcds": {str(query): None for query in range(1, 100)},
    "clickbench": {str(query): None for query in range(43)},
}

# Of a decimal that was rounded to six digits after the point, beside a float.
ROUNDED = 1e-6


def load(data: pathlib.Path, suite: str) -> duckdb.DuckDBPyConnection:
    """A DuckDB database with the suite's tables read from their Arrow files."""
    connection = duckdb.connect()
    for name in TABLES[suite]:
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
        columns = ", ".join(map(declared, table.schema))
        connection.execute(f'create table "{name}" as select {columns} from incoming')
        connection.unregister("incoming")
    return connection


def declared(field: pa.Field) -> str:
    """A column in the type of its table, where a file may hold a narrower one."""
    said = (field.metadata or {}).get(b"headrace.type", b"").decode()
    names = {"Int16": "smallint", "Int32": "integer", "Int64": "bigint"}
    found = names.get(said) or said.replace("Decimal128", "decimal")
    return f'cast("{field.name}" as {found}) as "{field.name}"' if found else f'"{field.name}"'


def text(value) -> str:
    """Equal for values that are equal, whatever their types."""
    if isinstance(value, decimal.Decimal):
        return format(value.normalize(), "f")
    return "" if isinstance(value, float) else str(value)


def equal(ours, theirs) -> bool:
    """Exactly, unless DuckDB has a float."""
    if isinstance(theirs, float) and ours is not None:
        return math.isclose(float(ours), theirs, rel_tol=1e-9, abs_tol=ROUNDED)
    return ours == theirs


def all_equal(ours, theirs) -> bool:
    return len(ours) == len(theirs) and all(map(equal, ours, theirs))


def difference(ours: list, theirs: list, sql: str, keys: tuple | None) -> str | None:
    """How two answers differ, or None. Without keys the whole rows are what they are ordered by."""
    if len(ours) != len(theirs):
        return f"{len(ours)} rows, not {len(theirs)}"
    key = lambda row: row if keys is None else tuple(row[column] for column in keys)  # noqa: E731
    for number, (left, right) in enumerate(zip(ours, theirs)):
        if not all_equal(key(left), key(right)):
            return f"another order or another value in row {number}: {left}, not {right}"
    limit = re.search(r"\blimit (\d+)\s*$", sql)
    if limit and int(limit[1]) == len(ours):
        last = key(theirs[-1])
        ours, theirs = ([last if key(row) == last else row for row in rows] for rows in (ours, theirs))
    floats = {c for row in theirs for c, value in enumerate(row) if isinstance(value, float)}
    exact = lambda row: [text(v) for c, v in enumerate(row) if c not in floats]  # noqa: E731
    for left, right in zip(sorted(ours, key=exact), sorted(theirs, key=exact)):
        if not all_equal(left, right):
            return f"{left}, not {right}"
    return None


def queries(binary: str, suite: str) -> dict:
    """Query texts by id, as the binary under test has them, in the order of their numbers."""
    done = subprocess.run([binary, suite, "queries"], capture_output=True, text=True, check=True)
    numbers = lambda query: [int(number) for number in query[0].split(".")]  # noqa: E731
    return dict(sorted(json.loads(done.stdout).items(), key=numbers))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--headrace", required=True)
    arguments.add_argument("--data", required=True, type=pathlib.Path)
    arguments.add_argument("--suite", choices=sorted(TABLES), default="ssb")
    arguments.add_argument("--processor", default="cpu")
    arguments.add_argument("--fallback", default="forbid")
    given = arguments.parse_args()
    connection = load(given.data, given.suite)
    options = ["--data", str(given.data), "--processor", given.processor, "--fallback", given.fallback]
    wrong = 0
    texts = queries(given.headrace, given.suite)
    for name, sql in texts.items():
        theirs = connection.execute(sql).fetchall()
        ours = list(zip(*(column.to_pylist() for column in program.table(given.headrace, sql, *options).columns)))
        found = difference(ours, theirs, sql, ORDER[given.suite].get(name, ()))
        if found is None:
            print(f"Q{name}: {len(ours)} rows, equal")
        else:
            wrong += 1
            print(f"Q{name}: DIFFERENT: {found}")
    print(f"{len(texts) - wrong} passed, {wrong} failed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
