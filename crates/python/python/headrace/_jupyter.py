"""Notebooks: tables, and the magics ``%headrace`` and ``%%headrace``."""

from __future__ import annotations

import importlib
from html import escape
from typing import Any

from headrace import _connection
from headrace._relation import Relation


def html(names: list[str], rows: list[tuple[Any, ...]], rows_max: int) -> str:
    """A table.

    >>> html(["a"], [(1,), (None,)], 1)
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table><p>the first 1 rows</p>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:rows_max])
    more = f"<p>the first {rows_max} rows</p>" if len(rows) > rows_max else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    return f"<td>{'<i>NULL</i>' if value is None else escape(str(value))}</td>"


def load(shell: Any) -> None:
    """Makes the magics known to an IPython shell."""
    shell.register_magic_function(_magic, "line_cell", "headrace")


def _magic(line: str, cell: str | None = None) -> Any:
    """``%headrace QUERY``; ``%%headrace [NAME]`` above a query, whose rows are then kept in the variable NAME.

    ``{name}`` is not replaced: names of dataframes and relations are tables.
    """
    shell = importlib.import_module("IPython").get_ipython()
    query, name = (cell, line.strip()) if cell is not None else (line, "")
    relation = _run(query, shell.user_ns)
    if relation is None:
        return None
    kept = relation.execute()
    _tell(kept)
    if not name:
        return kept
    shell.user_ns[name] = kept
    return None


def _run(query: str, variables: dict[str, Any]) -> Relation | None:
    # The names in the query are those of the notebook.
    scope = {"run": _connection.default_connection().sql, "query": query}
    relation: Relation | None = eval("run(query)", {**variables, **scope, "__name__": "__main__"})
    return relation


def _tell(relation: Relation) -> None:
    report = relation.report()
    rows = report["rows"]
    parts = [f"{rows} row{'' if rows == 1 else 's'}", f"{report['wall_ms'] / 1e3:.3f} s"]
    if report["bytes_read"]:
        gb = report["bytes_read"] / 1e9
        parts += [f"{gb:.3f} GB", f"{gb / (report['wall_ms'] / 1e3):.2f} GB/s"]
    parts.append(report["processor"])
    if report["bottleneck"]:
        parts.append(report["bottleneck"])
    print(", ".join(parts))
    for note in report["notes"]:
        print(note)
