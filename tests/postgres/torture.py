"""Readers compare headrace.enabled on with off in one snapshot while others write, maintain and crash the server.

    torture.py --socket DIR --crash PROGRAM [--seconds 60] [--seed 1] [--without-extension]

DIR is the socket folder of a server on which user postgres may connect to; PROGRAM stops it at once and
starts it again. A database of a name of its own is made. What all transactions together keep is compared
too: the sum of all balances. --mutate shows that the test can fail: "answers" hides a row from the side
"on", "balance" lets a writer lose money.
"""

import argparse
import collections
import pathlib
import random
import subprocess
import sys
import threading
import time

import upkeep
from lib.results import difference, shown
from lib.threads import Shared, Wrong
from upkeep import BALANCE, BRANCHES, DATABASE, ROWS
from lib.wire import Connection, ConnectionLost, ServerError, ServerStuck

# What other sessions may do to a statement: serialisation, deadlock, lock timeout, cancelled.
INTERRUPTED = {"40001", "40P01", "55P03", "57014"}

QUERIES = {
    "total": "select sum(balance) from accounts",
    "whole": "select count(*), sum(balance), min(balance), max(price), min(kind), sum(price), avg(id) from accounts",
    "groups": "select branch, count(*), sum(balance), sum(price), max(kind) from accounts group by branch",
    "filter": "select count(*), sum(balance) from accounts where kind like 'kind 1%' and price between 100 and 900 and branch <> 7",
    "texts": "select kind, count(*), min(filler), sum(length(filler)) from accounts where id % 3 = 0 group by kind",
    "join": "select name, count(*), sum(balance) from accounts join branches using (branch) where region < 4 group by name",
    "anti": "select count(*), sum(id) from accounts a where not exists (select from branches b where b.branch = a.branch and region = 2)",
    "events": "select branch, count(*), sum(amount), max(at) from events group by branch",
    "two": "select count(*), sum(e.amount) from events e join accounts a on a.id = e.account where a.balance > 900",
    "side": "select count(*), sum(v), min(word) from side",
    "unlogged": "select branch, count(*), sum(amount), min(word), max(length(word)) from notes group by branch",
    "rows": "select * from accounts where id % 997 = 5",
    "rows of events": "select id, amount, at from events where id % 97 = 3",
    "correlated": "select branch, (select sum(balance) from accounts a where a.branch = b.branch) from branches b where branch < 3",
}


class Torture(Shared):
    """Sessions that outlast the server's crashes."""

    def connect(self) -> Connection:
        """A session; waits for a server that is being restarted."""
        patience = time.monotonic() + 60
        while True:
            try:
                connection = Connection(self.given.socket, DATABASE, timeout_s=90)
                connection.query("set statement_timeout = '40s'; set deadlock_timeout = '100ms'")
                return connection
            except ConnectionLost as error:
                if time.monotonic() > patience:
                    raise Wrong(f"the server does not come back: {error}") from error
                time.sleep(0.1)

    def thread(self, name: str, work) -> threading.Thread:
        """Calls work(connection, rng) until the end; a lost session is followed by the next one."""

        def loop(rng: random.Random) -> None:
            connection = None
            while not self.over():
                try:
                    if connection is None:
                        connection = self.connect()
                        if name.startswith("reader"):
                            prepare(connection, self.given)
                    work(connection, rng)
                except ConnectionLost:
                    self.count("sessions lost")
                    connection = None
                except ServerError as error:
                    self.count(f"{name.split()[0]}: {error.state}")
                    if error.state not in INTERRUPTED:
                        raise
                    try:
                        connection.query("rollback")
                    except ConnectionLost:
                        connection = None

        return self.start(name, loop)


def prepare(connection: Connection, given) -> None:
    """A reader's session."""
    if not given.without_extension:
        connection.query("load 'headrace'")
    connection.query("set headrace.force = on; set headrace.min_table_size = 0; set client_min_messages = error")


# Of view headrace.stat: all must have happened, or something was not tested.
STAT = ("queries", "fallbacks", "direct_blocks", "server_blocks", "rerouted_blocks")
# These only where the service is wanted.
SERVICE_STAT = ("service_queries", "service_failures")


class Reader:
    """Asks the same with off and with on within one snapshot."""

    def __init__(self, torture: Torture):
        self.torture = torture

    def __call__(self, connection: Connection, rng: random.Random) -> None:
        level = rng.choice(["repeatable read", "repeatable read", "serializable"])
        connection.query(f"begin isolation level {level}")
        kinds = rng.sample(list(QUERIES), rng.randint(1, 4))
        if rng.random() < 0.25:
            self.change(connection, rng)
        for kind in kinds:
            if rng.random() < 0.2:
                self.cursors(connection, rng, kind)
            else:
                self.compare(connection, rng, kind)
        if rng.random() < 0.1:
            time.sleep(rng.random())
        for _ in range(rng.randint(0, 1)):
            self.compare(connection, rng, rng.choice(kinds))
        connection.query("rollback")
        if not self.torture.given.without_extension:
            self.account(connection)

    def account(self, connection: Connection) -> None:
        """What the extension did since the last time."""
        counted = STAT + SERVICE_STAT
        found = connection.query(f"select {', '.join(counted)} from headrace.stat")[-1].rows[0]
        for what, before, now in zip(counted, getattr(connection, "stat", ["0"] * len(counted)), found):
            self.torture.count(f"headrace {what}", int(now) - int(before))
        connection.stat = found

    def change(self, connection: Connection, rng: random.Random) -> None:
        """Changes of the reader's own, which keep the sum of balances."""
        low, base = rng.randint(1, ROWS), -100 * rng.randint(1, 10**6)
        connection.query("savepoint own")
        try:
            connection.query(
                f"update accounts set filler = filler || '.' where id between {low} and {low + 20}; savepoint undone;"
                f" update accounts set balance = 0 where id between {low} and {low + 9}; rollback to undone;"
                f" insert into accounts select {base} - i, i % {BRANCHES}, 0, 'kind own', 1, 'own' from generate_series(1, 50) i;"
                f" delete from accounts where id between {base - 9} and {base}"
            )
        except ServerError as error:
            # Rows that somebody changed since the snapshot, or columns that a maintainer added.
            if error.state not in INTERRUPTED:
                raise
            connection.query("rollback to own")
        self.torture.count("changes of a reader's own")

    def statement(self, side: str, text: str) -> str:
        if side == "on" and self.torture.given.mutate == "answers":
            return text.replace("from accounts", "from (select * from accounts where id <> 77) as accounts").replace("as accounts a ", "as a ")
        return text

    def compare(self, connection: Connection, rng: random.Random, kind: str) -> None:
        answers = {}
        for side in rng.sample(["off", "on"], 2):
            connection.query(f"set local headrace.enabled = {side}")
            try:
                answers[side] = connection.query(self.statement(side, QUERIES[kind]))[-1]
            except ServerError as error:
                if error.state in INTERRUPTED:
                    raise
                raise Wrong(f"{kind} fails with {side}: {error}") from error
        self.judge(kind, answers["off"], answers["on"])

    def cursors(self, connection: Connection, rng: random.Random, kind: str) -> None:
        """Both sides as cursors, fetched by turns: each is open while others write."""
        answers = {}
        for side in ("off", "on"):
            connection.query(f"set local headrace.enabled = {side}; declare c_{side} no scroll cursor for {self.statement(side, QUERIES[kind])}")
        for number in (1, 7, "all"):
            for side in rng.sample(["off", "on"], 2):
                found = connection.query(f"fetch {number} from c_{side}")[-1]
                if side in answers:
                    answers[side].rows += found.rows
                else:
                    answers[side] = found
            if number == 7:
                time.sleep(rng.random() / 10)
        connection.query("close c_off; close c_on")
        self.judge(kind, answers["off"], answers["on"])
        self.torture.count("compared by cursors")

    def judge(self, kind: str, off, on) -> None:
        wrong = difference(off, on)
        if wrong:
            only = [list((collections.Counter(a.rows) - collections.Counter(b.rows)).elements())[:5] for a, b in ((off, on), (on, off))]
            raise Wrong(
                f"{kind} differs: {wrong}\n  query: {QUERIES[kind]}\n  only off: {' '.join(map(shown, only[0]))}\n  only on: {' '.join(map(shown, only[1]))}"
            )
        if kind in ("total", "whole"):
            found = int(off.rows[0][kind == "whole"])
            if found != ROWS * BALANCE:
                raise Wrong(f"the balances are {found} together, must be {ROWS * BALANCE}")
            self.torture.count("balances right")
        self.torture.count(f"equal: {kind}")


def crash(torture: Torture) -> None:
    """Crashes the server again and again until the end."""
    after_s = torture.given.crash_every
    while not torture.stop.wait(min(after_s, max(torture.end - time.monotonic(), 0))) and not torture.over():
        done = subprocess.run([torture.given.crash], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            torture.fail(f"{torture.given.crash}: {done.stdout}{done.stderr}")
        torture.count("crashes")


def report(torture: Torture) -> int:
    """What was counted; 1 if something was wrong, or nothing compared."""
    for failure in torture.failures[:5]:
        print(f"WRONG, seed {torture.given.seed}: {failure}")
    counts = sorted(torture.counts.items())
    print("; ".join(f"{what} {n}" for what, n in counts))
    compared = {kind: torture.counts[f"equal: {kind}"] for kind in QUERIES}
    missing = [kind for kind, n in compared.items() if n == 0]
    if missing and not torture.failures:
        print(f"error: never compared: {', '.join(missing)}; give it more seconds")
    print(f"torture: {sum(compared.values())} comparisons, {torture.counts['crashes']} crashes, {len(torture.failures)} wrong")
    unused = not torture.given.without_extension and not torture.given.mutate and [
        what for what in STAT if what != "fallbacks" and torture.counts[f"headrace {what}"] == 0
    ]
    if unused and not torture.failures:
        print(f"error: nothing was counted as {', '.join(unused)}: the extension was not tested")
    return 1 if torture.failures or missing or unused else 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--socket", required=True, type=pathlib.Path)
    arguments.add_argument("--crash", required=True)
    arguments.add_argument("--crash-every", type=float, default=15, help="seconds")
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--readers", type=int, default=4)
    arguments.add_argument("--writers", type=int, default=3)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--without-extension", action="store_true", help="on and off are the same server then")
    arguments.add_argument("--mutate", choices=("answers", "balance"))
    given = arguments.parse_args()
    upkeep.create(given.socket, not given.without_extension)
    torture = Torture(given)
    reader = Reader(torture)
    threads = [torture.thread(f"reader {n}", reader) for n in range(given.readers)]
    threads += [torture.thread(f"writer {n}", upkeep.Writer(torture, given.mutate == "balance")) for n in range(given.writers)]
    threads.append(torture.thread("maintenance", upkeep.Maintenance(torture)))
    crash(torture)
    for thread in threads:
        thread.join()
    if not torture.failures:
        # Whatever came last, by itself.
        connection = torture.connect()
        prepare(connection, given)
        connection.query("begin isolation level repeatable read")
        try:
            for kind in QUERIES:
                reader.compare(connection, random.Random(0), kind)
        except (Wrong, ConnectionLost, ServerStuck) as error:
            torture.fail(f"at the end: {error}")
    sys.exit(report(torture))


if __name__ == "__main__":
    main()
