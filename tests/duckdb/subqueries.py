"""Random queries whose subqueries look at the outer row, in DuckDB and in Headrace.

    subqueries.py --headrace PATH [--queries 300] [--seed 1] [--processor cpu] [--allow-refused 0.05]

Subqueries of one value (aggregates, first rows of an order, single rows), EXISTS and IN stand in conditions, among outputs, in
groups, aggregates and orders, and as LATERAL tables; what they look for is found by equalities, by inequalities, by both and by
neither, below joins, unions, windows, DISTINCT, GROUP BY and LIMIT. The rows must be the same, NULLs included; where
DuckDB finds more than one row for one value, Headrace must say so. Of what Headrace does not offer there may be a share.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import duckdb
import pyarrow as pa

COLUMNS = ("k", "g", "x", "y")

# What Headrace says where a subquery of one value has several rows: of one that looks at the outer row, and of one that does not.
SEVERAL = ("a subquery of one value found", "Scalar subquery returned more than one row")
REFUSED = ("is not offered", "does not support logical expression", "reads the outer rows twice")


def tables(random_: random.Random) -> dict[str, pa.Table]:
    """Three small tables of integers with NULLs; `id` is a key."""

    def table(rows: int) -> pa.Table:
        def column(values: int, nulls: float) -> pa.Array:
            return pa.array(
                [None if random_.random() < nulls else random_.randrange(values) for _ in range(rows)], pa.int64()
            )

        columns = {"id": pa.array(range(rows), pa.int64()), "k": column(6, 0.1), "g": column(3, 0.0)}
        return pa.table({**columns, "x": column(12, 0.2), "y": column(40, 0.1)})

    return {"o": table(14), "t": table(20), "u": table(9)}


class Generator:
    """Texts of queries; all orders that decide which rows come out are total, by a key at their end."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.names = 0

    def one_of(self, *choices):
        return self.random.choice(choices)

    def any_of(self, *forms):
        return self.random.choice(forms)()

    def ordered(self, name: str) -> str:
        """An order of a subquery's rows that leaves no ties."""
        return f"{name}.y, {name}.id, {name}.k, {name}.g, {name}.x"

    def name(self) -> str:
        self.names += 1
        return f"r{self.names}"

    def column(self, table: str) -> str:
        return f"{table}.{self.random.choice(COLUMNS)}"

    def asks(self, inner: str, outer: str) -> str:
        """Conditions on rows of a subquery, most of which ask the outer row; some have subqueries that do."""
        if self.random.random() < 0.15:
            n = self.name()
            return self.one_of(
                f"{inner}.y >= (select min({n}.y) from u {n} where {n}.g = {inner}.g and {n}.k <> {outer}.k)",
                f"{inner}.x <= (select max({n}.x) from u {n} where {n}.x <> {outer}.y)",
                f"{self.one_of('', 'not ')}exists (select 1 from u {n} where {n}.g = {inner}.g and {n}.x > {outer}.x)",
                f"{inner}.g {self.one_of('', 'not ')}in (select {n}.g from t {n} where {n}.k = {outer}.k)",
                f"{inner}.y > (select {n}.y from u {n} where {n}.id = {inner}.id) and {inner}.k = {outer}.k",
            )
        return self.plain(inner, outer)

    def plain(self, inner: str, outer: str) -> str:
        return self.any_of(
            lambda: f"{self.column(inner)} = {self.column(outer)}",
            lambda: f"{inner}.k = {outer}.k",
            lambda: f"{inner}.k = {outer}.k and {self.column(inner)} {self.one_of('<', '<>', '>=')} {self.column(outer)}",
            lambda: f"{inner}.k = {outer}.k and {inner}.g = {outer}.g",
            lambda: f"{self.column(inner)} {self.one_of('<', '>', '<>')} {self.column(outer)}",
            lambda: f"{inner}.k + 1 = {outer}.k",
            lambda: f"{inner}.x is not distinct from {outer}.x",
            lambda: f"({inner}.k = {outer}.k or {outer}.x is null)",
            lambda: f"{inner}.y > {self.random.randrange(30)} and {inner}.g = {outer}.g",
            lambda: f"{inner}.id = {outer}.id",
            lambda: f"{outer}.g = 1",
            lambda: f"{inner}.x > 3",
        )

    def rows(self, outer: str, name: str) -> str:
        """FROM and WHERE of a subquery whose rows are called `name`."""
        table = self.one_of("t", "t", "u")
        return self.any_of(
            lambda: f"from {table} {name} where {self.asks(name, outer)}",
            lambda: f"from {table} {name} where {self.asks(name, outer)}",
            lambda: f"from {table} {name} where {self.asks(name, outer)}",
            lambda: self.joined(table, name, outer),
            lambda: f"from (select * from t where {self.asks('t', outer)} union all select * from u where u.g = {outer}.g) {name}",
            lambda: f"from (select distinct k, g, x, y, 0 as id from {table} w where {self.asks('w', outer)}) {name}",
            lambda: f"from (select * from {table} w where {self.asks('w', outer)} order by w.y, w.id limit 2) {name}",
        )

    def joined(self, table: str, name: str, outer: str) -> str:
        other = self.name()
        kind = self.one_of("join", "left join")
        on = f"{other}.g = {name}.g"
        if self.random.random() < 0.4:
            on += f" and {self.plain(other, outer)}"
        return f"from {table} {name} {kind} u {other} on {on} where {self.asks(name, outer)}"

    def value(self, outer: str) -> str:
        """A subquery of one value, a number."""
        name = self.name()
        rows = self.rows(outer, name)
        column = self.column(name)
        call = self.one_of(f"sum({column})", "count(*)", f"max({column})", f"min({column})", f"count({column})")
        ordered = self.ordered(name)
        return self.any_of(
            lambda: f"(select {call} {rows})",
            lambda: f"(select {call} + {self.column(outer)} {rows})",
            lambda: f"(select {column} {rows} order by {self.one_of('', column + ' desc nulls last, ')}{ordered} limit 1)",
            lambda: f"(select {column} {rows} order by {ordered} limit 1 offset 1)",
            lambda: f"(select max({column}) {rows} having count(*) > 2)",
            lambda: f"(select {name}.x from {self.one_of('t', 'u')} {name} where {name}.id = {self.column(outer)})",
            lambda: f"(select {column} {rows})",
            lambda: f"(select {name}.g {rows} group by {name}.g order by count(*) desc, {name}.g limit 1)",
            lambda: f"(select sum(c) from (select {name}.g, count(*) as c {rows} group by {name}.g) q)",
            lambda: f"(select max(n) from (select row_number() over (order by {ordered}) as n {rows}) q)",
        )

    def found(self, outer: str) -> str:
        """EXISTS, IN, ANY or ALL."""
        name = self.name()
        rows = self.rows(outer, name)
        no = self.one_of("", "not ")
        call = self.one_of("count(*)", f"max({name}.x)", f"sum({name}.g)")
        compared = f"{self.one_of('=', '<>', '<', '>=')} {self.one_of('any', 'all')}"
        row = f"coalesce({outer}.k, 0), {outer}.g"
        return self.one_of(
            # An aggregate without groups has a row, whatever was found.
            f"{no}exists (select {call} {rows})",
            f"{self.column(outer)} {no}in (select {call} {rows})",
            f"{self.column(outer)} {compared} (select {call} {rows})",
            f"{self.column(outer)} {compared} (select {self.column(name)} {rows})",
            # The outer query's own table, under its own name.
            f"{self.column(outer)} {no}in (select o.{self.random.choice(COLUMNS)} from o where o.x > 3)",
            f"{self.column(outer)} {compared} (select o.y from o where o.g = 1)",
            f"({self.column(outer)} {no}in (select o.k from o where o.g < 2)) is not true",
            f"({row}) {no}in (select coalesce({name}.x, 0), {name}.g from t {name})",
            f"({row}) {self.one_of('=', '<', '>=', '<>')} ({self.random.randrange(6)}, {self.random.randrange(3)})",
            f"{no}exists (select 1 {rows})",
            f"{self.column(outer)} {no}in (select {self.column(name)} {rows})",
            f"{self.column(outer)} {no}in (select {name}.x from t {name})",
        )

    def window(self) -> str:
        """Windows that inherit from others."""
        order = self.one_of("order by o.y, o.id", "order by o.id")
        call = self.one_of("sum(o.x)", "count(*)", "max(o.y)")
        return self.one_of(
            f"select o.id, {call} over (w {order}) as v from o window w as (partition by o.g)",
            f"select o.id, {call} over w2 as v from o window w as (partition by o.g), w2 as (w {order})",
            f"select o.id, {call} over (w) as v from o window w as (partition by o.k)",
        )

    def query(self) -> str:
        value, found = self.value("o"), self.found("o")
        lateral = self.name()
        ordered = self.ordered(lateral)
        return self.any_of(
            lambda: f"select o.id, {value} as v from o",
            lambda: f"select o.id, {value} as v from o",
            self.window,
            lambda: f"select o.id, {found} as v from o",
            lambda: f"select o.id, case when {found} then {value} else -1 end as v from o",
            lambda: f"select o.id from o where {self.column('o')} {self.one_of('<', '>=', '=')} {value}",
            lambda: f"select o.id from o where o.g = 1 or coalesce({value}, 0) > 5",
            lambda: f"select o.id from o where {found} or o.x > 5",
            lambda: f"select o.id from o where {found}",
            lambda: f"select o.id, l.n, l.s from o, lateral (select count(*) as n, sum({self.column(lateral)}) as s "
            f"{self.rows('o', lateral)}) l",
            lambda: f"select o.id, l.* from o {self.one_of('join', 'left join')} lateral "
            f"(select {lateral}.x, {lateral}.y {self.rows('o', lateral)}) l on {self.one_of('true', 'l.x > o.g')}",
            lambda: f"select o.g, sum({value}) as v from o group by o.g",
            lambda: f"select {value} as v, count(*) from o group by 1",
            lambda: f"select o.id from o order by {value}, o.id limit 5",
            lambda: f"select o.id, q.g from o join u q on o.k = q.k where {self.value('q')} > o.x",
            lambda: "select o.id, l.x, l.y from o, lateral "
            f"(select {lateral}.x, {lateral}.y {self.rows('o', lateral)} order by {ordered} limit 2) l",
            lambda: "select o.id, l.x, l.y from o left join lateral "
            f"(select {lateral}.x, {lateral}.y {self.rows('o', lateral)} order by {ordered} limit 2) l on true",
        )


def rows_of(text: str) -> list[tuple]:
    rows = [json.loads(line) for line in text.splitlines()]
    return sorted((tuple(row.values()) for row in rows), key=repr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headrace", required=True)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processor", default="cpu")
    parser.add_argument("--allow-refused", type=float, default=0.05, metavar="SHARE")
    arguments = parser.parse_args()

    generator = Generator(arguments.seed)
    database = duckdb.connect()
    wrong = refused = errors = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, table in tables(random.Random(arguments.seed)).items():
            with pa.ipc.new_file(pathlib.Path(folder) / f"{name}.arrow", table.schema) as writer:
                writer.write(table)
            database.register(name, table)
        for _ in range(arguments.queries):
            query = generator.query()
            try:
                rows = database.execute(query).fetchall()
                expected = sorted(((tuple(row)) for row in rows), key=repr)
            except duckdb.InvalidInputException as error:
                assert "More than one row" in str(error), f"{query}\n{error}"
                expected = None
            command = [arguments.headrace, "--data", folder, "--processor", arguments.processor, "--format", "ndjson"]
            ran = subprocess.run([*command, "-q", "-c", query], capture_output=True, text=True, timeout=60)
            if ran.returncode == 0 and expected is not None and rows_of(ran.stdout) == expected:
                continue
            if expected is None and any(text in ran.stderr for text in SEVERAL):
                errors += 1
                continue
            # DuckDB also looks for what CASE and OR do not ask for.
            if expected is None and ran.returncode == 0 and ("case when" in query or " or " in query):
                continue
            if ran.returncode != 0 and any(text in ran.stderr for text in REFUSED):
                refused += 1
                print(f"refused: {query}\n  {ran.stderr.strip().splitlines()[0]}")
                continue
            wrong += 1
            got = ran.stderr.strip() if ran.returncode else rows_of(ran.stdout)
            print(f"differs: {query}\n  DuckDB:   {expected}\n  Headrace: {got}")
    share = refused / arguments.queries
    print(f"{arguments.queries} queries, {errors} of them errors on both sides, {refused} refused, {wrong} wrong")
    if errors == 0:
        print("error: no query found two rows for one value", file=sys.stderr)
        return 1
    return 1 if wrong or share > arguments.allow_refused else 0


if __name__ == "__main__":
    sys.exit(main())
