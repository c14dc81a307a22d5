"""Expressions and conditions over whatever columns are in scope.

Holes of templates, beside those of grammar.py. A kind may be several, `self` (the kind that is made) or a group:

    {text:}         a term, one level deeper         {date|timestamp@}   a tame column of one of the kinds
    {self.}         a column mostly, or a constant   {?}                 a condition, one level deeper
    {self!}         a constant                       {self!*}            several, separated by commas
    {$int4 2|3}     a constant that is one of these, its type said; or a parameter of a prepared statement
    {%text 'a'|''}  the same without its type        {self}              the kind's name
"""

import random
import re
from dataclasses import dataclass

from lib.queries.dialect import Dialect, Form
from lib.queries.grammar import Context, Grammar


@dataclass(frozen=True)
class Term:
    """An expression. `canonical`: equal values are written alike; `summable`: its sum is the same in any order; the rest as
    of a column."""

    sql: str
    kind: str
    canonical: bool = True
    summable: bool = True
    top: int = 0
    scale: int | None = None
    padded: bool = False
    wild: bool = False
    share: float = 0

    @property
    def name(self) -> str:
        """A column's."""
        return self.sql.rpartition(".")[2]


class Unmakeable(Exception):
    """A form needs a column that the scope lacks, or would leave its type's range."""


# Rules: what is known of a term, from its parts and the words that were picked; no rule: what plain texts or dates have.


def fixed(**known):
    return lambda _, context: known


def like_first(tops: dict, context: Context) -> dict:
    """An operator that leaves size and order as they are. Nothing is larger than what the type holds."""
    one = context.parts[0]
    if context.kind in tops and not 0 < one.top < tops[context.kind]:
        raise Unmakeable
    return {"summable": one.summable, "top": one.top}


def shrinking(_, context: Context) -> dict:
    one = context.parts[0]
    return {"summable": one.summable, "top": one.top}


def chosen(_, context: Context) -> dict:
    """One of the parts as it is: a number's scale is no longer known."""
    parts = [part for part in context.parts if part.kind == context.kind]
    canonical = context.kind != "numeric" and all(part.canonical and not part.padded for part in parts)
    return {"canonical": canonical, "summable": all(part.summable for part in parts), "top": max(part.top for part in parts)}


def within_range(tops: dict, context: Context) -> dict:
    (one, two), operator = context.parts, context.picked[-1]
    top = one.top * two.top if operator == "*" else one.top + two.top
    if not one.top or not two.top or top > tops[context.kind]:
        raise Unmakeable
    return {"top": top}


def of_scales(_, context: Context) -> dict:
    (one, two), operator = context.parts, context.picked[-1]
    if one.scale is None or two.scale is None:
        return {"canonical": False}
    return {"scale": one.scale + two.scale if operator == "*" else max(one.scale, two.scale)}


def rescaled(_, context: Context) -> dict:
    return {"canonical": context.parts[0].scale is not None, "scale": int(context.picked[-1])}


# Operators of a query that may fail for values of wild columns: one at most.
FAILING = "({self@@} {+|-|*|/|%} {self@})"
CONNECTIVES = ("{?} and {?}", "{?} and {?}", "{?} or {?}", "{?} or {?}", "not {?}", "{?} is not true", "{?} is false")
KINDS = re.compile(r"([\w|]+?)(:|\.|@@?|!\*?)")
CONSTANT = re.compile(r"([$%])(\w+) (.*)")


class Terms(Grammar):
    """Makes expressions over `scope`. While `prepared` is on, constants become parameters at times: (type, value) in
    `parameters`. Values of constants come from a random.Random of their own, so that a query can be had again with others."""

    def __init__(self, dialect: Dialect, rng: random.Random):
        super().__init__(rng)
        self.dialect = dialect
        self.constants = rng
        self.prepared, self.parameters = False, []
        self.may_fail = self.fails = False
        self.scope: list[Term] = []

    def weighted(self, forms: tuple) -> Form:
        return self.rng.choices(forms, [form.weight for form in forms])[0]

    def hole(self, text: str, context: Context) -> str:
        if text == "?":
            return self.condition(context.depth - 1)
        if text == "self":
            return context.kind
        if found := CONSTANT.fullmatch(text):
            typed, kind, values = found.groups()
            kind = context.kind if kind == "self" else kind
            return self.literal(self.picked(self.rng.choice(values.split("|")), context), kind, typed == "$")
        if text not in context.names and (found := KINDS.fullmatch(text)):
            kinds, sort = found.groups()
            kind = self.rng.choice(self.kinds(kinds, context))
            if sort == "!*":
                return ", ".join(self.constant(kind, context.near).sql for _ in range(self.rng.randint(1, 6)))
            part = self.part(kind, sort, context)
            context.parts.append(part)
            return part.sql
        return super().hole(text, context)

    def kinds(self, text: str, context: Context) -> list:
        named = [context.kind] if text == "self" else text.split("|")
        return [kind for name in named for kind in self.dialect.groups.get(name, (name,))]

    def part(self, kind: str, sort: str, context: Context) -> Term:
        match sort:
            case ":":
                return self.term(kind, context.depth - 1)
            case ".":
                return self.leaf(kind)
            case "!":
                return self.constant(kind, context.near)
        return self.column(kind, 0.8 if sort == "@@" else 0)

    def spelt(self, value: str, kind: str) -> str:
        return self.dialect.spelt.get(kind, "{}").format(value)

    def literal(self, value: str, kind: str, typed: bool = True) -> str:
        """A constant, or a parameter of a prepared statement."""
        if self.prepared and self.chance(0.6):
            self.parameters.append((kind, value))
            return f"${len(self.parameters)}"
        if value == "null":
            return f"cast(null as {self.dialect.types[kind]})"
        return self.spelt(value, kind) if typed else value

    def constant(self, kind: str, near: Term | None = None) -> Term:
        """A constant within what tame columns hold, or what it is compared with; seldom NULL."""
        top = self.dialect.tops.get(kind, 0)
        if kind not in self.dialect.constants and not top:
            raise Unmakeable
        if self.chance(self.dialect.null_share):
            return Term(self.literal("null", kind), kind, scale=0)
        if top:
            near_top = near.top if near and near.kind == kind and self.chance(0.7) else 0
            top = min(near_top or self.rng.choice([1, 10, 100, 5000]), top // 4)
            return Term(self.literal(f"({self.constants.randint(-top // 4, top)})", kind), kind, top=top)
        rng, self.rng = self.rng, self.constants
        value = self.fill(self.rng.choice(self.dialect.constants[kind]))
        self.rng = rng
        return Term(self.literal(value, kind), kind, scale=len(value.strip("()").partition(".")[2]))

    def column(self, kind: str, wild: float = 0.1) -> Term:
        """A column of the scope, or a constant where it has none of the kind."""
        want_wild = self.chance(wild)
        found = [term for term in self.scope if term.kind == kind and (want_wild or not term.wild)]
        return self.rng.choice(found) if found else self.constant(kind)

    def leaf(self, kind: str) -> Term:
        return self.column(kind) if self.chance(0.9) else self.constant(kind)

    def term(self, kind: str, depth: int = 2) -> Term:
        """An expression of a kind that fails for no row, but for one in a query that may."""
        if depth <= 0 or self.chance(0.38):
            return self.leaf(kind)
        own = self.dialect.forms.get(kind, ())
        form = self.weighted(self.dialect.forms.get("", ()) + own)
        if self.may_fail and kind in self.dialect.tops and self.chance(0.6):
            self.may_fail, self.fails = False, True
            form = Form(1, FAILING, fixed(summable=self.dialect.sums[kind] != "numeric", top=self.dialect.tops[kind]))
        try:
            return self.formed(form, Context(kind=kind, depth=depth))
        except Unmakeable:
            return self.leaf(kind)

    def formed(self, form: Form, context: Context) -> Term:
        sql = self.fill(form.text, context)
        known = form.rule(self.dialect.tops, context) if form.rule else {"canonical": context.kind != "numeric"}
        return Term(sql, context.kind, **known)

    def condition(self, depth: int = 2) -> str:
        """A condition, in parentheses."""
        if depth > 0 and self.chance(0.38):
            return f"({self.fill(self.rng.choice(CONNECTIVES), Context(depth=depth))})"
        kind = self.rng.choice(self.dialect.condition_kinds)
        depth = min(depth, self.dialect.depth)
        near = self.term(kind, depth)
        own = self.dialect.conditions.get(kind, ())
        form = self.weighted(own if kind == "bool" else self.dialect.conditions[""] + own)
        # What it is compared with is as deep.
        context = Context({"a": near.sql}, kind, depth + 1, near)
        try:
            return f"({self.fill(form.text, context)})"
        except Unmakeable:
            return f"({near.sql} is not null)"
