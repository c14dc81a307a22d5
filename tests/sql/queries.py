"""Random queries over the tables of tables.py, made so that SQL leaves only one answer to each and none can fail."""

import random
from dataclasses import dataclass, field

import tables

KINDS = ["int", "decimal", "float", "text", "bool", "date", "timestamp"]

# Pairs of rows that a join may look at, by what columns let expect: what has more takes long and shows no more.
PAIRS_MAX = 300_000
# How many rows of derived tables' columns have one value.
DERIVED_SHARE = 0.1


@dataclass
class Select:
    """A query as lists, from which a smaller one is made by leaving something out."""

    items: list = field(default_factory=list)
    keys: list = field(default_factory=list)
    joins: list = field(default_factory=list)
    where: list = field(default_factory=list)
    having: list = field(default_factory=list)
    grouping: str = ""
    distinct: bool = False
    limit: str = ""
    first: str = ""
    more: list = field(default_factory=list)
    # About how many rows it has, groups and conditions left aside.
    rows: float = 0

    def parts(self) -> list:
        """Everything that may lose an element."""
        return [self.more, self.joins, self.where, self.having, self.keys, self.items]

    def body(self) -> str:
        outputs = [*self.keys, *self.items] or ["count(*)"]
        text = "select " + ("distinct " if self.distinct else "") + ", ".join(f"{item} as c{n}" for n, item in enumerate(outputs))
        text += f" from {self.first}" + "".join(self.joins)
        if self.where:
            text += " where " + " and ".join(f"({condition})" for condition in self.where)
        if self.keys and self.grouping is not None:
            keys = ", ".join(self.keys)
            text += f" group by {self.grouping}({keys})" if self.grouping else f" group by {keys}"
        if self.having:
            text += " having " + " and ".join(self.having)
        return text

    def sql(self) -> str:
        text = self.body()
        for connective, other in self.more:
            text += f" {connective} {other}"
        if self.limit:
            count = len(self.keys) + len(self.items) or 1
            text += " order by " + ", ".join(f"{n + 1}" for n in range(count)) + self.limit
        return text


class Generator:
    """Makes queries from a random.Random; the values of their constants from another, so that a query can be had again with others."""

    def __init__(self, r: random.Random, big_share: float, constants: random.Random | None = None):
        self.r = r
        self.constants = constants or r
        self.big_share = big_share
        self.aliases = 0
        self.has_big = False

    def choice(self, *ways):
        return self.r.choice(ways)

    # Terms. A scope is a list of (text, kind).

    def column(self, scope: list, kind: str) -> str | None:
        found = [text for text, own in scope if own == kind]
        return self.r.choice(found) if found else None

    def term(self, scope: list, kind: str, depth: int = 2) -> str:
        """A term of a kind that fails for no row."""
        r = self.r
        if depth == 0 or r.random() < 0.35:
            column = self.column(scope, kind) if r.random() < 0.85 else None
            return column or self.constant(kind)
        t = lambda wanted: self.term(scope, wanted, depth - 1)  # noqa: E731
        condition = lambda: self.condition(scope, depth - 1)  # noqa: E731
        common = [
            lambda: f"case when {condition()} then {t(kind)} else {t(kind)} end",
            lambda: f"case when {condition()} then {t(kind)} end",
            lambda: f"coalesce({t(kind)}, {t(kind)})",
            lambda: f"nullif({t(kind)}, {t(kind)})",
        ]
        own = {
            "int": [
                lambda: f"(({t('int')}) % 1000 {self.choice('+', '-', '*')} ({t('int')}) % 100)",
                lambda: f"-(({t('int')}) % 77)",
                lambda: f"length({t('text')})",
                lambda: f"cast(extract({self.choice('year', 'month', 'day')} from {t('date')}) as bigint)",
                lambda: f"abs(({t('int')}) % 5000)",
                lambda: f"cast(({t('bool')}) as int)",
            ],
            "decimal": [
                lambda: f"({t('decimal')} {self.choice('+', '-')} {self.column(scope, 'decimal') or 'cast(1.25 as decimal(9, 2))'})",
                lambda: f"({self.column(scope, 'decimal') or 'cast(0.5 as decimal(9, 2))'} * {self.column(scope, 'decimal') or 'cast(1.5 as decimal(9, 2))'})",
                lambda: f"cast(({t('int')}) % 1000 as decimal(12, 3))",
            ],
            "float": [lambda: f"({t('float')} {self.choice('+', '-')} {self.constant('float')})", lambda: f"cast(({t('int')}) % 100 as double)"],
            "text": [
                lambda: f"{self.choice('upper', 'lower', 'trim', 'reverse')}({t('text')})",
                lambda: f"substr({t('text')}, {r.randint(1, 3)}, {r.randint(0, 4)})",
                lambda: f"({t('text')} || {t('text')})",
                lambda: f"replace({t('text')}, 'a', 'xy')",
                lambda: f"cast({self.column(scope, 'int') or '7'} as varchar)",
            ],
            "bool": [condition],
            "date": [lambda: f"({t('date')} + interval '{r.randint(1, 40)} days')::date", lambda: f"date_trunc('month', {t('date')})::date"],
            "timestamp": [lambda: f"date_trunc('{self.choice('hour', 'day', 'year')}', {t('timestamp')})"],
        }
        return r.choice(common + own[kind] * 2)()

    def constant(self, kind: str) -> str:
        r = self.r
        if r.random() < 0.04:
            types = {"int": "int", "decimal": "decimal(15, 2)", "float": "double", "text": "varchar", "bool": "boolean", "date": "date", "timestamp": "timestamp"}
            return f"cast(null as {types[kind]})"
        r = self.constants
        word = r.choice(tables.WORDS)
        return {
            "int": str(r.randint(-9, 60)),
            "decimal": f"cast({r.randint(-99, 999)}.{r.randint(10, 99)} as decimal(9, 2))",
            "float": f"cast({r.randint(-40, 40) / 4} as double)",
            "text": f"'{word}'",
            "bool": r.choice(["true", "false"]),
            "date": f"date '2020-{r.randint(1, 12):02}-{r.randint(1, 28):02}'",
            "timestamp": f"timestamp '2020-{r.randint(1, 12):02}-{r.randint(1, 28):02} 12:00:00'",
        }[kind]

    def condition(self, scope: list, depth: int = 2) -> str:
        r = self.r
        if depth > 0 and r.random() < 0.4:
            a, b = self.condition(scope, depth - 1), self.condition(scope, depth - 1)
            return self.choice(f"({a} and {b})", f"({a} or {b})", f"(not {a})", f"({a}) is not true", f"({a}) is false")
        kind = r.choice(KINDS)
        if kind == "bool":
            return self.column(scope, "bool") or "true"
        a, b = self.term(scope, kind, min(depth, 1)), self.term(scope, kind, min(depth, 1))
        ways = [f"{a} {self.choice('=', '<>', '<', '<=', '>', '>=')} {b}"] * 3
        ways += [f"{a} is {self.choice('', 'not ')}null", f"{a} is {self.choice('', 'not ')}distinct from {b}"]
        ways += [f"{a} {self.choice('', 'not ')}in ({', '.join(self.constant(kind) for _ in range(r.randint(1, 4)))})"]
        ways += [f"{a} {self.choice('', 'not ')}between {b} and {self.constant(kind)}"]
        if kind == "text":
            pattern = self.choice("a%", "%b%", "%", "_b%", "%1", "ab", "")
            ways += [f"{a} {self.choice('like', 'not like', 'ilike')} '{pattern}'"] * 2
        return r.choice(ways)

    # Relations.

    def alias(self) -> str:
        self.aliases += 1
        return f"r{self.aliases}"

    def relation(self, depth: int) -> tuple[str, list, float]:
        """Its text, its columns, about how many rows it has."""
        r = self.r
        alias = self.alias()
        if depth > 0 and r.random() < 0.25:
            query, kinds = self.select(depth - 1, inner=True)
            return f"({query.sql()}) {alias}", [(f"{alias}.c{n}", kind) for n, kind in enumerate(kinds)], query.rows
        # Two large tables have too many pairs.
        big = 0 if self.has_big else 12 * self.big_share
        name = r.choices(["t1", "t2", "t3", "t4", "big"], [4, 4, 3, 1, big])[0]
        self.has_big |= name == "big"
        columns = ["id", *tables.TABLES[name][2]]
        return f"{name} {alias}", [(f"{alias}.{column}", tables.kind(column)) for column in columns], tables.TABLES[name][0]

    def share(self, column: str) -> float:
        """The share of rows that have a frequent value of a column."""
        return tables.FREQUENT.get(column.split(".")[-1], DERIVED_SHARE)

    def on(self, left: list, right: list) -> tuple[str, float]:
        """Equal keys, mostly, and at times a condition on the pair; which share of pairs has equal keys."""
        r = self.r
        pairs, share = [], 1.0
        for _ in range(r.choice([1, 1, 1, 2])):
            kind = r.choice(["int", "int", "int", "text", "date", "decimal"])
            a, b = self.column(left, kind), self.column(right, kind)
            if a and b:
                exact = kind != "decimal" or a.split(".")[-1] == b.split(".")[-1]
                if exact:
                    pairs.append(f"{a} = {b}")
                    share = min(share, self.share(a), self.share(b))
        if not pairs:
            a, b = self.column(left, "int") or "1", self.column(right, "int") or "1"
            pairs = [f"{a} = {b}"]
            share = min(self.share(a), self.share(b)) if a != "1" or b != "1" else 1.0
        if r.random() < 0.2:
            pairs.append(self.condition(left + right, 1))
        return " and ".join(pairs), share

    def subquery_condition(self, scope: list, rows: float) -> str:
        r = self.r
        relation, inner, inner_rows = self.relation(0)
        on, share = self.on(scope, inner)
        if rows * inner_rows * share > PAIRS_MAX:
            return self.condition(scope, 1)
        way = r.randint(0, 4)
        local = f" and {self.condition(inner, 1)}" if r.random() < 0.6 else ""
        if way <= 1:
            return f"{self.choice('', 'not ')}exists (select 1 from {relation} where {on}{local})"
        kind = r.choice(["int", "text", "date"])
        a, b = self.column(scope, kind), self.column(inner, kind)
        if way <= 3 and a and b:
            known = f" and {b} is not null" if r.random() < 0.5 else ""
            return f"{a} {self.choice('', 'not ')}in (select {b} from {relation} where true{known}{local})"
        a, b = self.column(scope, "int") or "1", self.column(inner, "int") or "1"
        call = self.choice("max", "min", "count", "sum")
        correlated = f" and {on}" if r.random() < 0.5 else ""
        return f"{a} {self.choice('<', '>=', '=')} (select {call}({b}) from {relation} where true{local}{correlated})"

    # Queries.

    def aggregate(self, scope: list) -> tuple[str, str]:
        r = self.r
        kind = r.choice(KINDS)
        column = self.term(scope, kind, 1)
        filtered = f" filter (where {self.condition(scope, 1)})" if r.random() < 0.2 else ""
        distinct = "distinct " if r.random() < 0.2 else ""
        if kind in ("int", "decimal", "float") and r.random() < 0.6:
            if kind == "int":
                return f"sum({distinct}{column}){filtered}", "int"
            if kind == "decimal":
                return f"sum({distinct}{self.column(scope, 'decimal') or 'cast(1.5 as decimal(9, 2))'}){filtered}", "decimal"
            return f"sum({column}){filtered}", "float"
        call = r.choice(["count", "min", "max"])
        if call == "count":
            return (f"count(*){filtered}" if r.random() < 0.4 else f"count({distinct}{column}){filtered}"), "int"
        if kind == "bool":
            return f"{self.choice('bool_and', 'bool_or')}({column}){filtered}", "bool"
        return f"{call}({column}){filtered}", kind

    def select(self, depth: int = 2, inner: bool = False) -> tuple[Select, list]:
        """A query, and the kinds of its columns."""
        r = self.r
        query = Select()
        self.has_big &= inner
        query.first, scope, query.rows = self.relation(depth)
        for _ in range(r.choice([0, 0, 1, 1, 1, 2, 3])):
            relation, more, rows = self.relation(depth - 1 if depth > 0 else 0)
            join = self.choice("join", "join", "join", "left join", "right join", "full join")
            on, share = self.on(scope, more)
            pairs = query.rows * rows * share
            if pairs > PAIRS_MAX:
                continue
            query.joins.append(f" {join} {relation} on {on}")
            scope, query.rows = scope + more, max(pairs, query.rows, rows)
        for _ in range(r.choice([0, 0, 1, 1, 2])):
            query.where.append(self.condition(scope))
        if r.random() < 0.3:
            part = self.subquery_condition(scope, query.rows)
            query.where.append(part if r.random() < 0.7 else f"{part} or {self.condition(scope, 1)}")
        kinds = []
        if r.random() < 0.55:
            for _ in range(r.choice([0, 1, 1, 2, 3])):
                kind = r.choice(["int", "text", "bool", "date", "int", "text"])
                key = self.column(scope, kind) if r.random() < 0.6 else self.term(scope, kind, 1)
                # A constant in GROUP BY is the number of a column.
                if key and "." in key and key not in query.keys:
                    query.keys.append(key)
                    kinds.append(kind)
            for _ in range(r.randint(1, 4)):
                call, kind = self.aggregate(scope)
                query.items.append(call)
                kinds.append(kind)
            if query.keys and r.random() < 0.15:
                query.grouping = self.choice("rollup", "cube")
            if query.keys and r.random() < 0.2:
                query.having.append(f"count(*) {self.choice('>', '<=')} {r.randint(1, 20)}")
        else:
            query.grouping = None
            for _ in range(r.randint(1, 5)):
                kind = r.choice(KINDS)
                query.items.append(self.term(scope, kind))
                kinds.append(kind)
            query.distinct = r.random() < 0.15
        if r.random() < 0.3:
            query.limit = f" limit {r.randint(0, 30)}" + (f" offset {r.randint(0, 9)}" if r.random() < 0.3 else "")
        if not inner and not query.limit and r.random() < 0.1:
            query.more = [(self.choice("union all", "union", "except", "intersect"), query.body())]
        return query, kinds
