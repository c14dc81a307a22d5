"""How far a slow statement is: a line in a terminal or a notebook, where somebody looks."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

FIRST_S = 0.5
"""Faster statements show nothing."""


def of(wanted: bool | None) -> Callable[[dict[str, Any]], object] | None:
    """What shows progress, if it is wanted; where nobody said so, if somebody types."""
    shell = _shell()
    if wanted is None:
        wanted = hasattr(sys, "ps1") or shell is not None
    if not wanted:
        return None
    if shell is not None and type(shell).__name__ == "ZMQInteractiveShell":
        return _Notebook()
    return _Terminal() if sys.stderr.isatty() else None


def text(progress: dict[str, Any]) -> str:
    """Seconds, bytes, speed and share.

    >>> text({"seconds": 2.0, "bytes": 3_000_000_000, "rows": 50, "rows_total": 200})
    '2.0 s, 3.00 GB, 1.50 GB/s, 25% of 200 rows'
    """
    seconds = progress["seconds"]
    parts = [f"{seconds:.1f} s"]
    if gb := progress["bytes"] / 1e9:
        parts += [f"{gb:.2f} GB", f"{gb / seconds:.2f} GB/s"]
    if progress["rows"] and progress["rows_total"]:
        parts.append(f"{share(progress):.0%} of {progress['rows_total']} rows")
    return ", ".join(parts)


def share(progress: dict[str, Any]) -> float:
    """Between 0 and 1."""
    total = progress["rows_total"]
    return min(progress["rows"] / total, 1.0) if total else 0.0


class _Terminal:
    """A line that is rewritten, and removed at the end."""

    is_shown = False

    def __call__(self, progress: dict[str, Any]) -> None:
        if progress["seconds"] >= FIRST_S:
            self.is_shown = True
            print(f"\r{text(progress)}\x1b[K", end="", file=sys.stderr, flush=True)

    def __del__(self) -> None:
        if self.is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class _Notebook:
    """A bar, with the same text."""

    handle: Any = None

    def __call__(self, progress: dict[str, Any]) -> None:
        if progress["seconds"] < FIRST_S:
            return
        display: Any = importlib.import_module("IPython.display")
        bar = f'<progress value="{share(progress):.3f}" max="1"></progress> ' if progress["rows"] else ""
        shown = display.HTML(bar + text(progress))
        if self.handle is None:
            self.handle = display.display(shown, display_id=True)
        else:
            self.handle.update(shown)


def _shell() -> Any:
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None
