"""Headrace against Headrace without pipelines: what no operator of a pipeline may answer otherwise, and none can fail."""

import datetime
import decimal
import random

from lib.queries.dialect import Column, Dialect, Table, forms
from lib.queries.terms import chosen

WORDS = ["", "a", "ab", "abc", "b", "Berlin", "zebra", "öl", "a%b", "x_y", "Ab", "null"]
# Longer than what a group's key on a GPU holds, and equal but for their ends.
TAILS = [f" with a tail of which nobody can tell the end before all of it is read: {end}" for end in ("x", "y", "yy", "é")]
DAY = datetime.date(2020, 1, 1)
MOMENT = datetime.datetime(2020, 1, 1)


def skewed(r: random.Random, rows: int) -> int:
    """Many of them are one of five, but not so many that joins of them have no end."""
    frequent = 0.5 if rows < 10_000 else 0.02
    return r.randint(0, 4) if r.random() < frequent else r.randint(0, max(rows // 3, 10))


def column(name: str, kind: str, type_: str, share: float, value, scale: int | None = None) -> Column:
    return Column(name, kind, value, type_, nulls=None, share=share, scale=scale)


# Floats are quarters: sums of them are the same in any order.
COLUMNS = (
    column("id", "int", "int32", 0.001, None),
    column("k", "int", "int64", 0.1, skewed),
    column("i", "int", "int32", 0.01, lambda r, rows: r.randint(-50, 50)),
    column("s", "int", "int16", 0.1, lambda r, rows: r.randint(-5, 5)),
    column("l", "int", "int64", 0.05, lambda r, rows: r.choice([r.randint(-(10**12), 10**12), r.randint(0, 9)])),
    column("d", "decimal", "decimal(15,2)", 0.001, lambda r, rows: decimal.Decimal(r.choice([r.randint(-999, 999), r.randint(-(10**8), 10**8)])).scaleb(-2), 2),
    column("e", "decimal", "decimal(9,4)", 0.001, lambda r, rows: decimal.Decimal(r.randint(-9999, 9999)).scaleb(-4), 4),
    column("f", "float", "float64", 0.001, lambda r, rows: r.randint(-4000, 4000) / 4),
    column("t", "text", "string", 0.05, lambda r, rows: r.choice(WORDS) + r.choice(["", "", str(r.randint(0, 30)), r.choice(TAILS)])),
    column("c", "text", "string", 0.09, lambda r, rows: r.choice(WORDS)),
    column("b", "bool", "bool", 0, lambda r, rows: r.random() < 0.3),
    column("day", "date", "date32", 0.002, lambda r, rows: DAY + datetime.timedelta(days=r.randint(-400, 400))),
    column("at", "timestamp", "timestamp[us]", 0.001, lambda r, rows: MOMENT + datetime.timedelta(seconds=r.randint(-(10**7), 10**7))),
)
KINDS = ("int", "decimal", "float", "text", "bool", "date", "timestamp")


def table(name: str, rows: int, nulls: float, weight: float, names: str = "") -> Table:
    return Table(name, rows, tuple(c for c in COLUMNS if not names or c.name in ["id", *names.split()]), weight, nulls)


TABLES = (
    table("t1", 2000, 0.1, 4),
    table("t2", 600, 0.3, 4, "k i d f t c day b"),
    table("t3", 120, 0.05, 3, "k s e c at"),
    table("t4", 0, 0.0, 1, "k i t"),
    table("big", 120_000, 0.02, 0.24, "k l d t"),
)

DIALECT = Dialect(
    tables=TABLES,
    types={"int": "int", "decimal": "decimal(15, 2)", "float": "double", "text": "varchar", "bool": "boolean", "date": "date", "timestamp": "timestamp"},
    constants={
        "int": ("{-9..60}",), "decimal": ("{-99..999}.{10..99}",), "float": ("{-10..9}.{0|25|5|75}",), "bool": ("true", "false"),
        "text": tuple(f"'{word}'" for word in WORDS), "date": ("'2020-{01..12}-{01..28}'",), "timestamp": ("'2020-{01..12}-{01..28} 12:00:00'",),
    },
    spelt={"decimal": "cast({} as decimal(9, 2))", "float": "cast({} as double)", "date": "date {}", "timestamp": "timestamp {}"},
    groups={"integer": ("int",)},
    forms={
        "": forms(
            (1, "case when {?} then {self:} else {self:} end", chosen), (1, "case when {?} then {self:} end", chosen),
            (1, "coalesce({self:}, {self:})", chosen), (1, "nullif({self:}, {self:})", chosen),
        ),
        "int": forms(
            (2, "(({int:}) % 1000 {+|-|*} ({int:}) % 100)"), (2, "-(({int:}) % 77)"), (2, "length({text:})"), (2, "abs(({int:}) % 5000)"), (1, "bit_count({int:})"),
            (2, "cast(extract({year|month|day} from {date:}) as bigint)"), (2, "cast(({bool:}) as int)"),
        ),
        "decimal": forms((2, "({decimal:} {+|-} {decimal@})"), (2, "({decimal@} * {decimal@})"), (2, "cast(({int:}) % 1000 as decimal(12, 3))")),
        "float": forms((2, "({float:} {+|-} {float!})"), (2, "cast(({int:}) % 100 as double)")),
        "text": forms(
            (2, "{upper|lower|trim|reverse}({text:})"), (2, "substr({text:}, {1..3}, {0..4})"), (2, "({text:} || {text:})"),
            (2, "replace({text:}, 'a', 'xy')"), (2, "cast({int@} as varchar)"),
        ),
        "bool": forms((2, "{?}")),
        "date": forms((2, "({date:} + interval '{1..40} days')::date"), (2, "date_trunc('month', {date:})::date")),
        "timestamp": forms((2, "date_trunc('{hour|day|year}', {timestamp:})")),
    },
    conditions={
        "": forms(
            (3, "{a} {=|<>|<|<=|>|>=} {self:}"), (1, "{a} is {|not }null"), (1, "{a} is {|not }distinct from {self:}"),
            (1, "{a} {|not }in ({self!*})"), (1, "{a} {|not }between {self:} and {self!}"),
        ),
        "text": forms((2, "{a} {like|not like|ilike} {%text 'a%'|'%b%'|'%'|'_b%'|'%1'|'ab'|''}")),
        "bool": forms((3, "{a}"), (1, "{a} is {|not }{true|false|unknown}")),
    },
    condition_kinds=KINDS,
    item_kinds=KINDS,
    group_kinds=("int", "int", "text", "text", "bool", "date"),
    join_kinds=("int", "int", "int", "text", "date", "decimal"),
    joins={"join": 3, "left join": 1, "right join": 1, "full join": 1},
    shapes={"groups": 45, "whole": 10, "rows": 28, "distinct": 6, "top": 8, "any": 3, "ranked": 9},
    sums={"int": "int", "decimal": "decimal", "float": "float"},
    summed_columns=("decimal",),
    grouping=("rollup", "cube"),
)
