"""Relations: queries that are composed as text, and run when somebody asks for their rows."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace import _headrace, _objects
from headrace._errors import InterfaceError

if TYPE_CHECKING:
    from headrace._connection import Connection

literal = _headrace.literal
"""The literal of SQL of a Python value."""

SHOWN_ROWS = 20
"""Rows that are shown of a relation."""

_OF_ONE = '"~r" AS t'
"""What a relation is called in queries over it: no table of a user has such a name."""

_NAME = re.compile(r"\s*\w+\s*")


def quoted_name(name: str) -> str:
    """A name of SQL, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


class Relation:
    """A query of a connection. Methods such as :meth:`filter` make larger queries of it; nothing runs before rows are
    asked for, and each asking runs it again, unless :meth:`execute` has kept its rows.

    >>> import headrace
    >>> numbers = headrace.sql("select value as n from range(1, 7)")
    >>> numbers.filter("n % 2 = 0").aggregate("count(*) as c, sum(n) as s").fetchall()
    [(3, 12)]
    """

    def __init__(self, connection: Connection, sql: str, given: _objects.Given, shown: str | None = None) -> None:
        self._connection = connection
        self._sql = sql
        self._given = given
        self._shown = shown or sql
        self._from = _OF_ONE
        self._from_given: _objects.Given | None = None
        self._kept: _headrace.Batches | None = None
        self._columns: list[tuple[str, str]] | None = None
        self._reading: _headrace.Rows | _Held | None = None
        self._report: str | None = None

    @classmethod
    def kept(cls, connection: Connection, sql: str, batches: _headrace.Batches, rows: _headrace.Rows) -> Relation:
        """Rows that are there."""
        table = connection._open().table(batches, "held")
        relation = cls(connection, 'SELECT * FROM "~kept"', {"~kept": table}, sql)
        relation._kept = batches
        relation._columns = list(zip(rows.names, rows.types, strict=True))
        relation._report = rows.report()
        return relation

    # What it is

    @property
    def sql(self) -> str:
        """Its text; what it is made of stands in it as subqueries."""
        return self._shown

    @property
    def columns(self) -> list[str]:
        """The names of its columns; two may have one."""
        return [name for name, _ in self._described()]

    @property
    def types(self) -> list[str]:
        """The SQL types of its columns."""
        return [name for _, name in self._described()]

    def _described(self) -> list[tuple[str, str]]:
        if self._columns is None:
            self._columns = self._connection._open().columns(self._sql, self._given)
        return self._columns

    # Larger queries

    def filter(self, condition: str) -> Relation:
        """The rows for which a condition holds.

        >>> import headrace
        >>> headrace.sql("select 1 as a union all select 2").filter("a > 1").fetchall()
        [(2,)]
        """
        return self._over("SELECT * FROM {} WHERE ", condition)

    where = filter

    def select(self, *expressions: str) -> Relation:
        """Columns and expressions of its rows."""
        return self._over("SELECT ", "\n, ".join(expressions) or "*", "\nFROM {}")

    project = select

    def aggregate(self, expressions: str, by: str = "") -> Relation:
        """Aggregates of all rows, or of each group ``by`` some columns, which come first.

        >>> import headrace
        >>> t = headrace.sql("select * from (values ('a', 1), ('b', 2), ('a', 3)) as t(k, v)")
        >>> t.aggregate("sum(v) as s", by="k").order("k").fetchall()
        [('a', 4), ('b', 2)]
        """
        if not by:
            return self._over("SELECT ", expressions, "\nFROM {}")
        return self._over("SELECT ", f"{by}\n, {expressions}", "\nFROM {} GROUP BY ", by)

    def join(self, other: Relation, on: str | Sequence[str], how: str = "inner") -> Relation:
        """The pairs of rows for which ``on`` holds: names of columns that both have ("k, l", or a list of names), or a condition
        over ``l`` and ``r`` ("l.a = r.b"). ``how`` is inner, left, right, full, semi, anti or asof. What is made of the pairs
        may name ``l`` and ``r``, too.

        >>> import headrace
        >>> a, b = (headrace.sql(f"select * from (values (1, '{x}')) as t(k, v)") for x in "ab")
        >>> a.join(b, "k").select("k", "l.v", "r.v").fetchall()
        [(1, 'a', 'b')]
        """
        words = how.upper().replace("_", " ")
        if words in ("SEMI", "ANTI"):
            words = f"LEFT {words}"
        names = on.split(",") if isinstance(on, str) else [quoted_name(name) for name in on]
        is_names = not isinstance(on, str) or all(map(_NAME.fullmatch, names))
        condition = f"USING ({', '.join(names)})" if is_names else f"ON {on}"
        if other._connection is not self._connection:
            raise InterfaceError("the two relations are of two connections")
        source = f'"~l" AS l {words} JOIN "~r" AS r {condition}\n'
        given = self._connection._named(f"SELECT * FROM {source}")
        given |= {"~l": self._source(), "~r": other._source()}
        shown = f"({self.sql}\n) AS l {words} JOIN ({other.sql}\n) AS r {condition}"
        joined = Relation(self._connection, f"SELECT * FROM {source}", given, f"SELECT * FROM {shown}")
        joined._from, joined._from_given = source, given
        return joined

    def order(self, by: str) -> Relation:
        """Its rows in an order: ``"a DESC, b"``. It comes last, but for a limit: larger queries have orders of their own."""
        return self._over("SELECT * FROM {} ORDER BY ", by)

    sort = order

    def limit(self, count: int, offset: int = 0) -> Relation:
        """Some rows, after as many as ``offset`` says."""
        limit = f"\nLIMIT {int(count)} OFFSET {int(offset)}"
        _, is_open = self._connection._open().written(self._sql)
        if is_open and self._kept is None:
            return Relation(self._connection, self._sql + limit, self._given, self._shown + limit)
        return self._over("SELECT * FROM {}" + limit)

    def distinct(self) -> Relation:
        """Its rows, each once."""
        return self._over("SELECT DISTINCT * FROM {}")

    def union(self, other: Relation) -> Relation:
        """The rows of both, those that are there twice twice."""
        return self._with(other, "UNION ALL")

    def except_(self, other: Relation) -> Relation:
        """Its rows that the other does not have, each once."""
        return self._with(other, "EXCEPT")

    def intersect(self, other: Relation) -> Relation:
        """The rows that both have, each once."""
        return self._with(other, "INTERSECT")

    def _source(self) -> _objects.Source:
        """What it is to a query over it."""
        return self._given["~kept"] if self._kept is not None else (self._sql, self._given)

    def _over(self, *parts: str) -> Relation:
        """A query over it, which is {} in the first part that has it; every other part is its user's."""
        own = {"~r": self._source()} if self._from_given is None else self._from_given
        text = "".join(part.replace("{}", self._from) if "{}" in part else part for part in parts)
        inner = f"({self.sql}\n) AS t" if self._from_given is None else self.sql.removeprefix("SELECT * FROM ")
        shown = "".join(part.replace("{}", inner) if "{}" in part else part for part in parts)
        return Relation(self._connection, text, self._connection._named(text) | own, shown)

    def _with(self, other: Relation, operator: str) -> Relation:
        if other._connection is not self._connection:
            raise InterfaceError("the two relations are of two connections")
        text = f'SELECT * FROM "~l" {operator} SELECT * FROM "~r"'
        shown = f"({self.sql}\n) {operator} ({other.sql}\n)"
        return Relation(self._connection, text, {"~l": self._source(), "~r": other._source()}, shown)

    # Its rows

    def execute(self) -> Relation:
        """Runs it, and keeps its rows in memory: they are a relation like any other."""
        if self._kept is not None:
            return self
        rows = self._started()
        return Relation.kept(self._connection, self._shown, rows.collect(), rows)

    def count(self) -> int:
        """How many rows it has, which a query counts."""
        if self._kept is not None:
            return len(self._kept)
        row = self._over("SELECT count(*) FROM {}").fetchone()
        return row[0] if row else 0

    def _started(self) -> _headrace.Rows:
        connection = self._connection
        return connection._open().run(self._sql, self._given, connection._on_progress())

    def _run(self) -> _headrace.Rows | _Held:
        if self._kept is not None:
            return _Held(self._kept, self.columns, self._report or "{}")
        return self._started()

    def _held(self) -> _headrace.Batches:
        """All rows."""
        rows = self._run()
        held = rows.collect()
        self._report = rows.report()
        return held

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None behind the last."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, count: int = 1) -> list[tuple[Any, ...]]:
        """The next rows."""
        return self._fetch(count)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows, or those behind the ones that were fetched; the next call begins anew."""
        found = self._fetch(None)
        self._reading = None
        return found

    def _fetch(self, count: int | None) -> list[tuple[Any, ...]]:
        if self._reading is None:
            self._reading = self._run()
        try:
            found = self._reading.fetch(count)
        except BaseException:
            # Whoever asks again asks for all of it.
            self._reading = None
            raise
        self._report = self._reading.report()
        return found

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Its rows as they come."""
        rows = self._run()
        while batch := rows.next_batch(8192):
            yield from batch.rows()

    # Other libraries

    def __arrow_c_schema__(self) -> object:
        source = self._kept if self._kept is not None else self._started()
        return source.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Its rows as a stream of Arrow's C interface, for any library that takes one: as they come, without copies."""
        source = self._kept if self._kept is not None else self._started()
        return source.__arrow_c_stream__(requested_schema)

    def arrow(self) -> Any:
        """All rows as a table of pyarrow."""
        arrow = _imported("pyarrow")
        return arrow.table(self._held())

    def to_arrow_reader(self, rows: int = 1_000_000) -> Any:
        """A reader of pyarrow: batches of at most so many rows, as they come."""
        arrow = _imported("pyarrow")
        running = self._run()
        schema = arrow.schema(self if self._kept is not None else running)

        def batches() -> Iterator[Any]:
            while batch := running.next_batch(rows):
                yield from arrow.table(batch).to_batches()

        return arrow.RecordBatchReader.from_batches(schema, batches())

    def df(self) -> Any:
        """All rows as a dataframe of pandas."""
        _imported("pandas")
        return _imported("pyarrow").table(self._held().decoded()).to_pandas()

    def df_chunks(self, rows: int = 1_000_000) -> Iterator[Any]:
        """Dataframes of pandas of at most so many rows, as they come: for answers that are larger than memory."""
        _imported("pandas")
        arrow = _imported("pyarrow")
        running = self._run()
        while batch := running.next_batch(rows):
            yield arrow.table(batch.decoded()).to_pandas()

    def pl(self) -> Any:
        """All rows as a dataframe of polars."""
        return _imported("polars").DataFrame(self._held().decoded())

    def numpy(self) -> dict[str, Any]:
        """All rows as arrays of NumPy, by column; a column with NULLs is a masked array."""
        numpy = _imported("numpy")
        frame = _imported("pyarrow").table(self._held().decoded())
        if len(set(frame.column_names)) < len(frame.column_names):
            raise InterfaceError("two columns have one name: call one of them otherwise (.. AS name)")
        arrays = {}
        for name, column in zip(frame.column_names, frame.columns, strict=True):
            values = column.combine_chunks()
            if values.null_count == 0:
                arrays[name] = values.to_numpy(zero_copy_only=False)
            else:
                mask = values.is_null().to_numpy(zero_copy_only=False)
                filled = numpy.asarray(values.drop_null().to_numpy(zero_copy_only=False))
                whole = numpy.zeros(len(values), filled.dtype)
                whole[~mask] = filled
                arrays[name] = numpy.ma.masked_array(whole, mask)
        return arrays

    def torch(self) -> dict[str, Any]:
        """All rows as tensors of PyTorch, by column: numbers without NULLs."""
        torch = _imported("torch")
        tensors = {}
        for name, values in self.numpy().items():
            if getattr(values, "mask", None) is not None:
                raise InterfaceError(f"column {name} has NULLs, which a tensor has not: coalesce({name}, 0)")
            # A tensor may be written to, and rows of a query are nobody's to change.
            tensors[name] = torch.from_numpy(values if values.flags.writeable else values.copy())
        return tensors

    # For people

    def show(self, rows: int = SHOWN_ROWS, width: int | None = None) -> None:
        """Prints its first rows."""
        print(self._text(rows, width), end="")

    def _text(self, rows: int, width: int | None = None) -> str:
        first = self._first(rows + 1)
        text = first.text(width or shutil.get_terminal_size((100, 25)).columns, rows)
        return text + (f"(the first {rows} rows)\n" if len(first) > rows else "")

    def _first(self, count: int) -> _headrace.Batches:
        """The first rows."""
        rows = self._run()
        first = rows.take(count)
        rows.close()
        return first

    def __repr__(self) -> str:
        if _reads_once(self._given):
            return f"headrace.Relation({self.sql!r}, of a stream that is read once)"
        return self._text(SHOWN_ROWS)

    def _repr_html_(self) -> str | None:
        from headrace import _jupyter

        if _reads_once(self._given):
            return None
        return _jupyter.html(self.columns, self._first(SHOWN_ROWS + 1).rows(), SHOWN_ROWS)

    def explain(self, analyze: bool = False) -> str:
        """The plan as text: what runs where, and why not elsewhere; with ``analyze``, what it did when it ran."""
        words = "EXPLAIN ANALYZE" if analyze else "EXPLAIN"
        rows = self._connection._open().run(f"{words} {self._sql}", self._given).fetch()
        return "\n".join(str(row[-1]) for row in rows)

    def report(self) -> dict[str, Any]:
        """What EXPLAIN ANALYZE tells of its last run, as a dictionary; runs it, if it has not run yet."""
        if self._report is None:
            self._held()
        report: dict[str, Any] = json.loads(self._report or "{}")
        return report

    def write(self, path: str | os.PathLike[str], **options: Any) -> int:
        """Writes its rows to a file or a folder: .parquet, .arrow, .csv, .json; returns how many. Options are those of SQL's
        COPY, such as ``compression`` or ``partition_by``. The file is there as a whole or not at all."""
        words = "".join(f"{name.upper()} {_option(value)}, " for name, value in options.items())
        behind = f" ({words.removesuffix(', ')})" if options else ""
        copy = f"COPY ({self._sql}\n) TO {literal(os.fspath(path))}{behind}"
        rows = self._connection._open().run(copy, self._given, self._connection._on_progress())
        answer = rows.fetch()
        return answer[0][0] if answer and answer[0] else 0

    def create(self, name: str) -> None:
        """Makes a table of its rows."""
        copy = f"CREATE TABLE {quoted_name(name)} AS {self._sql}"
        self._connection._open().run(copy, self._given).collect()


class _Held:
    """Rows that are there, read as those of a running statement are."""

    def __init__(self, batches: _headrace.Batches, names: list[str], report: str) -> None:
        self.names, self._batches, self._report, self._at = names, batches, report, 0

    def take(self, count: int) -> _headrace.Batches:
        """The next rows."""
        taken = self._batches.slice(self._at, count)
        self._at += len(taken)
        return taken

    def next_batch(self, rows_max: int) -> _headrace.Batches | None:
        """The next rows; None at the end."""
        return self.take(rows_max) if self._at < len(self._batches) else None

    def fetch(self, count: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows as tuples, or all that are left."""
        return self.take(len(self._batches) if count is None else count).rows()

    def collect(self) -> _headrace.Batches:
        """All rows that are left."""
        return self.take(len(self._batches))

    def report(self) -> str:
        """That of the run that they come of."""
        return self._report

    def close(self) -> None:
        """Nothing runs."""


def _reads_once(given: _objects.Given) -> bool:
    """Whether a look at the rows would leave fewer."""
    sources = given.values()
    return any(source.once if isinstance(source, _headrace.Table) else _reads_once(source[1]) for source in sources)


def _option(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(quoted_name, value))})"
    return literal(value)


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InterfaceError(f"this needs {name}: pip install {name}") from None
