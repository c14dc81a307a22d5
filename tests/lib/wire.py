"""A small client of the PostgreSQL protocol 3.0: simple queries over the UNIX socket, values as text.

Only what tests need: exact bytes, type OIDs and the SQLSTATE of errors, without a library.
"""

import pathlib
import socket
import struct
from dataclasses import dataclass, field

PORT = 5432
PROTOCOL = 3 << 16


class ServerError(Exception):
    """The server refused a statement; `state` is its SQLSTATE."""

    def __init__(self, fields: dict):
        super().__init__(f"{fields['C']}: {fields['M']}")
        self.state = fields["C"]


class ConnectionLost(Exception):
    """The server, or this session of it, is gone."""


class ServerStuck(Exception):
    """The server did not answer within the connection's timeout."""


@dataclass
class Result:
    """What one statement gave: names and type OIDs of its columns, rows as tuples of bytes or None."""

    names: list = field(default_factory=list)
    types: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    tag: str = ""


class Connection:
    """A session. Not for several threads at once."""

    def __init__(self, folder: pathlib.Path, database="postgres", user="postgres", timeout_s=120):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout_s)
        try:
            self.socket.connect(str(folder / f".s.PGSQL.{PORT}"))
            self.stream = self.socket.makefile("rb", buffering=1 << 16)
            words = ["user", user, "database", database, "client_encoding", "UTF8", ""]
            body = struct.pack("!i", PROTOCOL) + b"\0".join(w.encode() for w in words) + b"\0"
            self.socket.sendall(struct.pack("!i", len(body) + 4) + body)
        except OSError as error:
            self.close()
            raise ConnectionLost(f"connecting in {folder}: {error}") from error
        self._results()

    def close(self) -> None:
        self.socket.close()

    def query(self, text: str) -> list:
        """Runs statements separated by semicolons; the results of all of them, in order."""
        body = text.encode() + b"\0"
        try:
            self.socket.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        return self._results()

    def insist(self, text: str) -> None:
        """Runs statements that end a statement_timeout, which may break them off as well: they are repeated."""
        for _ in range(100):
            try:
                self.query(text)
                return
            except ServerError as error:
                if error.state != "57014":
                    raise
        raise ServerStuck(f"{text}: broken off again and again")

    def rows(self, text: str) -> list:
        """The rows of the last statement, values as str."""
        last = self.query(text)[-1]
        return [tuple(None if v is None else v.decode() for v in row) for row in last.rows]

    def value(self, text: str) -> str:
        """The first value of the last statement."""
        return self.rows(text)[0][0]

    def _message(self) -> tuple:
        try:
            head = self.stream.read(5)
            if len(head) < 5:
                raise ConnectionLost("the server closed the connection")
            (length,) = struct.unpack_from("!i", head, 1)
            body = self.stream.read(length - 4)
        except TimeoutError as error:
            raise ServerStuck(f"no answer within {self.socket.gettimeout()} s") from error
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if len(body) < length - 4:
            raise ConnectionLost("the server closed the connection within a message")
        return head[:1], body

    def _results(self) -> list:
        """Everything up to ReadyForQuery; an error is raised after it, so that the session can go on."""
        results, current, error = [], Result(), None
        while True:
            kind, body = self._message()
            if kind == b"D":
                current.rows.append(_row(body))
            elif kind == b"T":
                current.names, current.types = _columns(body)
            elif kind in b"CI":
                current.tag = body.rstrip(b"\0").decode()
                results.append(current)
                current = Result()
            elif kind == b"E":
                error = ServerError(_fields(body))
                if error.state[:3] == "57P" or error.state == "53300":
                    raise ConnectionLost(str(error))
            elif kind == b"R" and struct.unpack("!i", body[:4]) != (0,):
                raise ConnectionLost("the server wants a password")
            elif kind == b"Z":
                if error:
                    raise error
                return results


def fresh(folder: pathlib.Path, database: str) -> Connection:
    """A session of a new database of that name."""
    connection = Connection(folder)
    connection.query(f"drop database if exists {database}")
    connection.query(f"create database {database}")
    connection.close()
    return Connection(folder, database)


def _row(body: bytes) -> tuple:
    (count,) = struct.unpack_from("!h", body)
    at, values = 2, []
    for _ in range(count):
        (length,) = struct.unpack_from("!i", body, at)
        at += 4
        if length < 0:
            values.append(None)
        else:
            values.append(body[at : at + length])
            at += length
    return tuple(values)


def _columns(body: bytes) -> tuple:
    (count,) = struct.unpack_from("!h", body)
    at, names, types = 2, [], []
    for _ in range(count):
        end = body.index(b"\0", at)
        names.append(body[at:end].decode())
        types.append(struct.unpack_from("!i", body, end + 7)[0])
        at = end + 19
    return names, types


def _fields(body: bytes) -> dict:
    return {part[:1].decode(): part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
