#!/usr/bin/env python3
"""How the program ends when it is asked to: at once, with an exit code that says why, and nothing half-written.

    tests/cli/signals.py HEADRACE

SIGINT, SIGTERM, SIGHUP and SIGQUIT while a statement is planned, while it runs and while a file is converted; kill -9
and the run behind it; readers of the output that leave; readers of files that panic.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time

ASKED = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGQUIT: 131}
NOTICED_S = 0.3
# What a busy machine adds to that.
SLACK_S = 0.4

# Planned for many seconds: without rows the planner's time grows with the square of the columns.
PLANNED = "select " + ", ".join(f"1 as c{i}" for i in range(20000))
# Parsed for a while, then planned in parts for many seconds.
LISTED = "select " + ", ".join(f"a + {i} as c{i}" for i in range(200000)) + " from (values (1)) as t(a)"
RUNNING = {
    "a planner's cross join": "select count(*) from range(0, 60000) a, range(0, 60000) b where a.value * 7 % 13 = b.value % 11",
    "a function of large values": "select levenshtein(repeat('ab', 100000), repeat('ba', 100000))",
    "an aggregate": "select sum(value % 7) from generate_series(1, 100000000000)",
}


def begin(command, folder, **more):
    return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **more)


def left(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith(".headrace") or "unsorted" in name)


def ended_by(process, asked, after_s, limit_s=NOTICED_S + SLACK_S):
    time.sleep(after_s)
    assert process.poll() is None, f"it ended before: {process.communicate()}"
    began = time.monotonic()
    process.send_signal(asked)
    out, err = process.communicate(timeout=60)
    took = time.monotonic() - began
    assert process.returncode == ASKED[asked], f"{asked!r}: exit {process.returncode}: {err}"
    assert "panicked" not in err and "interrupted" in err, err
    assert took < limit_s, f"{asked!r} took {took:.2f} s"
    return out, err


def in_file(folder, sql):
    """What is too long for a command line."""
    with open(os.path.join(folder, "statement.sql"), "w") as file:
        file.write(sql)
    return ["-f", file.name]


def statements(headrace, folder):
    for asked in ASKED:
        ended_by(begin([headrace, *in_file(folder, PLANNED)], folder), asked, 1.0)
        for after_s in (0.3, 1.0, 3.0):
            ended_by(begin([headrace, *in_file(folder, LISTED)], folder), asked, after_s)
    for name, sql in RUNNING.items():
        for processor in ("off", "cpu"):
            try:
                ended_by(begin([headrace, "--processor", processor, "-c", sql], folder), signal.SIGINT, 1.0)
            except AssertionError as error:
                raise AssertionError(f"{name}, {processor}: {error}") from error


def files(headrace, folder):
    rows = os.path.join(folder, "rows.parquet")
    made = "select value as id, value * 7919 % 1000003 as k, 'text ' || value as t from generate_series(1, 6000000)"
    subprocess.run([headrace, "-q", "-c", f"copy ({made}) to '{rows}'"], check=True, capture_output=True)
    convert = [headrace, "convert", rows, os.path.join(folder, "out.arrow"), "--sort-by", "k"]
    copy = [headrace, "-c", f"copy (select * from '{rows}' order by t) to '{folder}/out.csv'"]
    for command in (convert, copy):
        for asked in ASKED:
            process = begin(command, folder)
            # Until something is being written.
            end = time.monotonic() + 30
            while not left(folder) and process.poll() is None and time.monotonic() < end:
                time.sleep(0.005)
            ended_by(process, asked, 0.05, 3)
            assert left(folder) == [], f"{command[1]}, {asked!r} left {left(folder)}"
            for name in ("out.arrow", "out.csv"):
                assert not os.path.exists(os.path.join(folder, name)), f"{name} is there"
    for command in (convert, copy):
        # What was seen first may have been removed before the kill.
        for _ in range(5):
            process = begin(command, folder)
            end = time.monotonic() + 30
            while not left(folder) and time.monotonic() < end:
                time.sleep(0.005)
            process.kill()
            process.communicate()
            if left(folder):
                break
        assert left(folder), "nothing to be removed: the test tests nothing"
        subprocess.run([headrace, "-q", "-c", f"copy (select 1 as one) to '{folder}/one.csv'"], check=True)
        assert left(folder) == [], f"the next run left {left(folder)}"
        # What somebody still writes stays.
        process = begin(convert, folder)
        while not left(folder) and process.poll() is None:
            time.sleep(0.005)
        subprocess.run([headrace, "-q", "-c", f"copy (select 1 as one) to '{folder}/one.csv'"], check=True)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        os.remove(os.path.join(folder, "out.arrow"))


def what_is_whole_is_said(headrace, folder):
    sql = f"copy (select 1 as one) to '{folder}/whole.csv'; {RUNNING['an aggregate']}"
    process = begin([headrace, "-c", sql], folder)
    ended_by(process, signal.SIGTERM, 1.0)
    assert open(os.path.join(folder, "whole.csv")).read() == "one\n1\n"


def readers_that_leave(headrace, folder):
    commands = [
        ["ssb", "queries"], ["settings"], ["--help"], ["--version"], ["gpu"], ["man"], ["completions", "bash"],
        ["-q", "-c", "select * from generate_series(1, 10000000)"],
        ["--format", "csv", "-c", "explain select 1"], ["-c", "\\?"], ["-c", ".schema"],
    ]
    for command in commands:
        for reader in ("head -1", "true"):
            script = "set -o pipefail; \"$@\" 2>err </dev/null | " + reader + " >/dev/null"
            done = subprocess.run(["bash", "-c", script, "-", headrace, *command], cwd=folder)
            err = open(os.path.join(folder, "err")).read()
            assert done.returncode == 0, f"{command} | {reader}: exit {done.returncode}: {err}"
            assert "panicked" not in err and "Broken pipe" not in err, f"{command}: {err}"
    # Without SQL: help for somebody who has seen enough, and the usage error.
    script = "\"$1\" </dev/null 2>err | head -1 >/dev/null; echo ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", script, "-", headrace], cwd=folder, capture_output=True, text=True)
    assert done.stdout == "2\n", done
    assert "panicked" not in open(os.path.join(folder, "err")).read()
    # Nobody reads what goes wrong.
    script = "\"$1\" -c 'select nothing' 2>&1 >/dev/null | true; echo ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", script, "-", headrace], cwd=folder, capture_output=True, text=True)
    assert done.stdout == "1\n", done


def readers_that_panic(headrace, folder):
    """What a library panics of is an error of the statement, without Rust's words and the places of its source."""
    rows = "select value as a, case when value % 3 > 0 then 'x' || value end as s, make_array(value) as l from generate_series(1, 150)"
    whole = subprocess.run([headrace, "-q", "--format", "arrow", "-c", rows], check=True, capture_output=True).stdout
    file = os.path.join(folder, "broken.arrows")
    chance = random.Random(4)
    for _ in range(120):
        broken = bytearray(whole)
        for _ in range(3):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        with open(file, "wb") as out:
            out.write(broken)
        done = subprocess.run([headrace, "-q", "-c", f"select * from '{file}'"], capture_output=True, text=True,
                              errors="replace", timeout=60)
        assert done.returncode in (0, 1), f"exit {done.returncode}: {done.stderr}"
        assert "panicked at" not in done.stderr and ".rs:" not in done.stderr, done.stderr


def limits_of_time(headrace, folder):
    for sql in [PLANNED, LISTED, *RUNNING.values()]:
        process = begin([headrace, *in_file(folder, f"set statement_timeout = '1s'; {sql}")], folder)
        # The whole text is read before the first statement is done.
        assert "done" in process.stderr.readline()
        began = time.monotonic()
        _, err = process.communicate(timeout=60)
        took = time.monotonic() - began
        assert process.returncode == 1 and "statement_timeout, 1 s" in err, err[-300:]
        assert took < 1.0 + NOTICED_S + SLACK_S, f"{took:.2f} s: {sql[:60]}"
    show = [headrace, "-q", "--format", "csv", "-c", "set statement_timeout to 2000; show statement_timeout; "
            "set statement_timeout = default; show statement_timeout; reset statement_timeout"]
    done = subprocess.run(show, capture_output=True, text=True)
    assert "2000ms" in done.stdout and ",0ms" in done.stdout, done
    done = subprocess.run([headrace, "-c", "set statement_timeout = '2 weeks'"], capture_output=True, text=True)
    assert done.returncode == 1 and "500ms, 2s, 1min" in done.stderr, done


def main():
    headrace = os.path.realpath(sys.argv[1])
    wanted = sys.argv[2:] or ["statements", "files", "what_is_whole_is_said", "readers_that_leave", "readers_that_panic", "limits_of_time"]
    for name in wanted:
        with tempfile.TemporaryDirectory() as folder:
            globals()[name](headrace, folder)
    print("it ends as it should")


if __name__ == "__main__":
    main()
