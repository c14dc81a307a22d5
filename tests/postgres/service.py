"""Many sessions run queries in the process that owns the GPUs, while it is killed again and again.

    service.py --socket DIR --data DIR [--seconds 60] [--sessions 16] [--seed 1]

DIR of --data is the cluster's data directory, whose headrace.service_command starts the service on the
CPU. No session may be lost, every answer must be PostgreSQL's own, and the service must come back. --mutate
shows that the test can fail: "answers" hides a row from the service's side, "peace" kills nothing.
"""

import argparse
import os
import pathlib
import random
import signal
import statistics
import sys
import threading
import time

from lib.results import difference
from lib.threads import Shared, Wrong
from lib.wire import Connection, ConnectionLost, ServerError, fresh

DATABASE = "service"
ROWS = 60_000

QUERIES = (
    "select count(*), sum(amount), min(price), max(word) from sales",
    "select shop, count(*), sum(amount), sum(price) from sales group by shop",
    "select word, count(*), max(amount) from sales where id % 3 = 0 group by word",
    "select name, count(*), sum(amount) from sales join shops using (shop) where region < 4 group by name",
    "select count(*) from sales s where not exists (select from shops where shop = s.shop and region = 2)",
    "select id, count(*), sum(price) from sales where id % 7 = 1 group by id",
)

STAT = ("queries", "fallbacks", "service_queries", "service_failures", "server_blocks", "rerouted_blocks")


class Test(Shared):
    """Sessions that last, and how long the service was away."""

    def __init__(self, given):
        super().__init__(given)
        self.absences = []

    def thread(self, name: str, work) -> threading.Thread:
        """A session, which must last to the end."""

        def last(rng: random.Random) -> None:
            connection = connect(self.given)
            while not self.over():
                work(connection, rng)
            if name.startswith("session"):
                self.account(connection)

        return self.start(name, last)

    def account(self, connection: Connection) -> None:
        found = connection.query(f"select {', '.join(STAT)} from headrace.stat")[-1].rows[0]
        for what, number in zip(STAT, found):
            self.count(what, int(number))
        ran = dict(zip(STAT, map(int, found)))
        self.count("own queries", ran["queries"] - ran["fallbacks"] - ran["service_queries"])

    def session(self, connection: Connection, rng: random.Random) -> None:
        """The same query with off and with on in one snapshot; at times one that is broken off."""
        query = rng.choice(QUERIES)
        if rng.random() < 0.15:
            self.broken_off(connection, rng, query)
        connection.query("begin isolation level repeatable read")
        answers = {}
        for side in rng.sample(["off", "on"], 2):
            connection.query(f"set local headrace.enabled = {side}")
            text = query.replace("from sales", "from (select * from sales where id <> 77) as sales", 1) if side == "on" and self.given.mutate == "answers" else query
            answers[side] = connection.query(text.replace("as sales s ", "as s "))[-1]
        connection.query("rollback")
        wrong = difference(answers["off"], answers["on"])
        if wrong:
            raise Wrong(f"{query} differs: {wrong}")
        self.count("equal")

    def broken_off(self, connection: Connection, rng: random.Random, query: str) -> None:
        connection.query(f"set statement_timeout = {rng.randint(1, 60)}")
        began = time.monotonic()
        try:
            connection.query(query)
        except ServerError as error:
            if error.state != "57014":
                raise
            self.count("broken off")
            took = time.monotonic() - began
            if took > 10:
                raise Wrong(f"a statement of {took:.1f} s, whose timeout was at most 60 ms") from error
        connection.insist("set statement_timeout = '60s'")

    def writer(self, connection: Connection, rng: random.Random) -> None:
        low = rng.randint(1, ROWS)
        connection.query(f"update sales set amount = amount + 1 where id between {low} and {low + 200}")
        if rng.random() < 0.2:
            connection.query("vacuum sales")
        time.sleep(rng.random() / 10)

    def killer(self) -> None:
        """Kills the service, and measures how long it is away."""
        rng, killed = random.Random(self.given.seed), None
        while not self.over():
            number = service(self.given.data)
            if killed and number and number != killed[0]:
                self.absences.append(time.monotonic() - killed[1])
                killed = None
            if number and not killed and self.given.mutate != "peace":
                time.sleep(0.05 + rng.random() * 0.6)
                try:
                    os.kill(number, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed = (number, time.monotonic())
                self.count("killed")
            time.sleep(0.002)
        if killed:
            self.absences.append(time.monotonic() - killed[1])


def service(data: pathlib.Path):
    """The service's process, if it listens."""
    try:
        number = int((data / "headrace-service.lock").read_text())
        command = pathlib.Path(f"/proc/{number}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    is_listening = (data / "headrace-service.sock").exists()
    return number if b"headrace-gpu-service" in command and is_listening else None


def connect(given) -> Connection:
    connection = Connection(given.socket, DATABASE, timeout_s=90)
    connection.query(
        "load 'headrace'; set headrace.force = on; set headrace.min_table_size = 0; set headrace.processor = cuda; set client_min_messages = error; set statement_timeout = '60s'"
    )
    return connection


def create(given) -> None:
    connection = fresh(given.socket, DATABASE)
    connection.query(f"""
        create extension headrace;
        create table sales (id int4, shop int4, amount int8, price numeric(10, 2), word text, filler text) with (fillfactor = 80);
        insert into sales select i, case when i % 50 > 0 then i % 40 end, i, i % 100000 / 100.0, 'word ' || i % 20, repeat(md5(i::text), 4) from generate_series(1, {ROWS}) i;
        create table shops (shop int4 primary key, name text, region int4);
        insert into shops select i, 'shop ' || i, i % 6 from generate_series(0, 39) i""")
    connection.query("vacuum (freeze, analyze)")
    connection.query("checkpoint")
    connection.close()


def explained(connection: Connection, options: str = "") -> str:
    rows = connection.query(f"explain (analyze, costs off, timing off, summary off{options}) {QUERIES[1]}")[-1].rows
    return "\n".join(row[0].decode() for row in rows)


def check(text: str, *wanted: str) -> None:
    missing = [part for part in wanted if part not in text]
    if missing:
        raise Wrong(f"{missing} is not in:\n{text}")


def one_session(given) -> None:
    """What a user is told, with the service and without it."""
    connection = connect(given)
    check(explained(connection), f"Processor: {given.processor} (service)")
    check(explained(connection, ", format json"), f'"Processor": "{given.processor} (service)"')
    before = service(given.data)
    os.kill(before, signal.SIGKILL)
    check(explained(connection), f"Processor: {given.processor} (service)")
    if service(given.data) in (None, before):
        raise Wrong("the next query did not start the service again")
    connection.query("select count(*) from headrace.devices")
    connection.query("set headrace.processor = cpu")
    check(explained(connection, ", verbose"), "Processor: cpu\n", "Why Not GPU: headrace.processor is cpu")
    connection.query("set headrace.processor = cuda; set headrace.service_command = '/nowhere/service'")
    os.kill(service(given.data), signal.SIGKILL)
    while service(given.data):
        time.sleep(0.01)
    text = explained(connection)
    check(text, "Processor: cpu\n", "Why Not GPU: /nowhere/service cannot be started")
    failure = connection.value("select service_failure from headrace.stat")
    check(failure, "/nowhere/service cannot be started")
    connection.query("set headrace.fallback = forbid")
    try:
        explained(connection)
        raise Wrong("a query that must not fall back has an answer")
    except ServerError as error:
        check(str(error), "/nowhere/service cannot be started")
    connection.query("reset headrace.service_command")
    # This session remembers the failure for a while; what another one has started it uses at once.
    other = connect(given)
    check(explained(other), f"Processor: {given.processor} (service)")
    check(explained(connection), f"Processor: {given.processor} (service)")
    other.query("create role service_user; set role service_user")
    try:
        other.query("set headrace.service_command = '/bin/true'")
        raise Wrong("any user may say which program is started")
    except ServerError as error:
        if error.state != "42501":
            raise
    connection.close()
    other.close()


def report(test: Test) -> int:
    print(f"service: {', '.join(f'{what}: {times}' for what, times in sorted(test.counts.items()))}")
    if test.absences:
        print(f"service: away for {statistics.median(test.absences):.3f} s at the median, {max(test.absences):.3f} s at most")
    for failure in test.failures[:10]:
        print(f"error: {failure}")
    unused = [what for what in ("equal", "killed", "broken off", "own queries", *STAT) if what != "fallbacks" and test.counts[what] == 0]
    if unused and not test.failures:
        print(f"error: nothing was counted as {', '.join(unused)}")
    late = test.absences and statistics.median(test.absences) > 1
    if late:
        print("error: the service did not come back within a second")
    return 1 if test.failures or unused or late else 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--socket", required=True, type=pathlib.Path)
    arguments.add_argument("--data", required=True, type=pathlib.Path)
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--processor", choices=("cpu", "cuda"), default="cpu", help="what the service runs on")
    arguments.add_argument("--sessions", type=int, default=16)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--mutate", choices=("answers", "peace"))
    given = arguments.parse_args()
    create(given)
    try:
        one_session(given)
    except (Wrong, ServerError, ConnectionLost) as error:
        sys.exit(f"error: one session: {error}")
    test = Test(given)
    threads = [test.thread(f"session {n}", test.session) for n in range(given.sessions)]
    threads += [test.thread(f"writer {n}", test.writer) for n in range(2)]
    test.killer()
    for thread in threads:
        thread.join()
    if not test.failures:
        # In peace it is there again.
        try:
            check(explained(connect(given)), f"Processor: {given.processor} (service)")
        except (Wrong, ServerError, ConnectionLost) as error:
            test.fail(f"at the end: {error}")
    sys.exit(report(test))


if __name__ == "__main__":
    main()
