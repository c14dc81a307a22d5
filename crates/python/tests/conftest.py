"""What the tests share."""

import csv

import pytest

import headrace


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
