"""Connections, and the one that the module's own functions use."""

from __future__ import annotations

import importlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace import _cuda, _headrace, _objects, _progress
from headrace._errors import InterfaceError, ProgrammingError
from headrace._relation import Relation, literal, quoted_name

_VIEW = re.compile(r"\s*create\s+(or\s+replace\s+)?(temp\w*\s+)?view\b", re.IGNORECASE)

Parameters = Sequence[Any] | Mapping[str, Any] | None
Place = str | os.PathLike[str]


class Connection:
    """Tables, settings and functions; made by :func:`headrace.connect`.

    Threads may use one connection at the same time. It ends with its process: a child of a fork makes its own.
    """

    def __init__(self, session: _headrace.Session, progress: bool | None = None) -> None:
        self._session: _headrace.Session | None = session
        self._progress = progress

    # Statements

    def sql(self, query: str, params: Parameters = None) -> Relation | None:
        """A query as a relation, which runs when its rows are asked for.

        Another statement (CREATE, SET, COPY, ..) runs now: what it answers is a relation, or None where it answers nothing.
        ``params`` are the values of ``?`` or ``$1``, a sequence, or those of ``$name``, a dictionary. Names of tables that
        the connection does not have are variables of the caller: dataframes, Arrow tables, relations.

        >>> import headrace
        >>> con = headrace.connect()
        >>> con.sql("select $1 + $2", [1, 2]).fetchone()
        (3,)
        """
        session = self._open()
        query = session.one_statement(query)
        if params is not None:
            query = session.filled(query, params)
        given = self._named(query)
        is_query, _ = session.written(query)
        if is_query:
            return Relation(self, query, given)
        if given and _VIEW.match(query):
            raise InterfaceError("a view lasts longer than the variables that it names: register them")
        rows = session.run(query, given, self._on_progress())
        held = rows.collect()
        if not rows.names:
            return None
        return Relation.kept(self, query, held, rows)

    def execute(self, query: str, params: Parameters = None) -> Relation:
        """Runs a statement to its end; its rows, held in memory, are a relation.

        >>> import headrace
        >>> headrace.connect().execute("create table t as select 1 as a").fetchall()
        []
        """
        relation = self.sql(query, params)
        return (relation or Relation(self, "SELECT 1 AS done WHERE FALSE", {})).execute()

    def table(self, name: str) -> Relation:
        """A table as a relation."""
        relation = self.sql(f"SELECT * FROM {quoted_name(name)}")
        assert relation is not None
        return relation

    def read_parquet(self, paths: Place | Sequence[Place], **options: Any) -> Relation:
        """Parquet files as a relation; options are those of SQL's ``read_parquet``."""
        return self._read("read_parquet", paths, options)

    def read_csv(self, paths: Place | Sequence[Place], **options: Any) -> Relation:
        """Files of separated values as a relation; options are those of SQL's ``read_csv``: ``delim``, ``header``, .."""
        return self._read("read_csv", paths, options)

    def read_json(self, paths: Place | Sequence[Place], **options: Any) -> Relation:
        """JSON files as a relation; options are those of SQL's ``read_json``."""
        return self._read("read_json", paths, options)

    def read_arrow(self, paths: Place | Sequence[Place], **options: Any) -> Relation:
        """Arrow files as a relation; options are those of SQL's ``read_arrow``."""
        return self._read("read_arrow", paths, options)

    def from_arrow(self, value: Any) -> Relation:
        """A dataframe, an Arrow table, a dictionary of columns or anything with ``__arrow_c_stream__`` as a relation."""
        if isinstance(value, Relation):
            return value
        return Relation(self, 'SELECT * FROM "~given"', {"~given": self._table(value)})

    # Tables and functions

    def add(self, *places: Place) -> list[str]:
        """Makes tables of files, of the files below folders, or of addresses; returns their names."""
        names: list[str] = []
        for place in places:
            names += self._open().add(Path(place) if "://" not in str(place) else str(place))
        return names

    def register(self, name: str, value: Any) -> None:
        """Makes a dataframe, an Arrow table or anything with ``__arrow_c_stream__`` a table, in place of what has its name.

        Rows of Arrow and polars are not copied. A reader of batches can be read once.
        """
        if isinstance(value, Relation):
            value = value._held()
        self._open().register(name, self._table(value))

    def unregister(self, name: str) -> None:
        """Forgets a table; its rows and files stay."""
        if not self._open().unregister(name):
            raise ProgrammingError(f"there is no table {name}")

    def tables(self) -> list[str]:
        """The names of all tables."""
        return self._open().tables()

    def create_function(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[str],
        returns: str,
        *,
        stable: bool = True,
    ) -> None:
        """Makes a Python function one of SQL. It is given an Arrow array for each argument, and returns one of as many
        values: an array of Arrow, NumPy, pandas or polars, or a list.

        ``stable`` says that the same values always have the same answer. It runs on the cores.

        >>> import headrace
        >>> con = headrace.connect()
        >>> import pyarrow.compute as pc
        >>> con.create_function("twice", lambda x: pc.multiply(x, 2), ["BIGINT"], "BIGINT")
        >>> con.sql("select twice(21)").fetchone()
        (42,)
        """
        call = _vectorised(name, function)
        self._open().register_function(name, list(arguments), returns, stable, call)

    def create_cuda_function(
        self, name: str, source: str, arguments: Mapping[str, str], returns: str, *, twin: str | None = None
    ) -> None:
        """Makes statements in CUDA C++ a function of SQL, as ``CREATE OR REPLACE FUNCTION .. LANGUAGE cuda`` does.

        ``arguments`` are names, which are those of variables in ``source``, and types of SQL. ``twin`` is an expression over
        them that means the same: the cores answer with it. The GPU service alone runs the code.

        >>> import headrace
        >>> con = headrace.connect(processor="cpu")
        >>> con.create_cuda_function("thrice", "return 3 * n;", {"n": "BIGINT"}, "BIGINT", twin="n * 3")
        >>> con.sql("select thrice(14)").fetchone()
        (42,)
        """
        first_line = "that in which source begins"
        self._open().create_cuda_function(name, list(arguments.items()), returns, source, first_line, twin)

    def set(self, **settings: Any) -> None:
        """Changes settings of Headrace: ``processor``, ``fallback``, ``threads``, ..; ``SHOW ALL`` lists them."""
        for name, value in settings.items():
            text = ("on" if value else "off") if isinstance(value, bool) else str(value)
            self._open().run(f"SET headrace.{name} = {literal(text)}", {}).collect()

    def cursor(self) -> Any:
        """A cursor of DB-API 2.0 over this connection."""
        from headrace import dbapi

        return dbapi.Connection(self, owns=False).cursor()

    def close(self) -> None:
        """Ends it; what it runs goes on to its end."""
        self._session = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._session is None:
            return "headrace.Connection(closed)"
        tables = self.tables()
        return f"headrace.Connection({len(tables)} table{'' if len(tables) == 1 else 's'})"

    # For this package

    def _open(self) -> _headrace.Session:
        if self._session is None:
            raise ProgrammingError("the connection is closed")
        return self._session

    def _on_progress(self) -> Callable[[dict[str, Any]], object] | None:
        return _progress.of(self._progress)

    def _table(self, value: Any) -> _headrace.Table:
        table = _objects.as_table(value)
        if table is None:
            raise InterfaceError(f"a value of {type(value).__qualname__} is no table")
        return self._open().table(*table)

    def _named(self, query: str) -> _objects.Given:
        """What stands behind the names that no table has: relations and tables in the caller's variables."""
        given: _objects.Given = {}
        unknown = self._open().unknown_tables(query)
        if not unknown:
            return given
        for name, value in _objects.named(unknown, query, _objects.caller()).items():
            if isinstance(value, Relation):
                if value._connection is not self:
                    raise InterfaceError(f"{name} is a relation of another connection")
                given[name] = value._source()
            elif (table := _objects.as_table(value)) is not None:
                given[name] = self._open().table(*table)
        return given

    def _read(self, function: str, paths: Any, options: dict[str, Any]) -> Relation:
        several = not isinstance(paths, (str, os.PathLike))
        names = [os.fspath(path) for path in paths] if several else os.fspath(paths)
        words = [literal(names), *(f"{name} => {literal(value)}" for name, value in options.items())]
        relation = self.sql(f"SELECT * FROM {function}({', '.join(words)})")
        assert relation is not None
        return relation


def _vectorised(name: str, function: Callable[..., Any]) -> Callable[[int, tuple[Any, ...]], Any]:
    def call(rows: int, columns: tuple[Any, ...]) -> Any:
        pyarrow: Any = importlib.import_module("pyarrow")
        made = function(*(pyarrow.array(column) for column in columns))
        if isinstance(made, pyarrow.ChunkedArray):
            return made.combine_chunks()
        if isinstance(made, pyarrow.Scalar):
            made = made.as_py()
        if made is None or isinstance(made, (bool, int, float, str, bytes)):
            return pyarrow.array([made] * rows)
        if hasattr(made, "__arrow_c_array__"):
            return made
        return pyarrow.array(made)

    call.__name__ = name
    return call


def connect(
    data: Place | Iterable[Place] | Mapping[str, Any] | None = None,
    *,
    memory_limit: str | int | None = None,
    spill_folder: Place | None = None,
    spill_limit: str | int | None = None,
    device_memory: str | int | None = None,
    device_cache: str | int | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Connection:
    """A connection.

    ``data`` is a file, a folder or an address, or several, whose files become tables; or a dictionary of names and tables.
    ``memory_limit`` is what the connection may hold of host memory ("2GB"): larger queries go on in files of
    ``spill_folder``. ``progress`` shows how far slow statements are: by default where somebody looks. Everything else is a
    setting: ``processor`` ("auto", "cpu", "cuda", "off"), ``fallback`` ("allow", "forbid"), ``threads``, ..

    >>> import headrace
    >>> con = headrace.connect(memory_limit="1GB", processor="cpu")
    >>> con.sql("select 1").fetchone()
    (1,)
    """
    sizes = {
        "memory_limit": memory_limit,
        "spill_limit": spill_limit,
        "device_memory": device_memory,
        "device_cache": device_cache,
    }
    given = {name: None if size is None else str(size) for name, size in sizes.items()}
    connection = Connection(_headrace.Session(spill_folder=spill_folder, **given), progress)
    connection.set(**settings)
    if isinstance(data, Mapping):
        for name, value in data.items():
            connection.register(name, value)
    elif isinstance(data, (str, os.PathLike)):
        connection.add(data)
    elif data is not None:
        connection.add(*data)
    return connection


_default: Connection | None = None
_default_pid = 0
_default_lock = threading.Lock()


def default_connection() -> Connection:
    """The connection of the module's own functions, such as :func:`headrace.sql`."""
    global _default, _default_pid
    with _default_lock:
        if _default is None or _default_pid != os.getpid():
            _default, _default_pid = connect(), os.getpid()
        return _default


def sql(query: str, params: Parameters = None) -> Relation | None:
    """:meth:`Connection.sql` of the default connection.

    >>> import headrace
    >>> headrace.sql("select upper(?)", ["hello"]).fetchone()
    ('HELLO',)
    """
    return default_connection().sql(query, params)


def execute(query: str, params: Parameters = None) -> Relation:
    """:meth:`Connection.execute` of the default connection."""
    return default_connection().execute(query, params)


def table(name: str) -> Relation:
    """:meth:`Connection.table` of the default connection."""
    return default_connection().table(name)


def read_parquet(paths: Place | Sequence[Place], **options: Any) -> Relation:
    """:meth:`Connection.read_parquet` of the default connection."""
    return default_connection().read_parquet(paths, **options)


def read_csv(paths: Place | Sequence[Place], **options: Any) -> Relation:
    """:meth:`Connection.read_csv` of the default connection."""
    return default_connection().read_csv(paths, **options)


def read_json(paths: Place | Sequence[Place], **options: Any) -> Relation:
    """:meth:`Connection.read_json` of the default connection."""
    return default_connection().read_json(paths, **options)


def read_arrow(paths: Place | Sequence[Place], **options: Any) -> Relation:
    """:meth:`Connection.read_arrow` of the default connection."""
    return default_connection().read_arrow(paths, **options)


def from_arrow(value: Any) -> Relation:
    """:meth:`Connection.from_arrow` of the default connection."""
    return default_connection().from_arrow(value)


def register(name: str, value: Any) -> None:
    """:meth:`Connection.register` of the default connection."""
    default_connection().register(name, value)


def unregister(name: str) -> None:
    """:meth:`Connection.unregister` of the default connection."""
    default_connection().unregister(name)


def udf(
    arguments: Sequence[str],
    returns: str,
    *,
    name: str | None = None,
    stable: bool = True,
    connection: Connection | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes the decorated function one of SQL, as :meth:`Connection.create_function` does; of the default connection, if
    none is named.

    >>> import headrace
    >>> @headrace.udf(["DOUBLE"], "DOUBLE")
    ... def halved(x):
    ...     return x.to_numpy() / 2
    >>> headrace.sql("select halved(5.0)").fetchone()
    (2.5,)
    """

    def made(function: Callable[..., Any]) -> Callable[..., Any]:
        target = connection or default_connection()
        target.create_function(name or function.__name__, function, arguments, returns, stable=stable)
        return function

    return made


def cuda_function(
    *,
    source: str | None = None,
    twin: str | None = None,
    name: str | None = None,
    connection: Connection | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function of SQL in CUDA C++, as :meth:`Connection.create_cuda_function` does; of the default connection, if none
    is named. Its statements are ``source``, or the docstring of what is decorated; the annotations are types of SQL.

    >>> import headrace
    >>> @headrace.cuda_function(twin="a + b")
    ... def add_up(a: "BIGINT", b: "BIGINT") -> "BIGINT":
    ...     "return a + b;"
    >>> headrace.sql("select add_up(40, 2)").fetchone()
    (42,)
    """

    def made(function: Callable[..., Any]) -> Callable[..., Any]:
        shape = _cuda.Shape.of(function, source)
        session = (connection or default_connection())._open()
        called = name or function.__name__
        session.create_cuda_function(called, shape.parameters, shape.result, shape.body, shape.first_line, twin)
        return _cuda.never_called(function, called)

    return made
