"""The Python environment that scripts/setup has made, for programs that are started without it."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def enter() -> None:
    """Goes on in the environment if it is there."""
    python = ROOT / "target/venv/bin/python"
    if python.exists() and "HEADRACE_IN_VENV" not in os.environ:
        os.environ["HEADRACE_IN_VENV"] = "1"
        os.execv(python, [str(python), *sys.argv])
