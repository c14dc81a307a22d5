"""What the tests share."""

import csv
import glob
import os
import sysconfig

import pytest

import headrace

# The compiler of functions in CUDA, where it is installed as a wheel; before the first of them is made.
for _library in glob.glob(os.path.join(sysconfig.get_paths()["purelib"], "nvidia", "**", "libnvrtc.so.1*"), recursive=True):
    os.environ.setdefault("HEADRACE_NVRTC", _library)


@pytest.fixture
def con():
    """A connection without tables, on the cores."""
    with headrace.connect(processor="cpu") as connection:
        yield connection


@pytest.fixture
def folder(tmp_path):
    """A folder with a table: trips.csv."""
    with open(tmp_path / "trips.csv", "w", newline="") as file:
        csv.writer(file).writerows([("id", "km", "city"), (1, 3.2, "Rome"), (2, 0.5, "Oslo"), (3, 11.5, "Rome")])
    return tmp_path


@pytest.fixture
def nvrtc():
    """The compiler of functions in CUDA."""
    if "HEADRACE_NVRTC" not in os.environ:
        pytest.skip("no NVRTC is installed here")
