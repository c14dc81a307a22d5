"""A query as lists, from which a smaller one is made by leaving something out."""

import time
from dataclasses import dataclass, field

from lib.queries.terms import Term


@dataclass
class Item:
    """A column of the answer; `key` if it is grouped by."""

    term: Term
    key: bool = False


@dataclass
class Derived:
    """A query within another's FROM or WITH."""

    before: str
    query: "Select"
    after: str

    def __str__(self) -> str:
        return f"{self.before}{self.query.sql()}{self.after}"


@dataclass
class Select:
    """`sources` are tables, joins and derived tables; `others` pairs of a set operation and a condition more that the same
    query has on its other side. `rows`: about how many come, groups and conditions left aside."""

    items: list = field(default_factory=list)
    sources: list = field(default_factory=list)
    where: list = field(default_factory=list)
    having: list = field(default_factory=list)
    limit: list = field(default_factory=list)
    others: list = field(default_factory=list)
    prefix: list = field(default_factory=list)
    directions: list = field(default_factory=list)
    distinct: bool = False
    grouped: bool = False
    # Rollup, cube, or "": then keys are named by their numbers where `by_number` says so.
    grouping: str = ""
    by_number: bool = True
    ordered: bool = False
    rows: float = 0

    def body(self, conditions: list) -> str:
        """The query without its ORDER BY, under some conditions."""
        items = [item.term.sql for item in self.items] or ["count(*)"]
        text = "select " + ("distinct " if self.distinct else "") + ", ".join(f"{item} as c{n}" for n, item in enumerate(items))
        text += " from " + "".join(map(str, self.sources))
        if conditions:
            text += " where " + " and ".join(conditions)
        keys = [str(n + 1) if self.by_number and not self.grouping else item.term.sql for n, item in enumerate(self.items) if item.key]
        if self.grouped and keys:
            joined = ", ".join(keys)
            text += f" group by {self.grouping}({joined})" if self.grouping else f" group by {joined}"
        if self.having:
            text += " having " + " and ".join(self.having)
        return text

    def sql(self) -> str:
        text = self.body(self.where) + "".join(f" {operation} {self.body([*self.where, more])}" for operation, more in self.others)
        if self.ordered:
            directions = [*self.directions, *[""] * (len(self.items) + 1)]
            text += " order by " + ", ".join(f"{n + 1}{directions[n]}" for n in range(max(len(self.items), 1)))
        return "".join(map(str, self.prefix)) + text + "".join(self.limit)

    def total_order(self) -> bool:
        """Whether ORDER BY leaves one sequence only: rows that tie are written alike."""
        return self.ordered and all(item.term.canonical and item.term.kind not in ("float4", "float8") for item in self.items)

    def lists(self) -> list:
        """Everything that may lose an element."""
        inner = [source.query for source in [*self.prefix, *self.sources] if isinstance(source, Derived)]
        own = [self.others, self.sources, self.where, self.having, self.limit, self.items]
        return own + [part for query in inner for part in query.lists()]


def shrink(query: Select, is_wrong, seconds: float) -> None:
    """Leaves out whatever a difference does not need; bounded, since it is a service only."""
    deadline = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for part in query.lists():
            for at in reversed(range(len(part))):
                left_out = part.pop(at)
                if time.monotonic() < deadline and is_wrong():
                    progress = True
                else:
                    part.insert(at, left_out)
