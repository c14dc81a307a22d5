"""DB-API 2.0 (PEP 249) over Headrace.

>>> from headrace import dbapi
>>> with dbapi.connect() as connection:
...     cursor = connection.cursor()
...     _ = cursor.execute("select ? + 1 as n", [41])
...     print(cursor.description[0][0], cursor.fetchone())
n (42,)

Statements take effect at once: there are no transactions.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import headrace
from headrace import _headrace
from headrace._errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

apilevel = "2.0"
threadsafety = 2
paramstyle = "qmark"

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:
    """The date of so many seconds after 1970, here."""
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:
    """The time of day of so many seconds after 1970, here."""
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    """The moment of so many seconds after 1970, here."""
    return Timestamp(*time.localtime(ticks)[:6])


class _Types:
    """A kind of types; equal to the code of each of them."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __eq__(self, code: object) -> bool:
        return isinstance(code, str) and code.split("(")[0].split(" ")[0] in self.names

    def __hash__(self) -> int:
        return hash(self.names)


STRING = _Types("VARCHAR", "TEXT", "CHAR")
BINARY = _Types("BLOB", "BYTEA", "BINARY", "VARBINARY")
NUMBER = _Types(
    "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "REAL", "FLOAT",
    "DOUBLE", "DECIMAL", "NUMERIC", "BOOLEAN",
)
DATETIME = _Types("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "INTERVAL")
ROWID = _Types()


def connect(*args: Any, **options: Any) -> Connection:
    """A connection; arguments are those of :func:`headrace.connect`."""
    return Connection(headrace.connect(*args, **options))


class Connection:
    """A connection; its cursors may be used by threads, each by one."""

    Error = Error
    DatabaseError = DatabaseError
    ProgrammingError = ProgrammingError
    OperationalError = OperationalError
    DataError = DataError
    InterfaceError = InterfaceError
    InternalError = InternalError
    IntegrityError = IntegrityError
    NotSupportedError = NotSupportedError
    Warning = Warning

    def __init__(self, connection: headrace.Connection, owns: bool = True) -> None:
        self.headrace = connection
        self._owns = owns

    def cursor(self) -> Cursor:
        """A cursor."""
        self.headrace._open()
        return Cursor(self)

    def commit(self) -> None:
        """Does nothing: statements take effect at once."""
        self.headrace._open()

    def rollback(self) -> None:
        """Is not offered: there are no transactions."""
        raise NotSupportedError("there are no transactions: statements take effect at once")

    def close(self) -> None:
        """Ends it, unless it is somebody's who goes on."""
        if self._owns:
            self.headrace.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cursor:
    """Runs statements, and holds the rows of the last."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._rows: _headrace.Rows | None = None
        self._is_closed = False

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Name and type of each column of the last statement's rows; None of a statement without rows."""
        if self._rows is None or not self._rows.names:
            return None
        columns = zip(self._rows.names, self._rows.types, strict=True)
        return [(name, code, None, None, None, None, None) for name, code in columns]

    @property
    def rowcount(self) -> int:
        """-1: how many rows there are is known when they have come."""
        return -1

    def execute(self, operation: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> Cursor:
        """Runs a statement; its parameters are ``?``, ``$1`` or ``$name``."""
        self._check()
        session = self.connection.headrace._open()
        operation = session.one_statement(operation)
        if parameters:
            operation = session.filled(operation, parameters)
        self._rows = None
        given = self.connection.headrace._named(operation)
        self._rows = session.run(operation, given, self.connection.headrace._on_progress())
        is_query, _ = session.written(operation)
        if not is_query:
            # It takes effect whether or not somebody asks for what it answers.
            self._rows.finish()
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Sequence[Any] | Mapping[str, Any]]) -> Cursor:
        """Runs a statement for each set of values; rows of all but the last are lost."""
        for parameters in seq_of_parameters:
            self.execute(operation, parameters)
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None behind the last."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows."""
        return self._answer().fetch(self.arraysize if size is None else size)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return self._answer().fetch()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while row := self.fetchone():
            yield row

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Does nothing."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Ends it, and what it runs."""
        if self._rows is not None:
            self._rows.close()
        self._rows, self._is_closed = None, True

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._is_closed:
            raise ProgrammingError("the cursor is closed")
        self.connection.headrace._open()

    def _answer(self) -> _headrace.Rows:
        self._check()
        if self._rows is None or not self._rows.names:
            raise ProgrammingError("there are no rows: no query was executed")
        return self._rows
