"""Random queries, each with headrace.enabled off and on in one transaction: the answers must be the same.

    differential.py --socket DIR [--queries 2000] [--seed 1] [--min-share 0.4] [--without-extension]

DIR is the socket folder of a server on which user postgres may connect to; a database of a name of its own
is made. Errors must have the same SQLSTATE; a query that fails only with off is counted, one that fails
only with on is wrong. --mutate asks another schema with on, whose tables lack a row: then it must fail.
"""

import argparse
import collections
import pathlib
import random
import sys
import time

from lib.queries import postgres, server
from lib.queries.generator import Generator
from lib.queries.select import Select, shrink
from lib.results import difference, shown
from lib.wire import Connection, ConnectionLost, Result, ServerError, ServerStuck, fresh

DATABASE = "differential"
PER_TRANSACTION = 40
TIMEOUT_MS = 5000
SHOWN = 5
CANCELED = "57014"


class Sides:
    """One session that runs a query with off and with on."""

    def __init__(self, given):
        self.given = given
        self.connection = Connection(given.socket, DATABASE)
        if not given.without_extension:
            self.connection.query("create extension if not exists headrace")
            self.connection.query("load 'headrace'")
        self.connection.query(
            f"set headrace.force = on; set headrace.min_table_size = 0; set headrace.fallback = {given.fallback}; set client_min_messages = error"
        )

    def begin(self, rng: random.Random) -> None:
        """A transaction with settings of its own, and at times with changes that only it sees."""
        self.connection.query("begin isolation level repeatable read; set local search_path = data")
        for setting in rng.sample(SETTINGS, 2):
            self.connection.query(f"set local {setting}")
        if rng.random() < 0.5:
            name, rest = rng.choice(["small", "mid", "half", "fresh", "big", "altered", "parts"]), rng.randint(0, 9)
            for statement in rng.sample([
                f"update {name} set i4 = i4 + 1, t = t || 'u' where id % 50 = {rest}", f"delete from {name} where id % 70 = {rest}",
                f"insert into {name} (id, k, k2, i8, n) select id + 100000, k, k2, i8, n from small where id % 9 = {rest}",
                f"savepoint undone; delete from {name} where id % 3 = 0; rollback to undone",
            ], 2):
                for schema in ("other", "data") if self.given.other else ("data",):
                    self.connection.query(f"set local search_path = {schema}; {statement}")

    def run(self, side: str, statement: str) -> Result | str:
        """The last result of the statement, or its SQLSTATE; several FETCHes are one result."""
        schema = "other" if side == "on" and self.given.other else "data"
        # What takes long with off is not asked with on; what does not may take some longer.
        limit = TIMEOUT_MS if side == "off" else 3 * TIMEOUT_MS
        self.connection.query(
            f"savepoint side; set local headrace.enabled = {side}; set local statement_timeout = {limit}; set local search_path = {schema}"
        )
        try:
            answered = [r for r in self.connection.query(statement) if r.names]
        except ServerError as error:
            self.connection.insist("rollback to side; release side")
            return error.state
        self.connection.insist("rollback to side; release side")
        last = answered[-1] if answered else Result()
        if statement.startswith("declare"):
            last.rows = [row for r in answered for row in r.rows]
        return last

    def has_node(self, statement: str) -> bool:
        """Whether the plan with on has the node."""
        answer = self.run("on", statement)
        return not isinstance(answer, str) and any(b"Custom Scan (Headrace)" in row[0] for row in answer.rows)

    def counters(self) -> tuple:
        """Queries and fallbacks so far."""
        if self.given.without_extension:
            return (0, 0)
        return tuple(int(v) for v in self.connection.rows("select queries, fallbacks from headrace.stat")[0])


SETTINGS = [
    "enable_hashjoin = off", "enable_mergejoin = off", "enable_hashagg = off", "enable_sort = off", "enable_nestloop = off",
    "work_mem = '64kB'", "timezone = 'Europe/Berlin'", "timezone = 'America/St_Johns'", "max_parallel_workers_per_gather = 0",
    "min_parallel_table_scan_size = 0", "jit = off", "extra_float_digits = 3", "enable_material = off",
    "headrace.enable_scan = off", "headrace.enable_scan = off", "headrace.enable_scan = off",
]


def statements(select: Select, mode: str, parameters: list, rng_number: int) -> tuple:
    """How a query is run in a mode, and how it is explained."""
    text = select.sql()
    if mode == "cursor":
        fetches = f"fetch {rng_number} from c; fetch {1 + rng_number % 3} from c; fetch all from c"
        return f"declare c cursor for {text}; {fetches}; close c", f"explain (costs off) {text}"
    if mode == "direct" or not parameters:
        return text, f"explain (costs off) {text}"
    types = ", ".join(kind for kind, _ in parameters)
    values = ", ".join(f"{value}::{kind}" for kind, value in parameters)
    plan = "generic" if rng_number % 2 else "custom"
    # A prepared statement outlives the savepoint, so it is dropped by name, whether it is there or not.
    start = f"deallocate all; set local plan_cache_mode = force_{plan}_plan; prepare p ({types}) as {text}; "
    return f"{start}execute p ({values})", f"{start}explain (costs off) execute p ({values})"


def judge(off: Result | str, on: Result | str, total_order: bool) -> tuple:
    """A verdict to count, and what is wrong, or None. A total order leaves one sequence of rows."""
    if isinstance(off, str) and isinstance(on, str):
        return ("same error", None) if off == on else ("other error", f"off fails with {off}, on with {on}")
    if isinstance(off, str):
        return "only off fails", None
    if isinstance(on, str):
        return "only on fails", f"on fails with {on}, off does not"
    wrong = difference(off, on)
    if not wrong and total_order and off.rows != on.rows:
        wrong = "the same rows in another order"
    return ("different", wrong) if wrong else ("equal" if off.rows else "equal, no rows", None)


def differs(sides: Sides, query: tuple) -> bool:
    run = statements(*query)[0]
    off = sides.run("off", run)
    on = off if isinstance(off, str) else sides.run("on", run)
    return judge(off, on, query[0].total_order())[1] is not None


def report(sides: Sides, seed: int, query: tuple, off, on, wrong: str) -> None:
    """Everything needed to see a difference again."""
    select, mode = query[:2]
    print(f"DIFFERENT, seed {seed}, {mode}: {wrong}\n  query: {statements(*query)[0]}")
    for side, answer, other in (("off", off, on), ("on", on, off)):
        if isinstance(answer, str):
            print(f"  {side}: fails with {answer}")
        else:
            others = [] if isinstance(other, str) else other.rows
            alone = list((collections.Counter(answer.rows) - collections.Counter(others)).elements())
            print(f"  {side}: {len(answer.rows)} rows, {len(alone)} of them only here: {' '.join(map(shown, alone[:5]))}")
    shrink(select, lambda: differs(sides, query), 20)
    print(f"  smaller: {statements(*query)[0]}", flush=True)


def ask(given) -> int:
    """Runs the queries; the number of those that were wrong."""
    sides = Sides(given)
    counts, modes = collections.Counter(), collections.Counter()
    with_node = wrong_queries = 0
    before = sides.counters()
    for position in range(given.queries):
        # Each query has a seed of its own, so that --seed N --queries 1 asks the one that was different.
        seed = given.seed + position
        rng = random.Random(seed)
        if position == 0 or seed % PER_TRANSACTION == 0:
            sides.connection.query("rollback")
            sides.begin(random.Random(f"transaction {seed // PER_TRANSACTION}"))
        mode = rng.choices(["direct", "prepared", "cursor"], [70, 15, 15])[0]
        generator = Generator(postgres.DIALECT, rng)
        select = generator.query(mode == "prepared")
        query = (select, mode, generator.parameters, rng.randint(1, 30))
        run, explain = statements(*query)
        try:
            off = sides.run("off", run)
            if off == CANCELED:
                counts["too slow with off"] += 1
                continue
            on = sides.run("on", run)
            with_node += sides.has_node(explain)
        except (ConnectionLost, ServerStuck) as error:
            sys.exit(f"error: seed {seed}: {error}\n  query: {run}")
        verdict, wrong = judge(off, on, select.total_order())
        if verdict == "same error" and off[:2] not in ("22",):
            verdict = f"refused with {off}"
            print(f"seed {seed}: {off} for {run}")
        counts[verdict] += 1
        modes[mode] += 1
        if wrong:
            wrong_queries += 1
            if wrong_queries <= SHOWN:
                report(sides, seed, query, off, on, wrong)
    sides.connection.query("rollback")
    after = sides.counters()
    asked = sum(modes.values())
    share = with_node / max(asked, 1)
    print(f"{asked} queries ({', '.join(f'{n} {m}' for m, n in modes.items())}): {', '.join(f'{n} {v}' for v, n in counts.most_common())}")
    print(f"{with_node} plans with Headrace ({share:.0%}), {after[0] - before[0]} executions in it, {after[1] - before[1]} of them fell back")
    if share < given.min_share:
        print(f"error: the share of plans with Headrace is below {given.min_share:.0%}")
        return wrong_queries + 1
    refused = sum(n for v, n in counts.items() if v.startswith("refused"))
    if counts["too slow with off"] + refused > given.queries * 0.05:
        print("error: more than a twentieth of the queries were too slow or refused")
        return wrong_queries + 1
    return wrong_queries


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--socket", required=True, type=pathlib.Path)
    arguments.add_argument("--queries", type=int, default=2000, help="20000 for a long run")
    arguments.add_argument("--seed", type=int, default=1, help="of the first query; the next ones count on")
    arguments.add_argument("--min-share", type=float, help="of plans that must have the node; 0.4 with the extension: many shapes are PostgreSQL's alone")
    arguments.add_argument("--fallback", choices=("allow", "forbid"), default="allow")
    arguments.add_argument("--without-extension", action="store_true", help="on and off are the same server then")
    arguments.add_argument("--other", choices=("shuffled", "mutated"))
    given = arguments.parse_args()
    if given.min_share is None:
        given.min_share = 0.0 if given.without_extension else 0.4
    connection = fresh(given.socket, DATABASE)
    server.create(connection, "data", 0.25)
    if given.other:
        server.copy(connection, "other")
    if given.other == "mutated":
        server.mutate(connection, "other")
    connection.close()
    started = time.monotonic()
    wrong = ask(given)
    print(f"differential: {wrong} wrong, {time.monotonic() - started:.0f} s")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
