#!/usr/bin/env python3
"""The shell on a terminal: what somebody who comes from psql, DuckDB or ClickHouse types first.

    tests/cli/shell.py HEADRACE SSB_FOLDER

A pseudo-terminal types and looks at what comes back, Ctrl-C of a long query included.
"""

import fcntl
import os
import pty
import re
import select
import signal
import stat
import struct
import sys
import tempfile
import termios
import time

ESCAPE = re.compile(r"\x1b\][^\x07]*\x07|\x1b[\[(][0-9;?=<>]*[ -/]*[@-~]|\x1b[=>78]|[\r\x07]")
WAIT_S = 60
COLUMNS, ROWS = 150, 40
PLANNED_LONG = "select " + ", ".join(f"1 as c{i}" for i in range(20000)) + ";"


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command, home):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            env = {"PATH": os.environ["PATH"], "HOME": home, "TERM": "xterm-256color",
                   "EDITOR": os.environ.get("EDITOR", "true")}
            os.execve(command[0], command, env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.raw = ""
        self.seen = 0

    def text(self):
        """What came since the last check, without colours and cursor movements."""
        return ESCAPE.sub("", self.raw[self.seen:])

    def read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            return False
        if not data:
            return False
        self.raw += data.decode("utf-8", "replace")
        # A terminal tells where its cursor is when it is asked; always in the last line here.
        for _ in range(data.count(b"\x1b[6n")):
            os.write(self.fd, b"\x1b[%d;1R" % ROWS)
        return True

    def expect(self, pattern, wait_s=WAIT_S):
        """Waits for a text, and for nothing before it to be looked at again."""
        end = time.monotonic() + wait_s
        while not re.search(pattern, self.text()):
            if time.monotonic() > end or not self.read(0.1):
                tail = self.text()[-3000:]
                raise AssertionError(f"no /{pattern}/ within {wait_s} s in:\n{tail}")
        found = self.text()
        self.seen = len(self.raw)
        return found

    def type(self, text):
        os.write(self.fd, text.encode())

    def ask(self, line, *patterns, wait_s=WAIT_S):
        """Types a line; waits for the answer and the next prompt."""
        self.type(line + "\r")
        # The answer ends where the next prompt is drawn: behind what is echoed of the line.
        text = self.expect(r"\n(?s:.*)(" + patterns[0] + r")(?s:.*)headrace> $", wait_s)
        for pattern in patterns[1:]:
            assert re.search(pattern, text), f"{line!r}: no /{pattern}/ in:\n{text}"
        return text

    def end(self, wait_s=10):
        """Waits for the program to leave; its exit code."""
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("it did not leave")


def first_session(headrace, data, home):
    t = Terminal([headrace, "--data", data], home)
    t.expect(r"5 tables; \\\? for help(?s:.*)headrace> $")
    t.ask("select 1 as one;", r"\| one \|", r"1 row, ")
    # Several lines up to the semicolon, with a prompt of their own.
    t.type("select 40 +\r")
    t.expect(r"     \.\.\. ; runs it, Ctrl-C drops it$")
    t.ask("2 as answer;", r"\|     42 \|")
    t.ask("\\d", r"lineorder +\| base table")
    t.ask("\\dt", "lineorder", "supplier")
    t.ask(".tables", "lineorder", "supplier")
    t.ask("show tables;", r"\| lineorder", r"\| supplier", r"5 rows")
    t.ask("\\d date", "column_name", "d_datekey", r"\| INT |\| BIGINT ")
    t.ask("describe date;", "column_name", "d_datekey")
    t.ask(".schema date", r"CREATE TABLE date \(", r"d_datekey (INT|BIGINT)")
    t.ask("select count(*) from date;", r"\| count\(\*\) \|", "2557")
    t.ask("from date limit 3;", r"d_datekey", r"columns shown", r"\n3 rows")
    t.ask("summarize date;", r"column_name", r"d_year +\|", "1992", "1998")
    t.ask("SELECT D_YEAR, count(*) from DATE group by all order by 1 limit 1;", r"d_year +\| count\(\*\)", "1992")
    t.ask("select * exclude (d_date) from date limit 1;", "1 row, ")
    text = t.ask("select lo_orderkey from lineorder;", r"\(40 of [0-9]+ rows shown; ", "\\\\o FILE")
    shown = len(re.findall(r"^\| +[0-9]+ \|$", text.replace("\r", ""), re.M))
    assert shown == 40, f"{shown} rows shown"
    t.ask(".maxrows 3", "3 rows")
    t.ask("select lo_orderkey from lineorder;", r"\(3 of [0-9]+ rows shown; ")
    # A line for each value.
    t.ask("\\x", "expanded is on")
    t.ask("select 1 as a, 'x' as b;", r"-\[ row 1 \]", r"a \| 1", r"b \| x")
    t.ask("\\x off", "expanded is off")
    t.ask(".mode csv", "headrace>|")
    t.ask("select 1 as a, 'x,y' as b;", r'a,b\n1,"x,y"')
    t.ask(".mode tabel", "there is no format tabel", "did you mean table")
    t.ask(".mode table", "headrace>|")
    t.ask("\\timing off", "timing is off")
    text = t.ask("select 1 as one;", r"\| one \|")
    assert " s," not in text, text
    t.ask("\\timing", "timing is on")
    # Mistakes.
    t.ask("selec 1;", "did you mean SELECT", "line 1, column 1")
    t.ask("select d_yaer from date;", "there is no column d_yaer", "did you mean d_year")
    t.ask("select * from lineordr;", "there is no table lineordr", "did you mean lineorder")
    t.ask("select cuont(*) from date;", "did you mean count")
    t.ask("\\dx", "there is no command", "did you mean")
    t.ask("select 1; select 1 / 0; select 3;", r"statement 2 \(line 1\): ")
    # To a file and from one.
    out, script = os.path.join(home, "out.csv"), os.path.join(home, "script.sql")
    t.ask(".mode csv", "headrace>|")
    t.ask(f"\\o {out}", "headrace>|")
    t.ask("select 7 as seven;", "1 row")
    t.ask("\\o", "headrace>|")
    with open(out) as file:
        assert file.read() == "seven\n7\n"
    with open(script, "w") as file:
        file.write("-- two\n.mode table\nselect - -1 as two; select 'a;b' as b;\n")
    t.ask(f"\\i {script}", r"\| two \|", r"\| a;b \|")
    # Completion of a table and of a column of the table that is named.
    t.type("select count(*) as n from custo\t")
    t.expect("customer")
    t.ask(";", r"\| n +\|")
    t.type("select max(d_year) from date where d_weeknumi\t")
    t.expect("d_weeknuminyear")
    t.ask(" = 1;", "1998")
    # A half-typed line is cleared; a running query ends, and nothing else.
    t.type("select nothing from")
    t.expect("nothing from")
    t.type("\x03")
    t.expect("headrace> $")
    t.ask("select 5 as five;", r"\| five \|")
    t.type("select sum(a.lo_revenue * b.lo_tax + a.lo_tax) from lineorder a, lineorder b where a.lo_tax <> b.lo_discount;\r")
    t.expect(r"[1-9]\.[0-9] s")
    began = time.monotonic()
    t.type("\x03")
    t.expect(r"cancelled(?s:.*)headrace> $", 10)
    took = time.monotonic() - began
    assert took < 3, f"Ctrl-C took {took:.1f} s"
    t.ask("select 6 as six;", r"\| six \|")
    # A statement that is planned for long, and one function of large values.
    for sql in (PLANNED_LONG, "select levenshtein(repeat('ab', 100000), repeat('ba', 100000));"):
        script = os.path.join(home, "long.sql")
        with open(script, "w") as file:
            file.write(sql)
        t.type(f"\\i {script}\r")
        t.expect("long.sql")
        time.sleep(1)
        began = time.monotonic()
        t.type("\x03")
        t.expect(r"cancelled(?s:.*)headrace> $", 10)
        took = time.monotonic() - began
        assert took < 0.7, f"Ctrl-C took {took:.1f} s"
    t.ask("select 6 as six;", r"\| six \|")
    # What was typed before comes back.
    t.type("\x1b[A")
    t.expect("select 6 as six")
    t.ask("", r"\| six \|")
    t.ask("explain analyze select sum(lo_revenue) from lineorder;", "PipelineExec", "GB/s")
    t.ask("\\?", r"\\timing", r"\.schema")
    t.ask("help", r"\\timing")
    t.type("\x04")
    assert t.end() == 0
    history = os.path.join(home, ".local/state/headrace/history")
    assert stat.S_IMODE(os.stat(history).st_mode) == 0o600, oct(os.stat(history).st_mode)
    with open(history) as file:
        assert "select 6 as six" in file.read()


def next_session(headrace, home):
    with open(os.path.join(home, ".headracerc"), "w") as file:
        file.write("\\timing off\ncreate view v as select 8 as eight;\n")
    t = Terminal([headrace, "-q"], home)
    t.expect("headrace> $")
    t.ask("from v;", r"\| eight \|")
    t.type("\x1b[A\x1b[A")
    t.expect("help")
    t.type("\x03")
    t.expect("headrace> $")
    t.type("\\q\r")
    assert t.end() == 0
    t = Terminal([headrace, "--no-rc"], home)
    t.expect("headrace> $")
    t.ask("from v;", "there is no table v", "--data DIR")
    t.type("exit\r")
    assert t.end() == 0
    # Whoever is asked to end leaves the terminal as it was.
    t = Terminal([headrace, "--no-rc"], home)
    t.expect("headrace> $")
    os.kill(t.pid, signal.SIGTERM)
    assert t.end() == 143


# What people who come from psql, DuckDB and clickhouse-local type in their first hour, and what must come back.
NEWCOMER = [
    ("select 1;", r"\|"),
    ("select version();", r"\|"),
    ("select now();", r"\| 20"),
    ("select current_date;", r"\| 20"),
    ("\\?", r"\\watch"),
    ("\\d", "trips"),
    ("\\dt", "trips"),
    ("\\d trips", r"fare +\| DOUBLE"),
    ("\\d+ trips", "fare"),
    (".tables", "trips"),
    (".schema trips", "CREATE TABLE trips"),
    ("show tables;", "trips"),
    ("describe trips;", r"city +\| VARCHAR"),
    ("describe select * from trips;", r"day +\| DATE"),
    ("summarize trips;", r"fare +\|"),
    ("select * from trips limit 5;", "5 rows"),
    ("from trips limit 5;", "5 rows"),
    ("select count(*) from trips;", "1000"),
    ("SELECT COUNT(*) FROM Trips;", "1000"),
    ("select city, count(*) from trips group by city order by 2 desc;", "3 rows"),
    ("select city, avg(fare) from trips group by all order by all;", "Lima"),
    ("select city, sum(fare) filter (where fare > 10) from trips group by 1;", "3 rows"),
    ("select distinct city from trips;", "3 rows"),
    ("select * from trips where city = 'Rome' and fare between 10 and 20 limit 3;", "rows"),
    ("select * from trips where city like 'R%' limit 1;", "Rome"),
    ("select * from trips where city ilike 'r%' limit 1;", "Rome"),
    ("select city, row_number() over (partition by city order by fare) from trips limit 3;", "3 rows"),
    ("with t as (select * from trips) select max(fare) from t;", "1 row"),
    ("select a.city from trips a join trips b on a.id = b.id limit 1;", "1 row"),
    ("select * from (values (1, 'a'), (2, 'b')) v(n, t);", "2 rows"),
    ("select date_trunc('month', day) as m, count(*) from trips group by 1 order by 1 limit 2;", "2024-01"),
    ("select extract(year from day) from trips limit 1;", "2024"),
    ("select case when fare > 40 then 'much' else 'less' end as what, count(*) from trips group by 1;", "much"),
    ("select coalesce(null, 1), nullif(1, 1), greatest(1, 2);", r"\|"),
    ("select upper(city) || '!' from trips limit 1;", "!"),
    ("select * exclude (day) from trips limit 1;", "1 row"),
    ("create table few as select * from trips limit 10;", "done"),
    ("insert into few select * from trips limit 1;", r"\|"),
    ("select count(*) from few;", "11"),
    ("create view rome as select * from trips where city = 'Rome';", "done"),
    ("select count(*) from rome;", "334"),
    ("drop view rome;", "done"),
    ("drop table few;", "done"),
    ("copy (select * from trips limit 7) to 'seven.csv';", "7"),
    ("select count(*) from 'seven.csv';", r"\| +7 \|"),
    ("copy trips to 'trips.parquet';", "1000"),
    ("select count(*) from 'trips.parquet';", "1000"),
    ("select * from read_csv('seven.csv') limit 1;", "1 row"),
    ("\\copy (select 1 as one) to 'one.csv' csv header", "headrace>|"),
    (".import seven.csv seven", "headrace>|"),
    ("select count(*) from seven;", r"\| +7 \|"),
    ("explain select sum(fare) from trips;", "headrace>|"),
    ("explain analyze select sum(fare) from trips;", "GB/s|rows"),
    ("\\timing", "timing is off"),
    ("\\timing on", "timing is on"),
    ("\\x on", "expanded is on"),
    ("select 1 as a;", r"a \| 1"),
    ("\\x off", "expanded is off"),
    (".mode box", "headrace>|"),
    ("select 1 as a;", "┌"),
    (".mode line", "headrace>|"),
    ("select 1 as a;", r"a \| 1"),
    (".mode csv", "headrace>|"),
    ("select 1 as a, null as b;", "a,b"),
    (".mode table", "headrace>|"),
    (".nullvalue -", "headrace>|"),
    ("select null as nothing;", r"\| - +\|"),
    (".nullvalue NULL", "headrace>|"),
    ("\\set n 3", "headrace>|"),
    ("\\set who Rome", "headrace>|"),
    ("select * from trips where city = :'who' limit :n;", "3 rows"),
    ("\\set", "who = 'Rome'"),
    ("\\unset n", "headrace>|"),
    ("\\df date_tr", "date_trunc"),
    ("\\echo hello", "hello"),
    ("\\! echo from the system", "from the system"),
    ("\\cd .", "headrace>|"),
    (".mode csv", "headrace>|"),
    (".once once.csv", "headrace>|"),
    ("select 1 as once;", "1 row"),
    (".mode table", "headrace>|"),
    ("select 2 as again;", r"\| again \|"),
    ("select count(*) from 'once.csv';", r"\| +1 \|"),
    ("set threads = 1;", "done"),
    ("show threads;", "headrace.threads"),
    ("reset threads;", "done"),
    ("set threads = default;", "done"),
    ("set statement_timeout = '10s';", "done"),
    ("show all;", "headrace.access"),
    ("prepare p as select cast($1 as int) + 1 as next;", "done"),
    ("execute p(10);", "1 row"),
    ("select * from trips order by fare desc limit 3;", "3 rows"),
    ("\\e", "edited"),
]


def newcomers_session(headrace, home):
    """Nothing that is typed first fails."""
    work, data = os.path.join(home, "work"), os.path.join(home, "data")
    os.makedirs(work)
    os.makedirs(data)
    editor = os.path.join(home, "editor")
    with open(editor, "w") as file:
        file.write("#!/bin/sh\necho \"select 1 as edited;\" >\"$1\"\n")
    os.chmod(editor, 0o755)
    with open(os.path.join(data, "trips.csv"), "w") as file:
        file.write("id,city,day,fare\n")
        for i in range(1000):
            file.write(f"{i},{['Rome', 'Oslo', 'Lima'][i % 3]},2024-{1 + i % 12:02}-{1 + i % 28:02},{3 + i % 50}.5\n")
    before = os.getcwd()
    os.chdir(work)
    os.environ["EDITOR"] = editor
    t = Terminal([headrace, "--no-rc", "--data", data], home)
    os.chdir(before)
    t.expect(r"1 table; (?s:.*)headrace> $")
    for line, pattern in NEWCOMER:
        text = t.ask(line, pattern)
        assert "error:" not in text, f"{line}:\n{text}"
    # The way out of a line that goes on is shown; a file's name is completed.
    t.type("select 1\r")
    t.expect("; runs it, Ctrl-C drops it")
    t.type("\x03")
    t.expect("headrace> $")
    t.type("select count(*) from 'sev\t")
    t.expect("seven.csv")
    t.ask("';", r"\| +7 \|")
    t.ask("select 3 as thrice;", r"\| thrice \|")
    t.type("\\watch 0.2\r")
    for _ in range(3):
        t.expect(r"\| thrice \|")
    t.type("\x03")
    t.expect(r"cancelled(?s:.*)headrace> $", 10)
    t.type("\\q\r")
    assert t.end() == 0
    assert len(NEWCOMER) >= 60


def main():
    headrace, data = (os.path.realpath(path) for path in sys.argv[1:])
    with tempfile.TemporaryDirectory() as home:
        first_session(headrace, data, home)
        next_session(headrace, home)
    with tempfile.TemporaryDirectory() as home:
        newcomers_session(headrace, home)
    print("the shell answers as it should")


if __name__ == "__main__":
    main()
