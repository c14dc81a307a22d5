"""The examples of all documentation run."""

import csv
import doctest
import importlib
import pkgutil

import pytest

import headrace

MODULES = ["headrace", *(f"headrace.{module.name}" for module in pkgutil.iter_modules(headrace.__path__))]


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("headrace._headrace", "headrace.__main__")])
def test_examples(name, tmp_path):
    with open(tmp_path / "trips.csv", "w", newline="") as file:
        csv.writer(file).writerows([("id", "km"), (1, 3.2), (2, 0.5), (3, 11.5)])
    module = importlib.import_module(name)
    done = doctest.testmod(module, extraglobs={"folder": str(tmp_path)})
    assert done.failed == 0


def test_everything_public_is_documented():
    for name in headrace.__all__:
        value = getattr(headrace, name)
        assert value.__doc__, name
        for member, method in vars(value).items() if isinstance(value, type) else ():
            if callable(method) and not member.startswith("_"):
                assert method.__doc__, f"{name}.{member}"


def test_the_pages_of_docs(tmp_path):
    from pathlib import Path

    docs = Path(__file__).parents[3] / "docs"
    for name, examples in (("python.md", 15), ("dataframes.md", 15)):
        done = doctest.testfile(str(docs / name), module_relative=False)
        assert done.failed == 0 and done.attempted >= examples, name
