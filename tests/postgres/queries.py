"""Random queries over the tables of tables.py, made so that SQL leaves only one answer to each.

What would leave several is not made: sums of floats that depend on the order of rows, and groups, ties or
extremes among values that are equal and yet written differently (1.0 and 1.00).
"""

import random
from dataclasses import dataclass, field

import tables
from terms import INTEGERS, NUMBERS, Term, Terms

TAME_TOP = {"id": 200_000, "k": 200, "k2": 1000, "i2": 100, "i4": 10_001, "i8": 1_000_010}
DEVIATIONS = ("stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp")
TIMES = ("date", "timestamp", "timestamptz")


@dataclass
class Item:
    """A column of the answer; `key` if it is grouped by."""

    term: Term
    key: bool = False


@dataclass
class Select:
    """A query as lists, from which a smaller one can be made by leaving something out."""

    items: list = field(default_factory=list)
    sources: list = field(default_factory=list)
    where: list = field(default_factory=list)
    having: list = field(default_factory=list)
    limit: list = field(default_factory=list)
    inner: list = field(default_factory=list)
    union: list = field(default_factory=list)
    distinct: bool = False
    grouped: bool = False
    ordered: bool = False
    directions: list = field(default_factory=list)
    prefix: str = ""

    def body(self, conditions: list) -> str:
        """The query without its ORDER BY, under some conditions."""
        text = "select " + ("distinct " if self.distinct else "") + ", ".join(f"{item.term.sql} as c{i}" for i, item in enumerate(self.items))
        text += " from " + "".join(self.sources)
        if conditions:
            text += " where " + " and ".join(conditions)
        keys = [str(i + 1) for i, item in enumerate(self.items) if item.key]
        if self.grouped and keys:
            text += " group by " + ", ".join(keys)
        if self.having:
            text += " having " + " and ".join(self.having)
        return text

    def sql(self) -> str:
        """The query's text; `{0}` in sources and prefix stands for the inner query."""
        text = " union all ".join([self.body(self.where), *(self.body([*self.where, more]) for more in self.union)])
        if self.ordered:
            directions = self.directions + [""] * len(self.items)
            text += " order by " + ", ".join(f"{i + 1}{directions[i]}" for i in range(len(self.items)))
        text = self.prefix + text + "".join(self.limit)
        for number, query in enumerate(self.inner):
            text = text.replace(f"{{{number}}}", query.sql())
        return text

    def total_order(self) -> bool:
        """Whether ORDER BY leaves one sequence only: rows that tie are written alike."""
        return self.ordered and all(item.term.canonical and item.term.kind not in ("float4", "float8") for item in self.items)

    def lists(self) -> list:
        """Everything that may lose an element."""
        own = [self.sources, self.where, self.having, self.limit, self.items, self.union]
        return own + [part for query in self.inner for part in query.lists()]


class Generator(Terms):
    """Makes queries from a random.Random."""

    def __init__(self, rng: random.Random):
        super().__init__(rng)
        self.aliases = 0

    def alias(self) -> str:
        self.aliases += 1
        return f"r{self.aliases}"

    def columns(self, alias: str) -> list:
        """The scope that a table adds."""
        return [
            (Term(f"{alias}.{c.name}", c.kind, True, not c.wild, TAME_TOP.get(c.name, 0), c.scale, c.name == "c"), c.wild)
            for c in tables.COLUMNS
        ]

    def join(self, select: Select, first: str, earlier: list) -> None:
        """One more table."""
        rng, alias = self.rng, self.alias()
        key = rng.choices(["k", "k2", "kt", "id", "mixed", "two", "u", "uk"], [6, 1 if len(earlier) < 2 else 0, 4, 2, 1, 0.5, 1 if len(earlier) < 2 else 0, 2])[0]
        small = rng.choices(["empty", "one", "tiny", "small"], [1, 1, 3, 12])
        name = rng.choice(list(tables.SIZES)[2:] if key in ("id", "uk") else small if first == "big" or len(earlier) > 1 else [*small, "never", "mid", "altered", "parts"])
        other = rng.choice(earlier)
        on = {"mixed": f"{other}.id = {alias}.k", "two": f"{other}.k = {alias}.k and {other}.kt = {alias}.kt"}.get(key, f"{other}.{key} = {alias}.{key}")
        if key != "two" and rng.random() < 0.2:
            on += f" and {other}.i4 {rng.choice(['<', '>=', '<>'])} {alias}.i4"
        sort = rng.choices(["inner", "comma", "left", "exists", "anti", "in", "full"], [40, 20, 15, 8, 8, 6, 2])[0]
        source, aliases = f"{name} {alias}", [alias]
        if rng.random() < 0.1:
            # A subquery that stays one.
            source = f"(select * from {name} order by id limit {rng.choice([0, 5, 300, 100000])}) {alias}"
        if sort in ("left", "exists", "anti") and rng.random() < 0.3:
            # The inner side is a join itself.
            aliases.append(self.alias())
            kind, second, shared = rng.choice(["inner", "inner", "left"]), rng.choice(["empty", "one", "tiny"]), rng.choice(["kt", "k"])
            source = f"({source} {kind} join {second} {aliases[1]} on {alias}.{shared} = {aliases[1]}.{shared})"
            if rng.random() < 0.3:
                on += f" and {other}.i2 {rng.choice(['<', '<>'])} {aliases[1]}.i2"
        if sort in ("exists", "anti"):
            select.where.append(f"{'not ' if sort == 'anti' else ''}exists (select from {source} where {on})")
            return
        if sort == "in":
            column = key if key in ("id", "u", "uk") else "k"
            select.where.append(f"{other}.{column} {rng.choice(['', 'not '])}in (select {alias}.{column} from {name} {alias} where {alias}.i2 > {rng.randint(-100, 90)})")
            return
        if sort == "comma" and not any(" left " in s or " full " in s for s in select.sources):
            select.sources.append(f" cross join {name} {alias}")
            select.where.append(f"({on})")
        else:
            if sort == "full":
                on = on.split(" and ")[0]
            select.sources.append(f" {'inner' if sort == 'comma' else sort} join {source} on {on}")
        for own in aliases:
            self.scope += self.columns(own)
            earlier.append(own)

    def base(self, joins: int) -> Select:
        """FROM and WHERE."""
        rng, alias = self.rng, self.alias()
        first = rng.choices(list(tables.SIZES), [0.5, 0.5, 1, 4, 4, 6, 6, 6, 4, 8, 12])[0]
        select = Select(sources=[f"{first} {alias}"])
        if rng.random() < 0.08:
            columns, second = ", ".join(tables.BY_NAME), rng.choice(["small", "mid", "fresh", "altered", "parts"])
            select.sources = [f"(select {columns} from {first} union all select {columns} from {second}) {alias}"]
        self.scope = self.columns(alias)
        earlier = [alias]
        for _ in range(joins):
            self.join(select, first, earlier)
        select.where += [self.predicate() for _ in range(rng.choices([0, 1, 2, 3], [3, 5, 2, 1])[0])]
        return select

    def aggregate(self) -> Term:
        """An aggregate, with FILTER and DISTINCT at times."""
        rng = self.rng
        shape = rng.random()
        tail = f" filter (where {self.predicate(1)})" if rng.random() < 0.15 else ""
        if shape < 0.2:
            return Term(f"count(*){tail}", "int8", top=10**9)
        kind = rng.choice([*NUMBERS, "int4", "numeric"]) if shape < 0.65 else rng.choice([*NUMBERS, *TIMES, "time", "text", "bool", "uuid", "bytea", "data.label"])
        term = self.term(kind)
        if shape < 0.65 and kind.startswith("float") and rng.random() < 0.5:
            return self.float_deviation(term, tail)
        if shape < 0.65 and term.summable:
            name = rng.choices(["sum", "avg", "sum(distinct", "avg(distinct", rng.choice(DEVIATIONS)], [10, 5, 2, 1, 3])[0]
            if "(" in name and kind not in INTEGERS and (kind != "numeric" or not term.canonical):
                name = name.split("(")[0]
            text = f"{name}{' ' if '(' in name else '('}{term.sql}){tail}"
            result = {"int2": "int8", "int4": "int8", "float4": "float4", "float8": "float8"}.get(kind, "numeric")
            if not name.startswith("sum"):
                return Term(text, "float8" if kind.startswith("float") else "numeric", False)
            return Term(text, result, kind != "numeric" or term.scale is not None, False, scale=term.scale if kind == "numeric" else 0)
        if kind == "bool":
            return Term(f"{rng.choice(['bool_and', 'bool_or', 'every'])}({term.sql}){tail}", kind)
        if kind in ("uuid", "bytea") or shape > 0.9 or not term.canonical:
            known = term.canonical or not term.kind.startswith("float")
            distinct = "distinct " if known and rng.random() < 0.4 else ""
            return Term(f"count({distinct}{term.sql}){tail}", "int8", top=10**9)
        return Term(f"{rng.choice(['min', 'max'])}({term.sql}){tail}", kind, term.canonical, False, scale=term.scale)

    def float_deviation(self, term: Term, tail: str) -> Term:
        """A variance or deviation of whatever floats: of equal ones it is 0, or what their rounding leaves."""
        distinct, of = "distinct " if self.rng.random() < 0.15 else "", term.sql
        if not term.summable and term.kind == "float8":
            # Whether finite values overflow before another is NaN is a matter of their order.
            of = f"case when abs({of}) < 1e100 or abs({of}) >= 'infinity' then {of} end"
        text = f"{self.rng.choice(DEVIATIONS)}({distinct}{of}){tail}"
        if not term.summable:
            text = f"(case when {text} > 1e-9 then {text} end)"
        return Term(text, "float8", False, False)

    def over_aggregate(self) -> Term:
        """An expression over aggregates, or one alone."""
        rng, one = self.rng, self.aggregate()
        shape = rng.random()
        if one.kind in ("int8", "numeric") and shape < 0.2:
            two = self.aggregate()
            if two.kind in ("int8", "numeric"):
                text = rng.choice([
                    f"{one.sql} + {two.sql}", f"coalesce({one.sql}, 0)", f"{one.sql} / nullif({two.sql}, 0)", f"{one.sql} * 2",
                    f"case when {one.sql} > {two.sql} then 1 else 0 end", f"round({one.sql}::numeric / 7, 3)",
                ])
                return Term(f"({text})", "numeric", False, False)
        return one

    def answer(self, select: Select, shape: str) -> Select:
        """The items of a query whose FROM is made, and the order of its rows."""
        rng = self.rng
        if shape in ("rows", "distinct", "top"):
            kinds = [rng.choice(["int4", "int8", "numeric", "text", "date", "float8", "bool", "timestamp", "uuid", "bytea", "time", "float4", "data.label"]) for _ in range(rng.randint(1, 5))]
            terms = [self.term(kind) for kind in kinds]
            if shape == "top":
                terms = [t for t in terms if t.kind not in ("float4", "float8", "bytea")]
            select.items = [Item(t) for t in terms if shape == "rows" or t.canonical] or [Item(self.column("int4"))]
            select.distinct = shape == "distinct"
        else:
            select.grouped = True
            if shape == "groups":
                for _ in range(rng.choices([1, 2, 3], [5, 3, 1])[0]):
                    kind = rng.choice(["int4", "int4", "int8", "int2", "text", "text", "date", "timestamp", "bool", "numeric", "uuid", "float8", "time", "timestamptz", "data.label"])
                    term = self.column(kind) if rng.random() < 0.6 else self.term(kind, 1)
                    if term.canonical:
                        select.items.append(Item(term, True))
            select.items += [Item(self.over_aggregate()) for _ in range(rng.randint(1, 4))]
            if rng.random() < 0.2:
                having = self.aggregate()
                kind = having.kind if having.kind in NUMBERS else None
                select.having = [f"({having.sql} > {self.constant(kind).sql})" if kind else f"({having.sql} is not null)"]
        if shape == "top":
            # The first rows, and at times any: as many of them as there are.
            bound, offset = self.literal(str(rng.choice([1, 3, 20, 500, 6000])), "int8"), self.literal(str(rng.randint(0, 30)), "int8")
            select.limit = [f" limit {bound}"] + ([f" offset {offset}"] if rng.random() < 0.3 else [])
            select.ordered = True
            select.directions = [rng.choice(["", " desc", " nulls first", " desc nulls last"]) for _ in select.items]
            return select
        if rng.random() < 0.4:
            select.ordered = True
            # PostgreSQL may stop at a LIMIT before the group that fails.
            if select.total_order() and rng.random() < 0.6 and not self.fails:
                select.limit = [f" limit {rng.randint(0, 20)}"] + ([f" offset {rng.randint(0, 5)}"] if rng.random() < 0.3 else [])
        return select

    def over(self, inner: Select, source: str, prefix: str = "") -> Select:
        """A query over another's answer."""
        self.scope = [
            (Term(f"s.c{i}", item.term.kind, item.term.canonical, item.term.summable, item.term.top, item.term.scale, item.term.padded), False)
            for i, item in enumerate(inner.items)
        ]
        outer = Select(sources=[source], inner=[inner], prefix=prefix)
        if self.rng.random() < 0.5:
            outer.where = [self.predicate(1)]
        return self.answer(outer, self.rng.choice(["rows", "groups", "whole"]))

    def query(self, prepared: bool) -> Select:
        """A query; the parameters of it, as (type, value), are in `parameters` if it is to be prepared."""
        rng = self.rng
        self.prepared, self.parameters, self.aliases = prepared, [], 0
        self.may_fail, self.fails = rng.random() < 0.25, False
        select = self.base(rng.choices([0, 1, 2, 3], [40, 30, 20, 10])[0])
        shapes = ["whole", "groups", "rows", "top", "distinct", "over", "with", "union", "window", "scalar", "any"]
        shape = rng.choices(shapes, [22, 30, 8, 8, 4, 8, 6, 4, 5, 5, 2])[0]
        if shape == "any":
            # Which rows is open, how many is not.
            few = Select(items=[Item(self.scope[0][0])], sources=select.sources, where=select.where, limit=[f" limit {self.literal(str(rng.choice([1, 40, 3000])), 'int8')}"])
            return Select(items=[Item(Term("count(*)", "int8", top=10**9))], sources=["({0}) s"], inner=[few])
        if shape == "rows":
            select.where.append(f"({self.scope[0][0].sql} % {rng.randint(5, 60)} = 0)")
        if shape in ("over", "with"):
            inner = self.answer(select, rng.choice(["groups", "groups", "rows", "distinct"]))
            if shape == "over":
                return self.over(inner, "({0}) s")
            return self.over(inner, "w s", f"with w as {rng.choice(['', 'materialized ', 'not materialized '])}({{0}}) ")
        if shape == "union":
            select.where.append(self.predicate(1))
            select = self.answer(select, rng.choice(["groups", "whole", "rows"]))
            select.union = [self.predicate(1)]
            select.limit = []
            return select
        if shape == "window":
            key = self.column(rng.choice(["int4", "text", "date", "uuid"]), 0)
            number = self.column(rng.choice(["int4", "int8"]), 0)
            select.grouped = True
            select.items = [Item(key, True)] + [Item(Term(t, "numeric", False)) for t in rng.sample([
                f"sum({number.sql})", f"rank() over (order by count({number.sql}))", f"sum(sum({number.sql})) over (order by {key.sql})",
                f"sum(count(*)) over ()", f"max(sum({number.sql})) over (partition by count(*))",
                f"lag(count(*)) over (order by {key.sql})",
            ], 3)]
            return select
        if shape == "scalar":
            number = self.column(rng.choice(["int4", "int8"]), 0)
            table, alias = rng.choice(["small", "tiny", "mid", "empty"]), self.alias()
            correlated = f" where {alias}.k = {self.scope[1][0].sql}" if rng.random() < 0.3 and table in ("tiny", "empty") else ""
            select.where.append(f"({number.sql} {rng.choice(['<', '>'])} (select {rng.choice(['avg', 'min', 'max'])}({alias}.i4) from {table} {alias}{correlated}))")
            return self.answer(select, rng.choice(["whole", "groups"]))
        return self.answer(select, shape)
