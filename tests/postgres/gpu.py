"""Foreign tables that a GPU keeps, and functions in CUDA, in a server whose machine has a GPU.

    gpu.py --socket DIR --data DIR [--rows 3000000]

DIR of --data is the cluster's data directory. Every answer must be the one of PostgreSQL's own plan, and have come from the GPU.
"""

import argparse
import pathlib
import re
import sys

from lib.results import difference
from lib.wire import ServerError, fresh

DATABASE = "gpu"


class Gpu:
    def __init__(self, given):
        self.given, self.checks = given, 0
        self.connection = fresh(given.socket, DATABASE)
        self.connection.query("create extension headrace")
        self.connection.query("load 'headrace'; set headrace.force = on; set headrace.min_table_size = 0; set headrace.fallback = forbid")

    def check(self, is_right: bool, what: str) -> None:
        if not is_right:
            sys.exit(f"error: {what}")
        self.checks += 1

    def explain(self, query: str) -> str:
        return "\n".join(row[0] for row in self.texts(f"explain (analyze, verbose, costs off) {query}"))

    def texts(self, query: str) -> list[tuple]:
        """Rows of texts."""
        rows = self.connection.query(query)[-1].rows
        return [tuple(value.decode() if isinstance(value, bytes) else value for value in row) for row in rows]

    def same(self, query: str, own: str | None = None) -> str:
        """The GPU's answer is PostgreSQL's; how it came. `own`: another query with the same answer."""
        plan = self.explain(query)
        self.check("Processor: cuda (service)" in plan, f"{query} ran elsewhere:\n{plan}")
        found = self.connection.query(query)[-1]
        self.connection.query("set headrace.enabled = off")
        wanted = self.connection.query(own or query)[-1]
        self.connection.query("set headrace.enabled = on")
        self.check(not difference(wanted, found), f"{query}: {difference(wanted, found)}")
        return plan

    def fails(self, query: str, pattern: str) -> None:
        try:
            self.connection.query(query)
        except ServerError as error:
            self.check(re.search(pattern, str(error)) is not None, f"{query}: {error}, wanted {pattern}")
        else:
            sys.exit(f"error: {query} did not fail: {pattern}")

    def kept(self) -> list:
        return self.texts("select name, rows::text, stale is null from headrace.kept order by name")

    def kept_tables(self) -> None:
        folder = pathlib.Path(self.given.data) / "kept"
        self.connection.query(f"copy (select 1) to program 'mkdir {folder} && cat > /dev/null'")
        rows = self.given.rows
        self.connection.query(f"""
            create foreign table sales (id int4, shop int4, amount int8, share float8, day date, word text)
                server headrace_files options (path '{folder}', residence 'gpu');
            insert into sales select i, case when i % 50 > 0 then i % 40 end, i, i / 8.0, date '2020-01-01' + i % 365, 'word ' || i % 20
                from generate_series(1, {rows}) i""")
        query = "select shop, count(*), sum(amount), min(share), max(day) from sales where id % 3 = 1 group by shop"
        self.same(query)
        self.check(self.kept() == [(f"{DATABASE}.public.sales", str(rows), "t")], f"kept: {self.kept()}")
        plan = self.same(query)
        read = re.search(r"Bytes: (\d+)\n\s*Of These In GPU Memory: (\d+)", plan)
        self.check(read is not None and read[1] == read[2], f"not all was in the GPU's memory:\n{plan}")
        # Small, and still there: what is kept is run where it is.
        self.connection.query("set headrace.processor = auto")
        self.same("select count(*), sum(amount) from sales where day > '2020-07-01'")
        self.connection.query("set headrace.processor = cuda")
        # A build's rows come from the session.
        self.connection.query("create table shops as select i as shop, i % 6 as region from generate_series(0, 39) i")
        self.same("select region, count(*), sum(amount) from sales join shops using (shop) where region < 4 group by region")
        self.connection.query(f"insert into sales select -i, 1, 1, 0.5, '2021-01-01', 'new' from generate_series(1, 1000) i")
        self.check(self.kept()[0][2] == "t" and self.kept()[0][1] == str(rows), "what was kept has changed by itself")
        self.same("select shop, count(*), sum(amount) from sales group by shop")
        self.check(self.kept()[0][1] == str(rows + 1000), f"the new rows are not kept: {self.kept()}")
        self.connection.query("begin; drop foreign table sales; rollback")
        self.check(len(self.kept()) == 1, "a drop that was rolled back lets the table go")
        self.connection.query("alter foreign table sales rename to sold")
        self.check(self.kept() == [], f"kept under the old name: {self.kept()}")
        self.same("select count(*), sum(amount) from sold")
        self.check(self.kept()[0][0] == f"{DATABASE}.public.sold", f"kept: {self.kept()}")
        self.connection.query("alter foreign table sold options (drop residence)")
        self.check(self.kept() == [], f"kept without the option: {self.kept()}")
        self.connection.query("alter foreign table sold options (add residence 'gpu')")
        self.same("select count(*), sum(amount) from sold")
        self.connection.query("drop foreign table sold")
        self.check(self.kept() == [], f"kept after the drop: {self.kept()}")

    def functions(self) -> None:
        self.connection.query(f"""
            create table numbers as select i as id, (i % 1000) as small, i / 7.0::float8 as share, 'text ' || i % 5 as word
                from generate_series(1, {self.given.rows}) i;
            create function twice(x int4) returns int8 language cuda strict as 'return 2ll * x;';
            create function length_of(a text) returns int4 language cuda strict as 'return a.size;';
            create function root_of(x float8) returns float8 language cuda strict as $$
                // twin: sqrt(x)
                return sqrt(x);
            $$""")
        self.connection.query("vacuum analyze numbers")
        self.connection.query("checkpoint")
        self.same(
            "select small % 10, count(*), sum(twice(id)) from numbers where twice(small) > 100 group by 1",
            "select small % 10, count(*), sum(2::int8 * id) from numbers where 2 * small > 100 group by 1",
        )
        self.same("select count(*) from numbers where root_of(share) < 100")
        self.same("select count(*) from numbers where length_of(word) = 6", "select count(*) from numbers where octet_length(word) = 6")
        self.fails("create function wrong(x int4) returns int4 language cuda strict as $$\n    int y = x;\n    return yy;\n$$", r'(?s)3.*"yy" is undefined')
        self.connection.query("create function traps(x int4) returns int4 language cuda strict as 'if (x == 77) __trap(); return x;'")
        self.fails("select sum(traps(id)) from numbers", "traps")
        self.same("select small % 10, count(*) from numbers where root_of(share) < 100 group by 1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", type=pathlib.Path, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rows", type=int, default=3_000_000)
    test = Gpu(parser.parse_args())
    test.connection.query("set headrace.processor = cuda")
    test.kept_tables()
    test.functions()
    print(f"gpu: {test.checks} checks passed")


main()
