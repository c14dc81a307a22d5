"""What goes on beside the readers of torture.py: its tables, those who write them, and who maintains them."""

import random
import time

from lib.wire import Connection, fresh

DATABASE = "torture"
ROWS = 120_000
BALANCE = 1000
BRANCHES = 40


def create(folder, with_extension: bool) -> None:
    """About 50 MB of accounts, which have ROWS * BALANCE together, and what goes with them."""
    connection = fresh(folder, DATABASE)
    if with_extension:
        connection.query("create extension headrace")
    connection.query(f"""
        create table accounts (id int4 primary key, branch int4, balance int8 not null, kind text, price numeric(10, 2), filler text) with (fillfactor = 85);
        insert into accounts select i, case when i % 50 > 0 then i % {BRANCHES} end, {BALANCE}, 'kind ' || i % 20, i % 100000 / 100.0, repeat(md5(i::text), 8) from generate_series(1, {ROWS}) i;
        create sequence account start {ROWS + 1};
        create table branches (branch int4 primary key, name text, region int4);
        insert into branches select i, 'branch ' || i, i % 6 from generate_series(0, {BRANCHES - 1}) i;
        create table events (id int8 generated always as identity, account int4, branch int4, amount int8, at timestamptz default clock_timestamp());
        insert into events (account, branch, amount) select i % {ROWS}, i % {BRANCHES}, i from generate_series(1, 20000) i;
        create table side (v int4, word text);
        insert into side select i, 'word ' || i from generate_series(1, 5000) i;
        create unlogged table notes (id int8 generated always as identity, branch int4, amount int8, word text);
    """)
    connection.query("vacuum (freeze, analyze)")
    connection.close()


class Writer:
    """Changes that keep the sum of all balances, whether they are committed or not."""

    def __init__(self, torture, loses: bool):
        self.torture = torture
        self.loses = loses

    def __call__(self, connection: Connection, rng: random.Random) -> None:
        work = rng.choices(
            [self.transfers, self.touch, self.remove, self.add, self.subtransactions, self.locks, self.events, self.notes],
            [5, 3, 2, 2, 2, 2, 3, 3],
        )[0]
        connection.query(f"begin isolation level {rng.choice(['read committed', 'read committed', 'repeatable read'])}; set local lock_timeout = '3s'")
        keep = work(connection, rng)
        if self.loses and rng.random() < 0.1:
            connection.query(f"update accounts set balance = balance - 1 where id = {self.account(rng)}")
        done = "commit" if keep and rng.random() < 0.75 else "rollback"
        connection.query(done)
        self.torture.count(f"{work.__name__}: {done}")
        time.sleep(rng.random() / 20)

    def account(self, rng: random.Random) -> int:
        return rng.randint(1, ROWS)

    def move(self, connection: Connection, rng: random.Random, amount: str, source: int) -> bool:
        """Whether both accounts were there; if not, the caller takes it back."""
        taken = connection.query(f"update accounts set balance = balance - {amount} where id = {source}")[-1].tag
        given = connection.query(f"update accounts set balance = balance + {amount} where id = {self.account(rng)}")[-1].tag
        return taken == given == "UPDATE 1"

    def transfers(self, connection: Connection, rng: random.Random) -> bool:
        return all(self.move(connection, rng, str(rng.randint(1, 100)), self.account(rng)) for _ in range(rng.randint(1, 10)))

    def touch(self, connection: Connection, rng: random.Random) -> bool:
        """Many rows at once, in place or not."""
        low, count = self.account(rng), rng.choice([10, 200, 2000])
        change = rng.choice(["filler = md5(random()::text)", "filler = repeat(md5(random()::text), 9)", "kind = 'kind ' || id % 23", "price = price", "branch = branch"])
        connection.query(f"update accounts set {change} where id between {low} and {low + count}")
        return True

    def remove(self, connection: Connection, rng: random.Random) -> bool:
        """Accounts that go, and leave what they had to another."""
        low = self.account(rng)
        heir = self.account(rng)
        if low <= heir <= low + 30:
            return False
        tag = connection.query(f"""
            with gone as (delete from accounts where id between {low} and {low + rng.randint(0, 30)} returning balance)
            update accounts set balance = balance + (select coalesce(sum(balance), 0) from gone) where id = {heir}""")[-1].tag
        return tag == "UPDATE 1"

    def add(self, connection: Connection, rng: random.Random) -> bool:
        """New accounts; the first one gets something from an old one."""
        amount, count = rng.randint(1, 50), rng.choice([1, 20, 300])
        connection.query(f"""
            insert into accounts (id, branch, balance, kind, price, filler)
            select nextval('account'), i % {BRANCHES}, case when i = 1 then {amount} else 0 end, 'kind new', i, repeat('n', i) from generate_series(1, {count}) i""")
        tag = connection.query(f"update accounts set balance = balance - {amount} where id = {self.account(rng)}")[-1].tag
        return tag == "UPDATE 1"

    def subtransactions(self, connection: Connection, rng: random.Random) -> bool:
        """Some taken back; at times more than a snapshot has room for."""
        for number in range(rng.choice([3, 10, 70])):
            connection.query(f"savepoint s{number}")
            if not self.move(connection, rng, "7", self.account(rng)) or rng.random() < 0.4:
                connection.query(f"rollback to s{number}")
            elif rng.random() < 0.5:
                connection.query(f"release s{number}")
        return True

    def locks(self, connection: Connection, rng: random.Random) -> bool:
        """Row locks, shared by several at times, before a change or none."""
        low = rng.randint(1, 20) * 50
        strength = rng.choice(["update", "no key update", "share", "key share"])
        connection.query(f"select id from accounts where id between {low} and {low + 40} order by id for {strength}")
        time.sleep(rng.random() / 20)
        return rng.random() < 0.5 or self.move(connection, rng, "3", low)

    def events(self, connection: Connection, rng: random.Random) -> bool:
        connection.query(f"""
            insert into events (account, branch, amount) select {self.account(rng)}, i % {BRANCHES}, i from generate_series(1, {rng.choice([1, 100, 2000])}) i""")
        if rng.random() < 0.5:
            connection.query("delete from events where id in (select id from events order by id limit 500)")
        return True

    def notes(self, connection: Connection, rng: random.Random) -> bool:
        """An unlogged table, which a crash empties."""
        connection.query(f"""
            insert into notes (branch, amount, word) select i % {BRANCHES}, i, repeat('note ', i % 40) from generate_series(1, {rng.choice([1, 100, 5000])}) i""")
        if rng.random() < 0.5:
            connection.query(f"update notes set amount = amount + 1 where id % 50 = {rng.randint(0, 49)}")
        if rng.random() < 0.3:
            connection.query("delete from notes where id in (select id from notes order by id limit 2000)")
        return True


class Maintenance:
    """One thing after another that rewrites, freezes, moves or reshapes."""

    def __init__(self, torture):
        self.torture = torture
        self.columns = 0

    def __call__(self, connection: Connection, rng: random.Random) -> None:
        name, statements = rng.choice(self.works(rng))
        self.columns += 1
        connection.query("set lock_timeout = '3s'")
        for statement in statements:
            connection.query(statement)
        self.torture.count(f"maintenance: {name}")
        time.sleep(rng.random() / 2)

    def works(self, rng: random.Random) -> list:
        table = rng.choice(["accounts", "events", "side", "notes", "notes"])
        new = f"extra{self.columns}"
        drop = """do $$ declare name text; begin
            for name in select attname from pg_attribute where attrelid = 'accounts'::regclass and attname like 'extra%' and not attisdropped loop
                execute format('alter table accounts drop column %I', name); end loop; end $$"""
        someone = "(select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() order by random() limit 1)"
        return [
            ("vacuum", [f"vacuum {table}"]),
            ("vacuum all", ["vacuum accounts", "vacuum events", "vacuum notes"]),
            ("vacuum freeze", [f"vacuum (freeze) {table}"]),
            ("vacuum every page", [f"vacuum (disable_page_skipping, analyze) {table}"]),
            ("vacuum full", [f"vacuum full {table}"]),
            ("cluster", ["cluster accounts using accounts_pkey"]),
            ("checkpoint", ["checkpoint"]),
            ("truncate", [f"begin; truncate side; insert into side select i, 'word ' || i from generate_series(1, {rng.randint(0, 5000)}) i; {rng.choice(['commit', 'rollback'])}"]),
            ("change type", [f"alter table side alter v type {rng.choice(['int4', 'int8', 'numeric(12, 2)'])}"]),
            ("add column", [f"alter table accounts add column {new} {rng.choice(['int4 default 5', 'text default ' + chr(39) + 'new' + chr(39), 'numeric(8, 3)'])}"]),
            ("drop columns", [drop]),
            ("index", ["create index if not exists accounts_branch on accounts (branch)", "drop index accounts_branch"]),
            ("reindex", ["reindex table events"]),
            ("cancel", [f"select pg_cancel_backend({someone})"]),
            ("terminate", [f"select pg_terminate_backend({someone})"]),
        ]
