"""What a dialect says: how an engine spells types and constants, and which forms, tables and shapes are asked for."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Column:
    """`kind` is what expressions know of its type; `value` how one is made; `wild`: holds the extremes of its type; `top`: an
    integer's largest magnitude; `scale`: the digits behind a number's point if always the same; `share`: about which share
    of rows the most frequent value has, where the column is fit for joins; `padded`: a char(n)."""

    name: str
    kind: str
    value: object
    type: str = ""
    nulls: float | None = 0.1
    wild: bool = False
    scale: int | None = None
    top: int = 0
    share: float = 0
    padded: bool = False


@dataclass(frozen=True)
class Table:
    """`weight`: how often it is asked for; `nulls` of columns that do not say it themselves."""

    name: str
    rows: int
    columns: tuple
    weight: float = 1
    nulls: float = 0.1


@dataclass(frozen=True)
class Form:
    """A template of a term: how often it is taken, and what its terms and words let one say of it: see rules in terms.py."""

    weight: float
    text: str
    rule: Callable | None = None


def forms(*given: tuple) -> tuple:
    return tuple(Form(*each) for each in given)


@dataclass(frozen=True)
class Dialect:
    """Templates are those of terms.py; kinds that stand several times in a list are taken as much more often."""

    tables: tuple
    # By kind: its type in SQL, constants as templates, how they are written where a type must be seen.
    types: dict
    constants: dict
    spelt: dict = field(default_factory=dict)
    # Names of several kinds.
    groups: dict = field(default_factory=dict)
    # Of integers whose arithmetic must stay in range.
    tops: dict = field(default_factory=dict)
    # By kind, terms and conditions; those of all kinds are under "".
    forms: dict = field(default_factory=dict)
    conditions: dict = field(default_factory=dict)
    condition_kinds: tuple = ()
    item_kinds: tuple = ()
    group_kinds: tuple = ()
    # Of keys of joins, and how often both sides' have one name.
    join_kinds: tuple = ()
    same_key: float = 0.3
    joins: dict = field(default_factory=dict)
    join_counts: tuple = (0, 0, 1, 1, 1, 2, 3)
    # What EXISTS selects.
    exists: tuple = ("1",)
    # A full join's condition may have more than one part.
    wide_full_joins: bool = True
    # Pairs of rows that a join may look at, by what columns let expect: what has more takes long and shows no more.
    pairs_max: int = 300_000
    # How deep queries stand in others' FROM.
    nesting: int = 2
    # Words behind AS of a WITH.
    materialized: tuple = ("",)
    shapes: dict = field(default_factory=dict)
    # By kind, the kind of its sum. Only columns of `summed_columns` are summed.
    sums: dict = field(default_factory=dict)
    summed_columns: tuple = ()
    averages: tuple = ()
    deviations: tuple = ()
    bool_calls: tuple = ("bool_and", "bool_or")
    count_only: tuple = ()
    over_aggregates: tuple = ("coalesce({a}, 0)", "case when {a} > {b} then 1 else 0 end")
    windows: tuple = ()
    # Of grouping sets, rollup and cube.
    grouping: tuple = ()
    null_share: float = 0.04
    # How deep terms of conditions are.
    depth: int = 1
