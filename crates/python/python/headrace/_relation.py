"""Relations: queries that are composed as text, and run when somebody asks for their rows."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace import _headrace, _objects
from headrace._errors import InterfaceError

if TYPE_CHECKING:
    from headrace._connection import Connection

literal = _headrace.literal
"""The literal of SQL of a Python value."""

SHOWN_ROWS = 20
"""Rows that are shown of a relation."""

_numbers = itertools.count(1)


class Relation:
    """A query of a connection. Methods such as :meth:`filter` make larger queries of it; nothing runs before rows are
    asked for, and each asking runs it again, unless :meth:`execute` has kept its rows.

    >>> import headrace
    >>> numbers = headrace.sql("select value as n from range(1, 7)")
    >>> numbers.filter("n % 2 = 0").aggregate("count(*) as c, sum(n) as s").fetchall()
    [(3, 12)]
    """

    def __init__(
        self,
        connection: Connection,
        sql: str,
        given: _objects.Given,
        *,
        shown: str | None = None,
        kept: _headrace.Batches | None = None,
    ) -> None:
        self._connection = connection
        self._sql = sql
        self._given = given
        self._shown = shown
        self._kept = kept
        self._source: str | None = None
        self._columns: list[tuple[str, str]] | None = None
        self._reading: _headrace.Rows | None = None
        self._report: str | None = None

    # What it is

    @property
    def sql(self) -> str:
        """Its text."""
        return self._sql

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
        return self._of(f"SELECT * FROM {self._as_table()} WHERE {condition}")

    where = filter

    def select(self, *expressions: str) -> Relation:
        """Columns and expressions of its rows."""
        return self._of(f"SELECT {', '.join(expressions) or '*'} FROM {self._as_table()}")

    project = select

    def aggregate(self, expressions: str, by: str = "") -> Relation:
        """Aggregates of all rows, or of each group ``by`` some columns, which come first.

        >>> import headrace
        >>> t = headrace.sql("select * from (values ('a', 1), ('b', 2), ('a', 3)) as t(k, v)")
        >>> t.aggregate("sum(v) as s", by="k").order("k").fetchall()
        [('a', 4), ('b', 2)]
        """
        if not by:
            return self._of(f"SELECT {expressions} FROM {self._as_table()}")
        return self._of(f"SELECT {by}, {expressions} FROM {self._as_table()} GROUP BY {by}")

    def join(self, other: Relation, on: str, how: str = "inner") -> Relation:
        """The pairs of rows for which ``on`` holds: names of columns that both have ("k, l"), or a condition over ``l`` and
        ``r`` ("l.a = r.b"). ``how`` is inner, left, right, full, semi, anti or asof. What is made of the pairs may name ``l``
        and ``r``, too.

        >>> import headrace
        >>> a, b = (headrace.sql(f"select * from (values (1, '{x}')) as t(k, v)") for x in "ab")
        >>> a.join(b, "k").select("k", "l.v", "r.v").fetchall()
        [(1, 'a', 'b')]
        """
        words = how.upper().replace("_", " ")
        if words in ("SEMI", "ANTI"):
            words = f"LEFT {words}"
        names = [name.strip() for name in on.split(",")]
        is_names = all(name.replace("_", "a").isalnum() for name in names)
        condition = f"USING ({', '.join(names)})" if is_names else f"ON {on}"
        source = f"({self._sql}) AS l {words} JOIN ({other._sql}) AS r {condition}"
        joined = self._of(f"SELECT * FROM {source}", other)
        joined._source = source
        return joined

    def order(self, by: str) -> Relation:
        """Its rows in an order: ``"a DESC, b"``. It comes last, but for a limit: larger queries have orders of their own."""
        return self._of(f"SELECT * FROM {self._as_table()} ORDER BY {by}")

    sort = order

    def limit(self, count: int, offset: int = 0) -> Relation:
        """Some rows, after as many as ``offset`` says."""
        limit = f"LIMIT {int(count)} OFFSET {int(offset)}"
        _, is_ordered = self._connection._open().written(self._sql)
        if is_ordered:
            return self._of(f"{self._sql}\n{limit}")
        return self._of(f"SELECT * FROM {self._as_table()} {limit}")

    def distinct(self) -> Relation:
        """Its rows, each once."""
        return self._of(f"SELECT DISTINCT * FROM {self._as_table()}")

    def union(self, other: Relation) -> Relation:
        """The rows of both, those that are there twice twice."""
        return self._of(f"({self._sql}) UNION ALL ({other._sql})", other)

    def except_(self, other: Relation) -> Relation:
        """Its rows that the other does not have, each once."""
        return self._of(f"({self._sql}) EXCEPT ({other._sql})", other)

    def intersect(self, other: Relation) -> Relation:
        """The rows that both have, each once."""
        return self._of(f"({self._sql}) INTERSECT ({other._sql})", other)

    def _as_table(self) -> str:
        return self._source or f"({self._sql}) AS t"

    def _of(self, sql: str, other: Relation | None = None) -> Relation:
        from headrace._connection import _merge

        given = dict(self._given)
        if other is not None:
            if other._connection is not self._connection:
                raise InterfaceError("the two relations are of two connections")
            _merge(given, other._given)
        return Relation(self._connection, sql, given)

    # Its rows

    def execute(self) -> Relation:
        """Runs it, and keeps its rows in memory: they are a relation like any other."""
        rows = self._run()
        kept = rows.collect()
        self._report = rows.report()
        name = f"kept_{next(_numbers)}"
        relation = Relation(
            self._connection, f"SELECT * FROM {name}", {name: (kept, False)}, shown=self._sql, kept=kept
        )
        relation._columns = list(zip(rows.names, rows.types, strict=True))
        relation._report = self._report
        return relation

    def _run(self) -> _headrace.Rows:
        connection = self._connection
        return connection._open().run(self._sql, self._given, connection._on_progress())

    def _held(self) -> _headrace.Batches:
        """All rows."""
        if self._kept is None:
            rows = self._run()
            held = rows.collect()
            self._report = rows.report()
            return held
        return self._kept

    def _open_rows(self) -> _headrace.Rows:
        if self._reading is None:
            self._reading = self._run()
        return self._reading

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None behind the last."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, count: int = 1) -> list[tuple[Any, ...]]:
        """The next rows."""
        rows = self._open_rows()
        found = rows.fetch(count)
        self._report = rows.report()
        return found

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows, or those behind the ones that were fetched; the next call begins anew."""
        if self._reading is None and self._kept is not None:
            return self._kept.rows()
        rows, self._reading = self._open_rows(), None
        found = rows.fetch()
        self._report = rows.report()
        return found

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Its rows as they come."""
        rows = self._run()
        while batch := rows.next_batch(8192):
            yield from batch.rows()

    def __len__(self) -> int:
        """How many rows it has, which a query counts."""
        row = Relation(self._connection, f"SELECT count(*) FROM {self._as_table()}", self._given).fetchone()
        return row[0] if row else 0

    # Other libraries

    def __arrow_c_schema__(self) -> object:
        return self._run().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Its rows as a stream of Arrow's C interface, for any library that takes one: as they come, without copies."""
        source = self._kept if self._kept is not None else self._run()
        return source.__arrow_c_stream__(requested_schema)

    def arrow(self) -> Any:
        """All rows as a table of pyarrow."""
        arrow = _imported("pyarrow")
        return arrow.table(self._held())

    def to_arrow_reader(self, rows: int = 1_000_000) -> Any:
        """A reader of pyarrow: batches of at most so many rows, as they come."""
        arrow = _imported("pyarrow")
        running = self._run()

        def batches() -> Iterator[Any]:
            while batch := running.next_batch(rows):
                yield from arrow.table(batch).to_batches()

        return arrow.RecordBatchReader.from_batches(arrow.schema(running), batches())

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
        first, names = self._first(rows + 1)
        if not names:
            return ""
        text = first.text(width or shutil.get_terminal_size((100, 25)).columns, rows)
        return text + (f"(the first {rows} rows)\n" if len(first) > rows else "")

    def _first(self, count: int) -> tuple[_headrace.Batches, list[str]]:
        """The first rows, and the names of the columns."""
        rows = self.limit(count)._run()
        return rows.collect(), rows.names

    def __repr__(self) -> str:
        return self._text(SHOWN_ROWS)

    def _repr_html_(self) -> str:
        from headrace import _jupyter

        first, names = self._first(SHOWN_ROWS + 1)
        return _jupyter.html(names, first.rows(), SHOWN_ROWS)

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
        copy = f"COPY ({self._sql}) TO {literal(os.fspath(path))}{behind}"
        rows = self._connection._open().run(copy, self._given, self._connection._on_progress())
        answer = rows.fetch()
        return answer[0][0] if answer and answer[0] else 0

    def create(self, name: str) -> None:
        """Makes a table of its rows."""
        from headrace._connection import _quoted_name

        copy = f"CREATE TABLE {_quoted_name(name)} AS {self._sql}"
        self._connection._open().run(copy, self._given).collect()


def _option(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(str, value))})"
    return literal(value)


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InterfaceError(f"this needs {name}: pip install {name}") from None
