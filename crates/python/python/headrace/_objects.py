"""Objects of other libraries as tables. None of the libraries is imported here: an object's is there already."""

from __future__ import annotations

import importlib
import sys
from types import FrameType
from typing import Any

from headrace import _headrace
from headrace._errors import InterfaceError

Given = dict[str, tuple[Any, bool]]
"""Tables of a statement: name, object with Arrow's C interface, whether it can be read once only."""


def as_table(value: Any) -> tuple[Any, bool] | None:
    """The object with Arrow's C interface that stands for a value, and whether it can be read once only; None of a
    value that is no table."""
    module = type(value).__module__.split(".")[0]
    name = type(value).__name__
    if module == "pandas" and name == "DataFrame":
        return _of_pandas(value), False
    if module == "polars" and name == "LazyFrame":
        return value.collect(), False
    if module == "pyarrow" and hasattr(value, "scanner"):
        return value.scanner().to_reader(), True
    if module == "numpy" and name == "ndarray":
        return _of_numpy(value), False
    if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
        return _of_columns(value), False
    if isinstance(value, (_headrace.Batches, _headrace.Rows)):
        return value, isinstance(value, _headrace.Rows)
    if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__"):
        is_there = hasattr(value, "__len__") or hasattr(value, "num_rows")
        return value, not (is_there or hasattr(value, "__arrow_c_array__"))
    return None


def named(names: list[str], frame: FrameType | None) -> dict[str, Any]:
    """Values of a frame's variables with these names; a name in another case is meant if there is only one."""
    found: dict[str, Any] = {}
    if frame is None:
        return found
    for name in names:
        for variables in (frame.f_locals, frame.f_globals):
            value = variables.get(name)
            if value is None:
                others = [key for key in variables if key.lower() == name.lower()]
                value = variables[others[0]] if len(others) == 1 else None
            if value is not None:
                found[name] = value
                break
    return found


def _of_pandas(frame: Any) -> Any:
    # As a table of SQL, it has no index; names of columns are texts.
    arrow = _pyarrow("a dataframe of pandas")
    names = [str(name) for name in frame.columns]
    if names != list(frame.columns):
        frame = frame.set_axis(names, axis="columns")
    return arrow.Table.from_pandas(frame, preserve_index=False)


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
