"""Servers for tests: each with tables of its own, on ports that the system chooses."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PROGRAM = pathlib.Path(os.environ["HEADRACE_SERVER"]).resolve()
PASSWORD = "it's a pénguin"


class Server:
    """A running server; `port` speaks PostgreSQL's protocol, `http` and `flight` are addresses."""

    def __init__(self, data, *options, memory_limit="1GB"):
        command = [PROGRAM, "serve", "--data", data, "--postgres", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        command += ["--flight", "127.0.0.1:0"]
        command += ["--memory-limit", memory_limit, "--processor", "cpu", *options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.lines = []
        self.heard = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()
        self.port = int(self.line(r"postgres://.*:(\d+)/")[1])
        found = self.line(r"(https?)://(.*)/ for")
        self.http = f"{found[1]}://{found[2]}"
        found = self.line(r"(grpc|grpc\+tls)://(.*)/ for")
        self.flight = f"{found[1]}://{found[2]}"

    def _listen(self):
        for line in self.process.stderr:
            with self.heard:
                self.lines.append(line.rstrip("\n"))
                self.heard.notify_all()
        with self.heard:
            self.lines.append(None)
            self.heard.notify_all()

    def line(self, pattern, seconds=60):
        """The first line that it said of this kind."""
        until = time.monotonic() + seconds
        with self.heard:
            while True:
                for line in self.lines:
                    if line is not None and (found := re.search(pattern, line)):
                        return found
                if self.lines and self.lines[-1] is None:
                    raise AssertionError(f"it ended: {self.lines}")
                if not self.heard.wait(until - time.monotonic()):
                    raise AssertionError(f"no line of {pattern}: {self.lines}")

    @property
    def dsn(self):
        return f"host=127.0.0.1 port={self.port} user=ada dbname=headrace"

    @property
    def url(self):
        return f"postgresql://ada@127.0.0.1:{self.port}/headrace"

    def memory_bytes(self):
        """What the process holds beside files that it maps."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def sockets(self):
        folder = pathlib.Path(f"/proc/{self.process.pid}/fd")
        return sum(os.readlink(file).startswith("socket:") for file in folder.iterdir() if file.is_symlink())

    def stop(self, how=signal.SIGTERM, seconds=40):
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def write_tables(folder):
    """`kinds` has a column of each type, `many` two million rows, `wide` long texts."""
    import datetime
    import decimal

    utc = datetime.timezone.utc
    kinds = pa.table(
        {
            "nth": pa.array([1, 2, 3], pa.int32()),
            "flag": pa.array([True, False, None]),
            "tiny": pa.array([-128, 127, None], pa.int8()),
            "small": pa.array([-32768, 32767, None], pa.int16()),
            "big": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
            "huge": pa.array([0, 2**64 - 1, None], pa.uint64()),
            "real": pa.array([0.5, -1e-7, None], pa.float32()),
            "double": pa.array([1.0 / 3, float("inf"), None], pa.float64()),
            "price": pa.array([decimal.Decimal("-12.50"), decimal.Decimal("0.01"), None], pa.decimal128(15, 2)),
            "text": pa.array(["it's \"é\"", "", None]),
            "code": pa.array(["a", "b", None]).dictionary_encode(),
            "bytes": pa.array([b"\x00\xff", b"", None], pa.binary()),
            "day": pa.array([datetime.date(1999, 12, 31), datetime.date(2024, 2, 29), None]),
            "noon": pa.array([datetime.time(12, 0, 0, 1), datetime.time(0), None], pa.time64("us")),
            "moment": pa.array([datetime.datetime(2024, 3, 5, 10, 11, 12, 500000), datetime.datetime(1970, 1, 1), None]),
            "instant": pa.array(
                [datetime.datetime(2024, 3, 5, 10, tzinfo=utc), datetime.datetime(1999, 1, 1, tzinfo=utc), None],
                pa.timestamp("us", tz="UTC"),
            ),
            "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
            "texts": pa.array([["a,b", None, "NULL"], [], None], pa.list_(pa.string())),
        }
    )
    pq.write_table(kinds, folder / "kinds.parquet")
    rows = 2_000_000
    many = pa.table({"id": pa.array(range(rows), pa.int64()), "part": pa.array([i % 7 for i in range(rows)], pa.int32())})
    with pa.OSFile(str(folder / "many.arrow"), "wb") as file, pa.ipc.new_file(file, many.schema) as writer:
        writer.write_table(many, max_chunksize=100_000)
    wide = pa.table({"id": pa.array(range(2000)), "text": pa.array(["x" * 10_000] * 2000)})
    pq.write_table(wide, folder / "wide.parquet")


@pytest.fixture(scope="session")
def data():
    with tempfile.TemporaryDirectory(prefix="headrace-server-") as name:
        folder = pathlib.Path(name) / "tables"
        folder.mkdir()
        write_tables(folder)
        yield folder


@pytest.fixture(scope="session")
def server(data):
    """One that everybody of this machine may read from."""
    running = Server(data)
    yield running
    assert running.process.poll() is None, running.lines
    assert running.stop() == 0


@pytest.fixture
def servers():
    """Makes servers of a test's own."""
    made = []

    def make(*arguments, **options):
        made.append(Server(*arguments, **options))
        return made[-1]

    yield make
    for running in made:
        running.stop()


@pytest.fixture(scope="session")
def users(tmp_path_factory):
    """A file of users, whose passwords are PASSWORD."""
    path = tmp_path_factory.mktemp("users") / "users"
    lines = []
    for name in ("ada", "bob"):
        made = subprocess.run([PROGRAM, "user", name], input=PASSWORD + "\n", capture_output=True, text=True, check=True)
        lines.append(made.stdout)
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate of this machine's, its own authority, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder / "cert.pem", folder / "key.pem"
