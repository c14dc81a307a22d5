"""Threads, signals and processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import headrace

LONG = "select count(*) from range(200000000000) a where a.value % 7 = 3"


def test_threads_share_a_connection(con):
    con.sql("create table t as select value as a from range(1000)")

    def asked(nth):
        return con.sql("select sum(a) + ? from t", [nth]).fetchone()[0]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(asked, range(64))) == [499500 + nth for nth in range(64)]


def test_threads_have_their_own_variables(con):
    def asked(nth):
        t = {"a": [nth]}
        return con.sql("select a from t").fetchone()[0], t

    with ThreadPoolExecutor(8) as pool:
        assert [found for found, _ in pool.map(asked, range(64))] == list(range(64))


def test_python_goes_on_while_a_query_runs(con):
    counted = 0
    done = threading.Event()

    def count():
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    con.sql("set statement_timeout = '500ms'")
    with pytest.raises(headrace.TimeoutError):
        con.sql(LONG).fetchall()
    done.set()
    thread.join()
    assert counted > 50


def test_rows_are_one_threads(con):
    rows = con._session.run("select value from range(1000000000)", {})
    started = threading.Event()
    errors = []

    def read():
        started.set()
        try:
            for _ in range(200):
                rows.fetch(50_000)
        except RuntimeError as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(errors) < 4, "somebody reads"
    rows.close()


@pytest.mark.parametrize("how", ["fetchone()", "fetchall()", "arrow()", "df()", "execute()", "to_arrow_reader().read_all()"])
def test_ctrl_c_ends_a_statement(how):
    pytest.importorskip("pandas")
    script = f"""
import headrace, pandas, pyarrow, sys
con = headrace.connect()
print("ready", flush=True)
try:
    con.sql({LONG!r}).{how}
except KeyboardInterrupt:
    print("interrupted", con.sql("select 1").fetchone(), flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.4)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert process.stdout.readline() == "interrupted (1,)\n"
        assert process.wait(timeout=10) == 0
        assert time.monotonic() - began < 5


def test_a_table_is_replaced_in_one_step(con):
    con.register("t", {"a": [1]})
    done = threading.Event()

    def replace():
        while not done.is_set():
            con.register("t", {"a": [1]})

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(200):
            assert con.sql("select a from t").fetchone() == (1,)
    finally:
        done.set()
        thread.join()


def test_a_child_of_a_fork_is_told(con):
    assert con.sql("select 1").fetchone() == (1,)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            con.sql("select 1").fetchone()
            told = "answered"
        except RuntimeError as error:
            told = str(error)
        os.write(write, told.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert "forked" in os.read(read, 10_000).decode()


def test_a_process_ends_while_a_query_runs():
    script = f"""
import headrace, threading
threading.Thread(target=lambda: headrace.sql({LONG!r}).fetchall(), daemon=True).start()
import time; time.sleep(0.3)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_large_answer_stays_within_its_limit(tmp_path):
    script = """
import headrace, resource
con = headrace.connect(memory_limit="200MB", processor="cpu")
rows = 0
for chunk in con.sql("select value as a, value * 2 as b from range(100000000)").df_chunks(500_000):
    rows += len(chunk)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(rows, peak)
"""
    pytest.importorskip("pandas")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    rows, peak = map(int, done.stdout.split())
    assert rows == 100_000_000
    assert peak < 900e6, f"{peak / 1e6:.0f} MB"


def test_a_sort_beyond_the_limit_goes_to_disk(tmp_path):
    con = headrace.connect(memory_limit="100MB", spill_folder=tmp_path, processor="cpu")
    rows = con.sql("select value as a, md5(value::varchar) as h from range(2000000) order by h")
    last = ""
    count = 0
    for _, text in rows:
        assert text >= last
        last, count = text, count + 1
    assert count == 2_000_000
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(headrace.OutOfMemoryError) as raised:
        con.sql("create table t as select value as a, md5(value::varchar) as h from range(10000000)")
    assert "memory_limit" in raised.value.hint


def test_import_is_fast():
    script = "import time; t = time.perf_counter(); import headrace; print(time.perf_counter() - t)"
    times = [float(subprocess.check_output([sys.executable, "-c", script])) for _ in range(5)]
    assert min(times) < 0.1, times


def test_import_loads_no_other_library():
    script = "import headrace, sys; print([m for m in ('pandas', 'polars', 'pyarrow', 'numpy', 'torch', 'IPython') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"
