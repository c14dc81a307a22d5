"""Objects of other libraries as tables. None of the libraries is imported here: an object's is there already."""

from __future__ import annotations

import importlib
import re
import sys
from types import FrameType
from typing import Any

from headrace import _headrace
from headrace._errors import InterfaceError

Source = Any
"""A table of a statement: a ``_headrace.Table``, or a query and its own tables."""

Given = dict[str, Source]
"""Tables of a statement, by name."""


class _Rescanned:
    """A dataset, scanned anew for each statement."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        stream: object = self.dataset.scanner().to_reader().__arrow_c_stream__(requested_schema)
        return stream


def as_table(value: Any) -> tuple[Any, str] | None:
    """The object with Arrow's C interface that stands for a value, and how often it can be read; None of a value that is
    no table."""
    module = type(value).__module__.split(".")[0]
    name = type(value).__name__
    if module == "pandas":
        return (_of_pandas(value), "held") if name == "DataFrame" else None
    if module == "polars":
        if name == "LazyFrame":
            value = value.collect()
        return (_of_polars(value), "held") if type(value).__name__ == "DataFrame" else None
    if module == "pyarrow" and hasattr(value, "scanner"):
        return _Rescanned(value), "anew"
    if module == "pyarrow" and name.endswith("Array"):
        return None
    if module == "numpy":
        return (_of_numpy(value), "held") if name == "ndarray" else None
    if isinstance(value, dict):
        return (_of_columns(value), "held") if value and all(map(_is_column, value.items())) else None
    if isinstance(value, _headrace.Batches):
        return value, "held"
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__"):
        is_there = hasattr(value, "__len__") or hasattr(value, "num_rows") or hasattr(value, "__arrow_c_array__")
        return value, "held" if is_there else "once"
    return None


def _is_column(item: tuple[Any, Any]) -> bool:
    name, values = item
    is_text = isinstance(values, (str, bytes, dict))
    return isinstance(name, str) and hasattr(values, "__len__") and not is_text


def named(names: list[str], sql: str, frame: FrameType | None) -> dict[str, Any]:
    """Values of a frame's variables with these names, which SQL may have written in another case."""
    found: dict[str, Any] = {}
    if frame is None:
        return found
    for name in names:
        for variables in (frame.f_locals, frame.f_globals):
            meant = [key for key in variables if key.lower() == name.lower()]
            written = [key for key in meant if re.search(rf"\b{re.escape(key)}\b", sql)]
            chosen = written or meant
            if len(chosen) > 1:
                raise InterfaceError(f"{name} could be {' or '.join(sorted(chosen))}: register one of them")
            if chosen:
                found[name] = variables[chosen[0]]
                break
    return found


def _of_pandas(frame: Any) -> Any:
    # As a table of SQL, it has no index; names of columns are texts.
    arrow = _pyarrow("a dataframe of pandas")
    names = [str(name) for name in frame.columns]
    if names != list(frame.columns):
        frame = frame.set_axis(names, axis="columns")
    return arrow.Table.from_pandas(frame, preserve_index=False)


def _of_polars(frame: Any) -> Any:
    objects = [name for name, kind in frame.schema.items() if str(kind) == "Object"]
    if objects:
        raise InterfaceError(f"column {objects[0]} has objects of Python, which are no values of SQL")
    return frame


def _of_numpy(array: Any) -> Any:
    if array.dtype.names:
        return _of_columns({name: array[name] for name in array.dtype.names})
    if array.ndim == 1:
        return _of_columns({"column0": array})
    if array.ndim == 2:
        return _of_columns({f"column{nth}": array[:, nth] for nth in range(array.shape[1])})
    raise InterfaceError(f"a table has rows and columns, and an array of {array.ndim} dimensions does not")


def _of_columns(columns: dict[str, Any]) -> Any:
    arrow = _pyarrow("a dictionary of columns, or an array of NumPy")
    return arrow.table({name: arrow.array(values) for name, values in columns.items()})


def _pyarrow(what: str) -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise InterfaceError(f"{what} becomes a table by pyarrow: pip install pyarrow") from None


def caller() -> FrameType | None:
    """The frame that called this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "headrace":
        frame = frame.f_back
    return frame
