"""What a decorated Python function says of a function in CUDA: names and types, statements, where they are written."""

from __future__ import annotations

import __future__
import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace._errors import InterfaceError


@dataclass(frozen=True)
class Shape:
    """Its parameters and their types, the type that it returns, its statements, and where the lines of these begin."""

    parameters: list[tuple[str, str]]
    result: str
    body: str
    first_line: str

    @staticmethod
    def of(function: Callable[..., Any], source: str | None) -> Shape:
        """That of a Python function, of which nothing ever runs."""
        called = f"{getattr(function, '__name__', function)}()"
        parameters = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.default is not parameter.empty:
                raise InterfaceError(f"{called}: a function in CUDA has parameters without defaults and stars, unlike {parameter}")
            parameters.append((parameter.name, _type(function, parameter.name, f"parameter {parameter.name} of {called}")))
        result = _type(function, "return", f"what {called} returns")
        if source is not None:
            return Shape(parameters, result, source, "that in which source begins")
        body = function.__doc__
        if body is None:
            raise InterfaceError(f"{called} has no statements in CUDA: they are its docstring, which python -OO drops, or source=")
        return Shape(parameters, result, body, _first_line(function, called))


def _type(function: Callable[..., Any], name: str, what: str) -> str:
    """The type of SQL that an annotation is. It is never evaluated."""
    annotations = inspect.get_annotations(function)
    annotation = annotations.get(name)
    code = getattr(function, "__code__", None)
    if isinstance(annotation, str) and code is not None and code.co_flags & __future__.annotations.compiler_flag:
        # It is the text that was written, with its quotes.
        try:
            annotation = ast.literal_eval(annotation)
        except (ValueError, SyntaxError):
            raise InterfaceError(f"{what} is annotated {annotation}, {_WANTED}") from None
    if not isinstance(annotation, str):
        given = "not annotated" if name not in annotations else f"annotated {annotation!r}"
        raise InterfaceError(f"{what} is {given}, {_WANTED}")
    return annotation


_WANTED = 'and a type of SQL is wanted, in quotes: "bigint", "double", "fixed_binary(128)"'


def _first_line(function: Callable[..., Any], called: str) -> str:
    """Where the docstring of a function begins, as far as its source is there."""
    begins = f"that in which the docstring of {called} begins"
    try:
        lines, first = inspect.getsourcelines(function)
        (definition,) = ast.parse(textwrap.dedent("".join(lines))).body
        file = inspect.getsourcefile(function)
    except (OSError, TypeError, ValueError, SyntaxError):
        return begins
    statements = getattr(definition, "body", [])
    return f"{begins}: {file}:{first + statements[0].lineno - 1}" if statements else begins


def never_called(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """What a decorated function becomes: its name is one of SQL, and a call in Python has no answer."""

    @functools.wraps(function)
    def refuses(*_: Any, **__: Any) -> Any:
        raise InterfaceError(f"{name}() is a function of SQL, in CUDA: call it in a query")

    return refuses
