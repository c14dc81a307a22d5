"""Texts made from templates by chance.

A template's holes are in braces, and none is in another:

    {a|b|c}     one of these; {|not } is one of them at times
    {3..40}     a number; {01..12} with zeros before it
    {name}      what a name stands for; one that stands for nothing yet becomes a new alias
    {rows n o}  a production of the grammar, with what n and o stand for as its parameters
    {(} {)}     braces
"""

import random
import re
from dataclasses import dataclass, field

HOLE = re.compile(r"\{([^{}]*)\}")
RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")


@dataclass
class Context:
    """What holes of a template refer to, and what was put into them: terms, and words and numbers that were chosen."""

    names: dict = field(default_factory=dict)
    kind: str = ""
    depth: int = 0
    near: object = None
    parts: list = field(default_factory=list)
    picked: list = field(default_factory=list)


class Grammar:
    """Fills templates. `productions`: parameters and templates by name."""

    def __init__(self, rng: random.Random, productions: dict | None = None):
        self.rng = rng
        self.aliases = 0
        self.productions = {}
        for head, templates in (productions or {}).items():
            name, *parameters = head.split()
            self.productions[name] = (parameters, templates)

    def alias(self) -> str:
        self.aliases += 1
        return f"r{self.aliases}"

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def fill(self, template: str, context: Context | None = None) -> str:
        context = context or Context()
        return HOLE.sub(lambda hole: self.hole(hole[1], context), template)

    def made(self, name: str, *arguments: str) -> str:
        """A text of a production."""
        parameters, templates = self.productions[name]
        return self.fill(self.rng.choice(templates), Context(dict(zip(parameters, arguments, strict=True))))

    def hole(self, text: str, context: Context) -> str:
        names = context.names
        if text in ("(", ")"):
            return "{" if text == "(" else "}"
        if text in names:
            return names[text]
        if "|" in text:
            return self.picked(self.rng.choice(text.split("|")), context)
        if ends := RANGE.fullmatch(text):
            width = len(ends[1]) if ends[1].startswith("0") else 0
            return self.picked(f"{self.rng.randint(int(ends[1]), int(ends[2])):0{width}}", context)
        name, *arguments = text.split()
        if name in self.productions:
            return self.made(name, *(self.hole(argument, context) for argument in arguments))
        names[text] = self.alias()
        return names[text]

    def picked(self, text: str, context: Context) -> str:
        context.picked.append(text)
        return text
