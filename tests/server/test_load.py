"""Many clients at a time: right answers, memory below the limit, and small statements that do not wait for large ones."""

import os
import statistics
import threading
import time

import psycopg

SECONDS = float(os.environ.get("HEADRACE_LOAD_SECONDS", "15"))
CLIENTS = 100


def test_a_hundred_clients(servers, data):
    server = servers(data, memory_limit="256MB")
    answers = {
        "select count(*) from many where part = 3": (285_714,),
        "select sum(id) from many where id < 1000": (499_500,),
        "select count(distinct part) from many": (7,),
        "select text from kinds where nth = 1": ("it's \"é\"",),
        "select max(length(text)) from wide": (10_000,),
    }
    until, wrong, times = time.monotonic() + SECONDS, [], []
    most = 0

    def client(nth):
        queries = list(answers)
        try:
            with psycopg.connect(server.dsn, user=f"user{nth % 10}", autocommit=True) as connection:
                while time.monotonic() < until:
                    query = queries[(nth + len(times)) % len(queries)]
                    started = time.monotonic()
                    found = connection.execute(query).fetchone()
                    times.append(time.monotonic() - started)
                    if found != answers[query]:
                        wrong.append((query, found))
        except Exception as error:
            wrong.append((nth, repr(error)))

    clients = [threading.Thread(target=client, args=(nth,)) for nth in range(CLIENTS)]
    for thread in clients:
        thread.start()
    while any(thread.is_alive() for thread in clients):
        most = max(most, server.memory_bytes())
        time.sleep(0.2)
    assert not wrong, wrong[:3]
    times.sort()
    print(f"{len(times)} statements of {CLIENTS} clients: median {statistics.median(times) * 1e3:.0f} ms, "
          f"p99 {times[len(times) * 99 // 100] * 1e3:.0f} ms, {most / 1e6:.0f} MB")  # fmt: skip
    assert len(times) > CLIENTS
    # The limit is what tables and statements hold; the program, and the stacks of its threads, are beside that.
    assert most < 256e6 + 400e6


def test_small_statements_do_not_wait_for_large_ones(servers, data):
    server = servers(data, "--max-running", "2")
    slow = "select count(*) from many a join many b on a.part = b.part where a.id + b.id = -1"
    large = [psycopg.connect(server.dsn, autocommit=True, user="heavy") for _ in range(6)]

    def work(connection):
        try:
            connection.execute(slow)
        except psycopg.Error:
            pass

    threads = [threading.Thread(target=work, args=(connection,)) for connection in large]
    for thread in threads:
        thread.start()
    time.sleep(1)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        times = []
        for _ in range(20):
            started = time.monotonic()
            assert connection.execute("select count(*) from kinds").fetchone() == (3,)
            times.append(time.monotonic() - started)
    assert max(times) < 20, times
    for connection in large:
        connection.cancel_safe()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_a_small_statement_is_answered_at_once(server):
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        times = []
        for _ in range(300):
            started = time.perf_counter()
            connection.execute("select 1").fetchone()
            times.append(time.perf_counter() - started)
    print(f"select 1: median {statistics.median(times) * 1e6:.0f} us")
    assert statistics.median(times) < 0.02
