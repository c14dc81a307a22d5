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
    # Kinds that are integers, the widest last, and the one that is exact with digits behind the point; names of several kinds.
    integers: tuple = ("int",)
    decimal: str = "decimal"
    groups: dict = field(default_factory=dict)
    # Of integers whose arithmetic must stay in range.
    tops: dict = field(default_factory=dict)
    # By kind, terms and conditions; those of all kinds are under "". `depth`: how deep terms of conditions are.
    forms: dict = field(default_factory=dict)
    conditions: dict = field(default_factory=dict)
    condition_kinds: tuple = ()
    depth: int = 1
    null_share: float = 0.04
    # Columns of answers, and keys of groups; rollup and cube.
    item_kinds: tuple = ()
    group_kinds: tuple = ()
    grouping: tuple = ()
    # Joins: of which kinds keys are, how often both sides' have one name, which sorts and how many there are, whether a full
    # join's condition may have several parts, and how many pairs may come: what has more takes long and shows no more.
    join_kinds: tuple = ()
    same_key: float = 0.3
    joins: dict = field(default_factory=dict)
    join_counts: tuple = (0, 0, 1, 1, 1, 2, 3)
    wide_full_joins: bool = True
    pairs_max: int = 300_000
    # How deep queries stand in others' FROM, words behind AS of a WITH, and what EXISTS selects.
    nesting: int = 2
    materialized: tuple = ("",)
    exists: tuple = ("1",)
    shapes: dict = field(default_factory=dict)
    # Aggregates: by kind, the kind of its sum, which is of a column alone in `summed_columns`.
    sums: dict = field(default_factory=dict)
    summed_columns: tuple = ()
    averages: tuple = ()
    deviations: tuple = ()
    bool_calls: tuple = ("bool_and", "bool_or")
    count_only: tuple = ()
    over_aggregates: tuple = ("coalesce({a}, 0)", "case when {a} > {b} then 1 else 0 end")
    windows: tuple = ()
