"""A scheduler and executors on this machine, each with a network, and a share of the machine, of its own.

    with Cluster(program, executors=2, rate="10gbit") as cluster:
        cluster.query("select 1", "--data", "/srv/tables")

Each process has a network namespace, a link of a limited rate in both directions, and a cgroup. Namespaces are held by a process
and have no name, and every process is told to end with this one: nothing is left, however this one ends, but for cgroups that it
could not remove, which the next one does. On `here` all are processes of this machine alone, which needs no rights.
"""

import ctypes
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time

PORT = 50050
PREFIX = "10.77.0."
CGROUPS = pathlib.Path("/sys/fs/cgroup")
PERIOD_US = 100_000
PATIENCE_S = 60
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """Why there is no such cluster here."""


def check(cores: float | None, memory: str | None) -> None:
    """Refuses what cannot be had here."""
    if os.geteuid() != 0:
        raise Refused("network namespaces and cgroups need root\nhint: sudo, or --here for processes of this machine alone")
    for tool in ("ip", "tc", "unshare", "nsenter"):
        if shutil.which(tool) is None:
            raise Refused(f"{tool} is not here\nhint: apt-get install iproute2 util-linux, or --here")
    if (cores or memory) and not Group.is_there():
        raise Refused(f"no cgroups for cpu and memory below {CGROUPS}\nhint: without limits of cores and memory")


def _ended_with_parent(parent: int, groups: list) -> None:
    """Runs in a child before its program: it ends with its parent, and counts in its cgroups."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    for group in groups:
        (group / "cgroup.procs").write_text(str(os.getpid()))


def bound(command: list, groups=(), **more) -> subprocess.Popen:
    """Starts a process that ends with this one."""
    parent = os.getpid()
    return subprocess.Popen(command, preexec_fn=lambda: _ended_with_parent(parent, list(groups)), **more)


def spawn(command: list, groups=(), **more) -> subprocess.Popen:
    """The same of one that hears no Ctrl-C, and has no input."""
    return bound(command, groups, stdin=subprocess.DEVNULL, start_new_session=True, **more)


def ended(process: subprocess.Popen) -> None:
    """Kills it, also where it is stopped."""
    if process.poll() is None:
        process.kill()
    process.wait()


def until(what: str, is_so, patience_s: float = PATIENCE_S) -> None:
    """Waits until something is so."""
    end = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.005)


class Group:
    """A cgroup, of version 2 or, with a folder for each controller, 1."""

    is_v2 = (CGROUPS / "cgroup.controllers").exists()

    @classmethod
    def is_there(cls) -> bool:
        if cls.is_v2:
            has = (CGROUPS / "cgroup.controllers").read_text().split()
            return {"cpu", "memory"} <= set(has) and os.access(CGROUPS, os.W_OK)
        return all(os.access(CGROUPS / name, os.W_OK) and (CGROUPS / name / "tasks").exists() for name in ("cpu", "memory"))

    def __init__(self, name: str):
        name = f"headrace-{os.getpid()}-{name}"
        self.cpu = CGROUPS / name if self.is_v2 else CGROUPS / "cpu" / name
        self.memory = CGROUPS / name if self.is_v2 else CGROUPS / "memory" / name
        self.folders = sorted({self.cpu, self.memory})
        if self.is_v2:
            (CGROUPS / "cgroup.subtree_control").write_text("+cpu +memory")
        for folder in self.folders:
            folder.mkdir()

    def limit_cores(self, cores: float | None) -> None:
        quota = round(cores * PERIOD_US) if cores else None
        if self.is_v2:
            (self.cpu / "cpu.max").write_text(f"{quota or 'max'} {PERIOD_US}")
        else:
            (self.cpu / "cpu.cfs_quota_us").write_text(str(quota or -1))

    def limit_memory(self, size: str) -> None:
        (self.memory / ("memory.max" if self.is_v2 else "memory.limit_in_bytes")).write_text(str(as_bytes(size)))

    def remove(self) -> None:
        for folder in self.folders:
            until(f"{folder} to be removed", lambda folder=folder: not folder.exists() or _removed(folder))


def _removed(folder: pathlib.Path) -> bool:
    """A group is busy until the kernel has buried its last process."""
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def remove_old_groups() -> None:
    """Those of processes that could not."""
    for parent in {CGROUPS} if Group.is_v2 else {CGROUPS / "cpu", CGROUPS / "memory"}:
        for folder in parent.glob("headrace-*-*"):
            owner = folder.name.split("-")[1]
            if owner.isdigit() and not pathlib.Path("/proc", owner).exists():
                _removed(folder)


def as_bytes(size: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([KMGT]?)i?B?", size, re.IGNORECASE)
    if not found:
        raise Refused(f"{size!r} is no size\nhint: 512MB, 4GiB")
    return int(found[1]) << " KMGT".index(found[2].upper() or " ") * 10


class Network:
    """A switch, and a link to it for each namespace."""

    def __init__(self, rate: str):
        self.rate = rate
        self.holders = []
        self.switch = self._namespace()
        self.inside(self.switch, "ip", "link", "add", "switch", "type", "bridge")
        self.inside(self.switch, "ip", "link", "set", "switch", "up")

    def inside(self, holder: int, *command: str) -> str:
        done = subprocess.run(entered(holder, command), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def _namespace(self) -> int:
        """The process that holds a new one."""
        holder = spawn(["unshare", "--net", "sleep", "infinity"])
        self.holders.append(holder)
        own = os.readlink("/proc/self/ns/net")
        entered_its_own = lambda: holder.poll() is not None or os.readlink(f"/proc/{holder.pid}/ns/net") != own  # noqa: E731
        until("a network namespace", entered_its_own)
        if holder.poll() is not None:
            raise Refused("no network namespace can be made here\nhint: --here for processes of this machine alone")
        return holder.pid

    def member(self, number: int) -> int:
        """The process that holds a namespace with an address."""
        holder, link = self._namespace(), f"to{number}"
        self.inside(self.switch, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(holder))
        self.inside(self.switch, "ip", "link", "set", link, "master", "switch", "up")
        self.inside(holder, "ip", "address", "add", f"{PREFIX}{number}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            self.inside(holder, "ip", "link", "set", device, "up")
        limit = ("root", "tbf", "rate", self.rate, "burst", "1mb", "latency", "50ms")
        self.inside(holder, "tc", "qdisc", "add", "dev", "eth0", *limit)
        self.inside(self.switch, "tc", "qdisc", "add", "dev", link, *limit)
        return holder

    def close(self) -> None:
        """What a command has left running in them goes with them."""
        own = {os.readlink(f"/proc/{holder.pid}/ns/net") for holder in self.holders if holder.poll() is None}
        for process in pathlib.Path("/proc").iterdir():
            try:
                if os.readlink(process / "ns/net") in own:
                    os.kill(int(process.name), signal.SIGKILL)
            except (OSError, ValueError):
                continue
        for holder in self.holders:
            ended(holder)


def entered(holder: int | None, command) -> list:
    """A command in the namespace of a process."""
    return [*command] if holder is None else ["nsenter", f"--net=/proc/{holder}/ns/net", "--", *command]


class Member:
    """A scheduler or an executor, or the place of queries: a namespace, a cgroup, a process."""

    def __init__(self, cluster: "Cluster", name: str, number: int, groups: bool):
        self.name = name
        self.holder = cluster.network.member(number) if cluster.network else None
        self.host = f"{PREFIX}{number}" if cluster.network else "127.0.0.1"
        self.group = Group(name) if groups else None
        self.work = cluster.folder / name
        self.log = cluster.folder / f"{name}.log"
        self.process = None

    def start(self, command: list) -> str:
        """Starts its process; returns what that says first."""
        groups = self.group.folders if self.group else ()
        # What it leaves when it is killed goes with the cluster's folder.
        more = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "env": {**os.environ, "TMPDIR": str(self.log.parent)}}
        self.process = spawn(entered(self.holder, command), groups, **more)
        first = self.process.stderr.readline().decode()
        # A pipe that is full would stop it.
        threading.Thread(target=self._kept, args=(self.process.stderr,), daemon=True).start()
        return first

    def _kept(self, said) -> None:
        with self.log.open("ab") as log:
            for line in said:
                log.write(line)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As by `kill -9`."""
        ended(self.process)

    def cpu_seconds(self) -> float:
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sent_bytes(self) -> int:
        """What went out over its link."""
        line = re.search(r"eth0:(.*)", pathlib.Path(f"/proc/{self.process.pid}/net/dev").read_text())
        return int(line[1].split()[8])

    def close(self) -> None:
        if self.process:
            ended(self.process)
        if self.group:
            self.group.remove()


class Keys:
    """A secret, and a certificate for all addresses of the network, which is its own authority. Nothing, without a folder."""

    def __init__(self, folder: pathlib.Path | None):
        self.files = {}
        if folder is None:
            return
        names = {"--tls-certificate": "tls.pem", "--tls-key": "tls.key", "--tls-authority": "tls.pem", "--secret-file": "secret"}
        self.files = {option: str(folder / name) for option, name in names.items()}
        pathlib.Path(self.files["--secret-file"]).write_text(secrets.token_hex(32) + "\n")
        addresses = ",".join(f"IP:{PREFIX}{number}" for number in range(1, 255))
        config = folder / "tls.conf"
        config.write_text(
            "[req]\ndistinguished_name = name\nx509_extensions = own\nprompt = no\n[name]\nCN = cluster-local\n"
            f"[own]\nbasicConstraints = critical, CA:FALSE\nsubjectAltName = {addresses}\n"
        )
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", self.files["--tls-key"]]
        made = ["openssl", "req", "-x509", "-days", "2", "-config", str(config), "-out", self.files["--tls-certificate"], *key]
        try:
            subprocess.run(made, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise Refused("openssl is needed for certificates: apt-get install openssl, or --here") from error
        except subprocess.CalledProcessError as error:
            raise Refused(f"openssl: {error.stderr}") from error

    def asked(self, *options: str) -> list:
        return [word for option in options if self.files for word in (option, self.files[option])]

    def served(self) -> list:
        return self.asked("--tls-certificate", "--tls-key", "--secret-file")


class Cluster:
    """A scheduler, executors, and a place for queries."""

    def __init__(
        self,
        program: str | os.PathLike,
        executors: int,
        *,
        here: bool = False,
        rate: str = "10gbit",
        cores: float | None = None,
        memory: str | None = None,
        timeout_s: int = 120,
    ):
        self.program, self.count = str(pathlib.Path(program).resolve()), executors
        self.here, self.rate, self.cores, self.memory = here, rate, cores, memory
        self.timeout_s = timeout_s
        self.network, self.members, self.executors = None, [], []
        self.folder = self.scheduler = self.client = self.address = self.keys = None

    def __enter__(self) -> "Cluster":
        if not self.here:
            check(self.cores, self.memory)
            remove_old_groups()
        try:
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix="headrace-cluster-local-"))
            self.network = None if self.here else Network(self.rate)
            self.keys = Keys(None if self.here else self.folder)
            self.scheduler, self.client = self._member("scheduler"), self._member("client")
            self.start_scheduler(0 if self.here else PORT)
            for _ in range(self.count):
                self.add_executor()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        # Whoever is impatient is not to keep anything from being removed.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        for member in reversed(self.members):
            member.close()
        if self.network:
            self.network.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _member(self, name: str) -> Member:
        is_executor = name.startswith("executor")
        groups = is_executor and not self.here and Group.is_there()
        self.members.append(Member(self, name, len(self.members) + 1, groups))
        return self.members[-1]

    def start_scheduler(self, port: int) -> None:
        listen = ["--listen", f"{self.scheduler.host}:{port}", "--executor-timeout", str(self.timeout_s)]
        said = self.scheduler.start([self.program, "scheduler", *listen, *self.keys.served()])
        found = re.match(r"scheduler at (\S+)", said)
        if not found:
            raise Refused(f"the scheduler said: {said}{self.scheduler.log.read_text() if self.scheduler.log.exists() else ''}")
        self.address = found[1]

    def restart_scheduler(self) -> None:
        """Where it was."""
        self.scheduler.kill()
        self.start_scheduler(int(self.address.rsplit(":", 1)[1]))

    def add_executor(self, cores: float | None = None, program: str | None = None) -> Member:
        executor = self._member(f"executor{len(self.executors) + 1}")
        if executor.group:
            executor.group.limit_cores(cores or self.cores)
            if self.memory:
                executor.group.limit_memory(self.memory)
        place = ["--scheduler", self.address, "--listen", f"{executor.host}:0", "--work-folder", str(executor.work)]
        said = executor.start([program or self.program, "executor", *place, *self.keys.served(), *self.keys.asked("--tls-authority")])
        if not said.startswith("executor at"):
            raise Refused(f"an executor said: {said}{executor.log.read_text() if executor.log.exists() else ''}")
        self.executors.append(executor)
        until("an executor's connection", lambda: self._is_connected(executor))
        return executor

    def _is_connected(self, executor: Member) -> bool:
        """Whether it has a connection to the scheduler's port, over which it comes for work."""
        if executor.process.poll() is not None:
            raise Refused(f"an executor ended: {executor.log.read_text()}")
        connections = pathlib.Path(f"/proc/{executor.process.pid}/net/tcp").read_text()
        return f":{int(self.address.rsplit(':', 1)[1]):04X} 01 " in connections

    def environment(self) -> dict:
        """What a command is told."""
        return {
            "HEADRACE_CLUSTER": self.address,
            "HEADRACE_CLUSTER_ACCESS": " ".join(self.access()),
            "HEADRACE_CLUSTER_SCHEDULER": str(self.scheduler.process.pid),
            "HEADRACE_CLUSTER_EXECUTORS": " ".join(str(executor.process.pid) for executor in self.executors),
        }

    def access(self) -> list:
        """What lets a query in."""
        return self.keys.asked("--tls-authority", "--secret-file")

    def in_place(self, command) -> list:
        """A command where queries are asked."""
        return entered(self.client.holder, command)

    def started(self, sql: str, *options: str) -> subprocess.Popen:
        """A query that has been started."""
        command = [self.program, "query", "--cluster", self.address, *self.access(), *options, sql]
        return spawn(self.in_place(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def query(self, sql: str, *options: str, patience_s: float = 300) -> tuple[int, str, str]:
        """Exit, output, errors of a query."""
        return outcome(self.started(sql, *options), patience_s)


def outcome(process: subprocess.Popen, patience_s: float = 300) -> tuple[int, str, str]:
    """Exit, output, errors of a query that has been started."""
    try:
        out, errors = process.communicate(timeout=patience_s)
    finally:
        ended(process)
    return process.returncode, out, errors
