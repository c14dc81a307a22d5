"""Fenced blocks of Markdown pages, run as a reader would run them.

What a fence's info string says of its block:

    sh run         commands, run by bash in the page's folder; each must succeed
    sh             commands that a test does not run: they want a GPU, a server, minutes
    sql            statements, run by `headrace --data shop` in that folder, on the cores with two threads
    sql pipeline   the same; each must be a pipeline as a whole in EXPLAIN
    sql planner    the same; in EXPLAIN each must leave work to the planner
    sql error      one statement that must fail
    text           behind a block that is run: what it prints, to the letter, or with an error the message, or behind
                   `sql planner` a part of EXPLAIN; elsewhere it is a figure

A line that ends in ` ...` in a `text` block need begin with what stands before, and a line of `...` is any lines.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

KINDS = {"sh run", "sh", "sql", "sql pipeline", "sql planner", "sql error", "text"}
RUN = KINDS - {"sh", "text"}
# Operators of the planner that a pipeline could have in it.
LEFT_TO_PLANNER = re.compile(r"^\s*(?:HeadraceScanExec|\w*(?:Join|Aggregate|Window)\w*Exec)\b|why_not above: .*", re.M)
SECONDS_MAX = 120


@dataclass
class Block:
    page: str
    line: int
    kind: str
    text: str

    def __str__(self):
        return f"{self.page}:{self.line} ({self.kind})"


class Wrong(Exception):
    """What a page says is not so."""


def blocks(path):
    """The fenced blocks of a page."""
    found, opened = [], None
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        if opened is None and line.startswith("```"):
            opened = Block(Path(path).name, number, line[3:].strip(), "")
            if opened.kind not in KINDS:
                raise Wrong(f"{opened}: a fence is one of {', '.join(sorted(KINDS))}")
        elif opened is not None and line == "```":
            found.append(opened)
            opened = None
        elif opened is not None:
            opened.text += line + "\n"
    if opened is not None:
        raise Wrong(f"{opened}: it has no end")
    return found


def statements(text):
    """The statements of a block: each ends with a semicolon at the end of a line, or is a command of a line."""
    found, pending = [], ""
    for line in text.splitlines():
        pending += line + "\n"
        code = line.split("--")[0].rstrip()
        if code.endswith(";") or (not pending.strip("\n").count("\n") and line[:1] in ("\\", ".")):
            found.append(pending.strip())
            pending = ""
    if pending.strip():
        found.append(pending.strip())
    return found


def matches(pattern, line):
    return line.startswith(pattern[:-4].rstrip()) if pattern.endswith(" ...") else line.rstrip() == pattern.rstrip()


def is_like(wanted, found):
    """Whether lines are as a page shows them."""
    if not wanted:
        return not found
    if wanted[0] == "...":
        return any(is_like(wanted[1:], found[at:]) for at in range(len(found) + 1))
    return bool(found) and matches(wanted[0], found[0]) and is_like(wanted[1:], found[1:])


class Reader:
    """Somebody who does what a page says, in a folder of their own."""

    def __init__(self, headrace, folder):
        self.folder = Path(folder)
        (self.folder / "home").mkdir()
        self.environment = dict(
            os.environ,
            PATH=f"{Path(headrace).resolve().parent}:{os.environ['PATH']}",
            HOME=str(self.folder / "home"),
            HEADRACE_CACHE=str(self.folder / "home" / "cache"),
            LC_ALL="C.UTF-8",
        )

    def run(self, block, command, fails=False):
        """What a command writes to standard output, or its errors if it is to fail."""
        done = subprocess.run(command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=SECONDS_MAX)
        if fails and done.returncode != 1:
            raise Wrong(f"{block}: exit {done.returncode}, where an error (1) is shown\n{done.stdout}{done.stderr}")
        if not fails and done.returncode != 0:
            raise Wrong(f"{block}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stderr if fails else done.stdout

    def sql(self, block, text, fails=False):
        data = ["--data", "shop"] if (self.folder / "shop").exists() else []
        return self.run(block, ["headrace", "-q", "--processor", "cpu", "--threads", "2", *data, "-c", text], fails)

    def explained(self, block):
        """EXPLAIN of each statement, of which the pipelines are judged."""
        plans = ""
        for statement in statements(block.text):
            plan = self.sql(block, f"explain {statement}")
            left = LEFT_TO_PLANNER.search(plan)
            if block.kind == "sql pipeline" and ("PipelineExec" not in plan or left):
                what = left.group().strip() if left else "no pipeline"
                raise Wrong(f"{block}: no pipeline as a whole ({what}):\n{statement}\n{plan}")
            if block.kind == "sql planner" and not left:
                raise Wrong(f"{block}: nothing is left to the planner:\n{statement}\n{plan}")
            plans += plan
        return plans

    def read(self, block, shown):
        """Does what a block says; `shown` is the block of what comes of it, if the page has one."""
        if block.kind == "sh run":
            output = self.run(block, ["bash", "-euo", "pipefail", "-c", block.text])
        else:
            output = self.sql(block, block.text, fails=block.kind == "sql error")
        if block.kind in ("sql pipeline", "sql planner"):
            plans = self.explained(block)
            if block.kind == "sql planner":
                output = plans
        if shown is None:
            if block.kind == "sql error":
                raise Wrong(f"{block}: no message is shown")
            return
        if block.kind in ("sql error", "sql planner"):
            output, wanted = " ".join(output.split()), " ".join(shown.text.split())
            if wanted not in output:
                raise Wrong(f"{shown}: it is not in\n{output}")
        elif not is_like(shown.text.splitlines(), output.splitlines()):
            raise Wrong(f"{shown}: what comes is\n{output}")


def check(path, headrace, folder, wanted):
    """Runs a page, of which so many blocks are to be run."""
    found = blocks(path)
    reader = Reader(headrace, folder)
    ran = 0
    for block, after in zip(found, found[1:] + [None]):
        if block.kind in RUN:
            reader.read(block, after if after is not None and after.kind == "text" else None)
            ran += 1
    if ran != wanted:
        raise Wrong(f"{path}: {ran} blocks are run, and {wanted} are wanted")
