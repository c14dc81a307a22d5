"""Exceptions: the hierarchy of DB-API 2.0, with what Headrace knows of a failure.

>>> import headrace
>>> try:
...     headrace.sql("select 1 + missing").fetchall()
... except headrace.CatalogError as error:
...     print(error.kind, error.sqlstate, error.line, error.column)
unknown_column 42703 1 12
"""

from __future__ import annotations


class Warning(Exception):  # noqa: A001, the name is DB-API's
    """Is raised by nothing; DB-API 2.0 asks for it."""


class Error(Exception):
    """What all of Headrace's exceptions are.

    ``kind`` is what kind of failure it is, in one word; ``sqlstate`` its code in SQL; ``cause`` what is wrong; ``hint`` what
    helps, or None; ``line`` and ``column`` where in the statement, counted from 1, or None.
    """

    kind: str = "statement"
    sqlstate: str = "42000"
    cause: str = ""
    hint: str | None = None
    line: int | None = None
    column: int | None = None


class InterfaceError(Error):
    """The module is used in a way that it does not offer."""


class DatabaseError(Error):
    """The engine failed."""


class DataError(DatabaseError):
    """A value: it does not fit, cannot be converted, is divided by zero."""


class OperationalError(DatabaseError):
    """What a statement cannot help: files, devices, memory, time."""


class IntegrityError(DatabaseError):
    """Is raised by nothing; DB-API 2.0 asks for it."""


class InternalError(DatabaseError):
    """A fault of Headrace."""


class ProgrammingError(DatabaseError):
    """The statement is wrong."""


class NotSupportedError(DatabaseError):
    """What the statement asks for is not offered."""


class ParserError(ProgrammingError):
    """The text is no statement."""


class CatalogError(ProgrammingError):
    """The statement names a table, a column or a function that is not there, or there twice."""


class SettingError(ProgrammingError):
    """A setting or a parameter has a value that it does not take."""


class FallbackError(NotSupportedError):
    """With ``fallback="forbid"``: a part of the query would run elsewhere than it must."""


class OutOfMemoryError(OperationalError):
    """A limit of memory or of temporary files; the message names it."""


class FileError(OperationalError):
    """A file that is not there, cannot be read or has changed."""


class CorruptFileError(FileError):
    """A file whose bytes contradict their format."""


class TimeoutError(OperationalError):  # noqa: A001, as the standard library's
    """The statement took longer than ``statement_timeout``."""


class DeviceError(OperationalError):
    """The GPU failed."""


_CLASSES: dict[str, type[Error]] = {
    "syntax": ParserError,
    "unknown_table": CatalogError,
    "unknown_column": CatalogError,
    "unknown_function": CatalogError,
    "ambiguous_column": CatalogError,
    "duplicate_column": CatalogError,
    "ungrouped": ProgrammingError,
    "types": ProgrammingError,
    "statement": ProgrammingError,
    "unsupported": NotSupportedError,
    "fallback": FallbackError,
    "forbidden": ProgrammingError,
    "busy": OperationalError,
    "setting": SettingError,
    "value": DataError,
    "overflow": DataError,
    "division_by_zero": DataError,
    "out_of_memory": OutOfMemoryError,
    "missing_file": FileError,
    "io": FileError,
    "file_changed": FileError,
    "corrupt": CorruptFileError,
    "cancelled": OperationalError,
    "timed_out": TimeoutError,
    "device": DeviceError,
    "internal": InternalError,
}


def of_failure(
    *,
    kind: str,
    sqlstate: str,
    cause: str,
    hint: str | None = None,
    line: int | None = None,
    column: int | None = None,
    shown: str | None = None,
) -> Error:
    """The exception of a failure of the engine."""
    text = cause
    if line is not None:
        text += f" at line {line}, column {column}"
    if shown is not None:
        text += f"\n{shown}"
    if hint is not None:
        text += f"\n\nhint: {hint}"
    error = _CLASSES.get(kind, DatabaseError)(text)
    error.kind, error.sqlstate, error.cause, error.hint = kind, sqlstate, cause, hint
    error.line, error.column = line, column
    return error
