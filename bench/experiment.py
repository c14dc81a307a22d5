"""What experiments share that run on a GPU machine from the bundle, and on the cores where there is no GPU.

The program is $HEADRACE, or the bundle's (scripts/unpack-bundle), or target/release/headrace.
"""

import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from lib import machine  # noqa: E402


def program() -> str:
    """The program to measure."""
    named = os.environ.get("HEADRACE")
    built = ROOT / "target/release/headrace"
    if named:
        found = pathlib.Path(named)
    elif (ROOT / ".bundle").is_dir():
        unpacked = subprocess.run([ROOT / "scripts/unpack-bundle"], check=True, capture_output=True, text=True)
        found = pathlib.Path(unpacked.stdout.strip()) / "headrace"
    else:
        found = built
    if not found.is_file():
        sys.exit(f"error: there is no program {found}\n\nhint: make release, or set HEADRACE")
    return str(found.resolve())


def gpu_name() -> str:
    """The first GPU's name, or nothing."""
    if not shutil.which("nvidia-smi"):
        return ""
    asked = ["nvidia-smi", "-i", "0", "--query-gpu=name", "--format=csv,noheader"]
    told = subprocess.run(asked, capture_output=True, text=True)
    return told.stdout.strip() if told.returncode == 0 else ""


class Experiment:
    """A folder on the storage to measure, the program, and the figures so far."""

    def __init__(self, name: str, folder: str, out: str | None):
        self.headrace = program()
        self.gpu = gpu_name()
        self.processors = ["cuda", "cpu"] if self.gpu else ["cpu"]
        place = self.gpu.lower().replace(" ", "-") or f"{os.cpu_count()}-cores"
        self.out = pathlib.Path(out or ROOT / "bench/runs" / f"{datetime.date.today()}-{place}-{name}")
        self.out.mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"headrace-{name}-", dir=folder))
        # The ceilings of a machine are no matter of experiments.
        os.environ["HEADRACE_CEILINGS"] = str(self.folder / "ceilings.json")
        self.name, self.figures, self.lines, self.failures = name, [], [], 0

    def __enter__(self):
        version = subprocess.run([self.headrace, "--version"], capture_output=True, text=True).stdout
        self.say(f"{self.gpu or 'no GPU'}; {json.dumps(machine.described())}; {version.splitlines()[0]}")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)
        command = " ".join(sys.argv)
        host = {**machine.described(), "gpu": self.gpu or None}
        record = {"command": command, "machine": host, "failures": self.failures, "figures": self.figures}
        (self.out / f"{self.name}.json").write_text(json.dumps(record, indent=1) + "\n")
        (self.out / f"{self.name}.txt").write_text("\n".join(self.lines) + "\n")
        print(f"kept in {self.out}")

    def say(self, line: str = "") -> None:
        print(line, flush=True)
        self.lines.append(line)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def table(self, *titles: tuple[str, int]) -> None:
        """Begins a table of columns of these widths; negative: to the left."""
        self.widths = [width for _, width in titles]
        self.say()
        self.row(*(title for title, _ in titles))

    def row(self, *cells) -> None:
        pad = [f"{cell!s:<{-width}}" if width < 0 else f"{cell!s:>{width}}" for cell, width in zip(cells, self.widths)]
        self.say("  ".join(pad).rstrip())

    def failed(self, why: str) -> None:
        self.failures += 1
        self.say(f"FAILED: {why}")

    def run(self, *arguments) -> str:
        """What the program says; its failure ends the experiment."""
        done = self.try_run(*arguments)
        if done.returncode != 0:
            sys.exit(f"error: headrace {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def try_run(self, *arguments) -> subprocess.CompletedProcess:
        command = [self.headrace, *map(str, arguments), "--quiet"]
        return subprocess.run(command, capture_output=True, text=True)

    def timed(self, *arguments) -> tuple[float, str]:
        """Seconds of a process, and what it says."""
        begin = time.monotonic()
        said = self.run(*arguments)
        return time.monotonic() - begin, said

    def start(self, *arguments) -> subprocess.Popen:
        """A process that runs beside others."""
        command = [self.headrace, *map(str, arguments), "--quiet"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def cold(self, *names: str) -> None:
        """Drops files from the page cache."""
        for name in names:
            descriptor = os.open(self.path(name), os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    def io(self, *arguments) -> dict | str:
        """The record of one run of `bench io`, or why there is none: a command that is wrong is a failure, too."""
        record = pathlib.Path(self.path("io.json"))
        done = self.try_run("bench", "io", *arguments, "--no-record", "--json", record)
        if done.returncode == 2:
            self.failures += 1
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["no reason"])[0]
        return json.loads(record.read_text())["runs"][0]

    def read_gb_per_s(self, *names: str) -> float:
        """The rate of files read and thrown away, cold: what storage has."""
        told = self.io(*map(self.path, names), "--to", "host", "--cold")
        if isinstance(told, str):
            sys.exit(f"error: the rate of plain reads: {told}")
        return told["gb_per_s"]
