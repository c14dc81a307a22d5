"""Whole queries: relations and joins of them, subqueries, aggregates, and what comes out."""

import random

from lib.queries.dialect import Dialect, Table
from lib.queries.grammar import Context
from lib.queries.select import Derived, Item, Select
from lib.queries.terms import Term, Terms, Unmakeable

# How many rows of derived tables' columns have one value.
DERIVED_SHARE = 0.1
DIRECTIONS = ("", " desc", " nulls first", " desc nulls last")


class Generator(Terms):
    """Makes queries of a dialect from a random.Random. `weights` of tables stand for those of the dialect."""

    def __init__(self, dialect: Dialect, rng: random.Random, weights: dict | None = None):
        super().__init__(dialect, rng)
        self.tables = {table.name: table for table in dialect.tables}
        self.weights = {table.name: table.weight for table in dialect.tables} | (weights or {})

    def weighed(self, weights: dict) -> str:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    # Relations: a source, its columns, about how many rows it has.

    def table(self) -> Table:
        return self.tables[self.weighed(self.weights)]

    def columns(self, alias: str, columns) -> list:
        return [Term(f"{alias}.{c.name}", c.kind, True, not c.wild, c.top, c.scale, c.padded, c.wild, c.share) for c in columns]

    def relation(self, depth: int = 0) -> tuple:
        shape = self.rng.random()
        if depth > 0 and shape < 0.2:
            return self.derived(depth)
        table, alias = self.table(), self.alias()
        if shape < 0.25:
            # A subquery that stays one.
            text = f"(select * from {table.name} order by id limit {self.rng.choice([0, 5, 30, 300, 1000, 100000])}) {alias}"
        elif shape < 0.32:
            return self.both(table, self.table(), alias)
        else:
            text = f"{table.name} {alias}"
        return text, self.columns(alias, table.columns), table.rows

    def both(self, one: Table, two: Table, alias: str) -> tuple:
        """What two tables have in common, as one."""
        names = {column.name for column in two.columns}
        columns = [column for column in one.columns if column.name in names]
        listed = ", ".join(column.name for column in columns)
        text = f"(select {listed} from {one.name} union all select {listed} from {two.name}) {alias}"
        return text, self.columns(alias, columns), one.rows + two.rows

    def derived(self, depth: int) -> tuple:
        scope, self.scope = self.scope, []
        query, alias = self.select(depth - 1, self.rng.choice(["groups", "groups", "rows", "distinct"])), self.alias()
        self.scope = scope
        columns = [
            Term(f"{alias}.c{n}", t.kind, t.canonical, t.summable, t.top, t.scale, t.padded, False, DERIVED_SHARE)
            for n, t in enumerate(item.term for item in query.items)
        ]
        return Derived("(", query, f") {alias}"), columns, query.rows

    def nested(self) -> tuple:
        """A join that is a side of another."""
        (one, left, rows), (two, right, more) = self.relation(), self.relation()
        on, pairs = self.on(left, right, rows * more)
        return (f"({one} {self.rng.choice(['join', 'left join'])} {two} on {on})", left + right, max(rows, more, pairs)) if on else (one, left, rows)

    def on(self, left: list, right: list, pairs_max: float) -> tuple:
        """Equal keys, mostly, and at times a condition on the pair, and about how many pairs it leaves; or nothing, if those are too many."""
        wanted = [self.rng.choice(self.dialect.join_kinds) for _ in range(self.rng.choice([1, 1, 1, 2]))]
        found = [pair for kind in wanted if (pair := self.equal(kind, left, right))] or [self.equal("integer", left, right) or ("1 = 1", 1.0)]
        pairs = pairs_max * min(share for _, share in found)
        more = [self.pair_condition(left + right)] if self.chance(0.2) else []
        return " and ".join([*(text for text, _ in found), *more]) if pairs <= self.dialect.pairs_max else "", pairs

    def pair_condition(self, scope: list) -> str:
        """A condition on pairs, or on rows of a subquery: it fails for none, since not all may be looked at."""
        (self.scope, outer), (self.may_fail, may_fail) = (scope, self.scope), (False, self.may_fail)
        condition = self.condition(1)
        self.scope, self.may_fail = outer, may_fail
        return condition

    def equal(self, kind: str, left: list, right: list) -> tuple | None:
        """An equality of two columns of a kind."""
        kinds = self.kinds(kind, Context())
        one, two = ([t for t in side if t.kind in kinds and t.share and not t.wild] for side in (left, right))
        if not one or not two:
            return None
        a = self.rng.choice(one)
        same = [t for t in two if t.name == a.name]
        b = self.rng.choice(same if same and (a.scale or self.chance(self.dialect.same_key)) else two)
        # Decimals of several scales are not hashed alike.
        return (f"{a.sql} = {b.sql}", min(a.share, b.share)) if (a.scale or 0) == (b.scale or 0) else None

    def join(self, query: Select, depth: int) -> None:
        """One more relation, unless that has too many pairs."""
        sort = self.weighed(self.dialect.joins)
        source, scope, rows = self.nested() if sort == "left join" and self.chance(0.2) else self.relation(depth)
        on, pairs = self.on(self.scope, scope, query.rows * rows)
        if not on:
            return
        if sort == "cross join":
            query.where.append(f"({on})")
        elif sort == "full join" and not self.dialect.wide_full_joins:
            on = on.split(" and ")[0]
        before, after = f" {sort} ", "" if sort == "cross join" else f" on {on}"
        is_derived = isinstance(source, Derived)
        query.sources.append(Derived(before + source.before, source.query, source.after + after) if is_derived else before + source + after)
        self.scope, query.rows = self.scope + scope, max(pairs, query.rows, rows)

    # Conditions with subqueries.

    def subquery(self, rows: float) -> str:
        """EXISTS, IN, or a comparison with a value, of rows that are looked for by the outer row or not."""
        source, inner, inner_rows = self.nested() if self.chance(0.15) else self.relation()
        on, _ = self.on(self.scope, inner, rows * inner_rows)
        if not on:
            return self.condition(1)
        local = f" and {self.pair_condition(inner)}" if self.chance(0.6) else ""
        way = self.rng.randint(0, 4)
        if way <= 1:
            return f"({self.rng.choice(['', 'not '])}exists (select {self.rng.choice(self.dialect.exists)} from {source} where {on}{local}))"
        kinds = self.kinds(self.rng.choice(self.dialect.join_kinds), Context())
        found = [(a, b) for a in self.scope for b in inner if a.kind == b.kind and a.kind in kinds and a.scale == b.scale and not b.wild]
        if way <= 3 and found:
            a, b = self.rng.choice(found)
            known = f" and {b.sql} is not null" if self.chance(0.5) else ""
            return f"({a.sql} {self.rng.choice(['', 'not '])}in (select {b.sql} from {source} where true{known}{local}))"
        kind = self.rng.choice(self.dialect.integers)
        a, outer, self.scope = self.column(kind, 0).sql, self.scope, inner
        call = f"{self.rng.choice(['max', 'min', 'count', 'sum', *self.dialect.averages])}({self.column(kind, 0).sql})"
        self.scope = outer
        correlated = f" and {on}" if self.chance(0.4) else ""
        return f"({a} {self.rng.choice(['<', '>=', '=', '>'])} (select {call} from {source} where true{local}{correlated}))"

    # Aggregates.

    def aggregate(self) -> Term:
        """An aggregate, with FILTER and DISTINCT at times."""
        d = self.dialect
        tail = f" filter (where {self.condition(1)})" if self.chance(0.17) else ""
        shape = self.rng.random()
        if shape < 0.15:
            return Term(f"count(*){tail}", self.dialect.integers[-1], top=10**9)
        kind = self.rng.choice(list(d.sums) if shape < 0.6 else d.item_kinds)
        term = self.column(kind) if kind in d.summed_columns else self.term(kind, d.depth)
        if shape < 0.6 and kind in d.sums:
            if d.deviations and kind.startswith("float") and self.chance(0.5):
                return self.float_deviation(term, tail)
            if term.summable:
                return self.sum(term, tail)
        if kind == "bool":
            return Term(f"{self.rng.choice(d.bool_calls)}({term.sql}){tail}", kind)
        if kind in d.count_only or shape > 0.88 or not term.canonical:
            distinct = "distinct " if (term.canonical or not kind.startswith("float")) and self.chance(0.4) else ""
            return Term(f"count({distinct}{term.sql}){tail}", self.dialect.integers[-1], top=10**9)
        return Term(f"{self.rng.choice(['min', 'max'])}({term.sql}){tail}", kind, term.canonical, False, scale=term.scale)

    def sum(self, term: Term, tail: str) -> Term:
        d, kind = self.dialect, term.kind
        call = self.rng.choice(["sum", "sum", *d.averages, self.rng.choice(d.deviations or ("sum",))])
        exact = kind in d.integers or kind == d.decimal and term.canonical
        distinct = "distinct " if call not in d.deviations and exact and self.chance(0.2) else ""
        text = f"{call}({distinct}{term.sql}){tail}"
        if call != "sum":
            return Term(text, "float8" if kind.startswith("float") else "numeric", False, False)
        scaled = kind == "numeric"
        return Term(text, d.sums[kind], not scaled or term.scale is not None, False, scale=term.scale if scaled else 0)

    def float_deviation(self, term: Term, tail: str) -> Term:
        """A variance or deviation of whatever floats: of equal ones it is 0, or what their rounding leaves."""
        distinct, of = "distinct " if self.chance(0.15) else "", term.sql
        if not term.summable and term.kind == "float8":
            # Whether finite values overflow before another is NaN is a matter of their order.
            of = f"case when abs({of}) < 1e100 or abs({of}) >= 'infinity' then {of} end"
        text = f"{self.rng.choice(self.dialect.deviations)}({distinct}{of}){tail}"
        if not term.summable:
            text = f"(case when {text} > 1e-9 then {text} end)"
        return Term(text, "float8", False, False)

    def over_aggregate(self) -> Term:
        """An expression over aggregates, or one alone."""
        one, exact = self.aggregate(), (self.dialect.integers[-1], self.dialect.decimal)
        if one.kind not in exact or self.chance(0.8) or (two := self.aggregate()).kind not in exact:
            return one
        text = self.fill(self.rng.choice(self.dialect.over_aggregates), Context({"a": one.sql, "b": two.sql}))
        return Term(f"({text})", exact[1] if self.dialect.tops else one.kind, False, False)

    # Queries.

    def base(self, depth: int) -> Select:
        """FROM and WHERE."""
        source, self.scope, rows = self.relation(depth)
        query = Select(sources=[source], rows=rows)
        if isinstance(source, Derived) and self.chance(0.4):
            # The same query, before the one that reads it.
            word = self.rng.choice(self.dialect.materialized)
            name, alias = self.alias(), source.after.split()[-1]
            query.prefix, query.sources = [Derived(f"with {name} as {word}(", source.query, ") ")], [f"{name} {alias}"]
        for _ in range(self.rng.choice(self.dialect.join_counts)):
            self.join(query, depth - 1)
        query.where += [self.condition() for _ in range(self.rng.choice([0, 0, 0, 1, 1, 2]))]
        if self.chance(0.25):
            part = self.subquery(query.rows)
            query.where.append(part if self.chance(0.7) else f"({part} or {self.condition(1)})")
        return query

    def query(self, prepared: bool) -> Select:
        """A query, of which one operator may fail; what it has of parameters, as (type, value), is in `parameters`."""
        self.prepared, self.parameters, self.aliases = prepared, [], 0
        self.may_fail, self.fails = self.chance(0.25), False
        return self.select()

    def select(self, depth: int | None = None, shape: str = "") -> Select:
        """A query that fails for no row, or at `may_fail`."""
        depth = self.dialect.nesting if depth is None else depth
        query = self.base(depth)
        shape = shape or self.weighed(self.dialect.shapes)
        if shape == "any" and not self.fails:
            return self.any_rows(query)
        if shape == "window":
            return self.windows(query)
        if shape == "ranked":
            return self.ranked(query)
        (self.rows if shape in ("rows", "distinct", "top") else self.groups)(query, shape)
        exact = all(item.term.canonical for item in query.items)
        if self.chance(0.1):
            others = ["union all", "union", "except", "intersect"] if exact else ["union all"]
            query.others = [(self.rng.choice(others), self.condition(1))]
        if shape != "top" and self.chance(0.4):
            query.ordered = True
        # A server may stop at a LIMIT before the group that fails.
        if query.total_order() and not query.others and not self.fails and (shape == "top" or self.chance(0.6)):
            self.limit(query, self.rng.choice(["0", "1", "3", "20", "20", "30", "500", "6000"]))
        return query

    def limit(self, query: Select, bound: str) -> None:
        words = {"limit": bound} | ({"offset": str(self.rng.randint(0, 30))} if self.chance(0.3) else {})
        query.limit = [f" {word} {self.literal(number, self.dialect.integers[-1])}" for word, number in words.items()]

    def rows(self, query: Select, shape: str) -> None:
        d = self.dialect
        if query.rows > 3000:
            query.where.append(f"({self.column(self.dialect.integers[-1], 0).sql} % {self.rng.randint(2, 9)} = 0)")
        terms = [self.term(self.rng.choice(d.item_kinds)) for _ in range(self.rng.randint(1, 5))]
        if shape == "top":
            terms = [term for term in terms if term.kind not in ("float4", "float8", "bytea")]
        query.items = [Item(t) for t in terms if shape == "rows" or t.canonical] or [Item(self.column(d.item_kinds[0]))]
        query.distinct, query.ordered = shape == "distinct", shape == "top"
        query.directions = [self.rng.choice(DIRECTIONS) for _ in query.items] if query.ordered else []

    def groups(self, query: Select, shape: str) -> None:
        """Groups of keys, or of all rows together."""
        d, rng = self.dialect, self.rng
        query.grouped = True
        query.grouping = rng.choice(d.grouping) if d.grouping and shape == "groups" and self.chance(0.15) else ""
        query.by_number = not d.grouping or not query.grouping and self.chance(0.5)
        for _ in range(rng.choice([1, 1, 1, 2, 2, 3]) if shape == "groups" else 0):
            kind = rng.choice(d.group_kinds)
            term = self.column(kind) if self.chance(0.6) else self.term(kind, 1)
            # A constant in GROUP BY is the number of a column.
            named = query.by_number or "." in term.sql and term.sql not in [item.term.sql for item in query.items]
            if term.canonical and named:
                query.items.append(Item(term, True))
        query.items += [Item(self.over_aggregate()) for _ in range(rng.randint(1, 4))]
        if self.chance(0.15):
            having = self.aggregate()
            try:
                query.having = [f"({having.sql} {rng.choice(['>', '<='])} {self.constant(having.kind).sql})"]
            except Unmakeable:
                query.having = [f"({having.sql} is not null)"]

    def any_rows(self, query: Select) -> Select:
        """Which rows is open, how many is not."""
        query.items = [Item(self.scope[0])]
        self.limit(query, self.rng.choice(["1", "40", "3000"]))
        counted = Derived("(", query, f") {self.alias()}")
        return Select(items=[Item(Term("count(*)", self.dialect.integers[-1], top=10**9))], sources=[counted], rows=1)

    def windows(self, query: Select) -> Select:
        key, number = (self.column(self.rng.choice(kinds), 0) for kinds in (["int4", "text", "date", "uuid"], ["int4", "int8"]))
        names = Context({"key": key.sql, "number": number.sql})
        query.grouped = True
        query.items = [Item(key, True)] + [Item(Term(self.fill(text, names), "numeric", False)) for text in self.rng.sample(self.dialect.windows, 3)]
        return query

    def ranked(self, query: Select) -> Select:
        """Window functions over rows, whose results no order of peers changes; often the first rows of each partition alone."""
        d, rng, integer = self.dialect, self.rng, self.dialect.integers[-1]
        self.rows(query, "rows")
        keys = [self.term(rng.choice(d.group_kinds), 1) for _ in range(rng.choice([1, 1, 2]))]
        order = [self.term(rng.choice(d.item_kinds), 1) for _ in range(rng.choice([0, 1, 1, 2]))]
        keys, order = ([term for term in terms if term.canonical and "." in term.sql] for terms in (keys, order))
        # The planner's own operator fails for an order by what is the same in all rows of a partition.
        order = [term for term in order if not any(key.sql in term.sql for key in keys)]
        keys = keys or [self.column(integer, 0)]
        over = f"partition by {', '.join(term.sql for term in keys)}" if rng.random() < 0.9 or not order else ""
        if order:
            over += " order by " + ", ".join(term.sql + rng.choice(DIRECTIONS) for term in order)
        whole = rng.choice([" rows between unbounded preceding and unbounded following", "", ""]) if order else ""
        of = self.column(rng.choice([integer, d.decimal]), 0)
        text = self.column("text", 0)
        calls = [
            Term("rank()", integer), Term("dense_rank()", integer), Term("count(*)", integer), Term(f"count({text.sql})", integer),
            Term(f"sum({of.sql})", of.kind, scale=of.scale), Term(f"{rng.choice(['min', 'max'])}({text.sql})", "text"),
            Term(f"{rng.choice(['min', 'max'])}({of.sql})", of.kind, scale=of.scale),
        ]
        calls = rng.sample(calls, rng.choice([1, 1, 2, 3]))
        frames = [whole if "rank" not in call.sql else "" for call in calls]
        made = [Term(f"{call.sql} over ({over}{frame})", call.kind, scale=call.scale) for call, frame in zip(calls, frames)]
        first = len(query.items)
        query.items += [Item(term) for term in made]
        if not self.chance(0.6):
            return query
        inner, alias = Derived("(", query, ") w0"), "w0"
        columns = [Term(f"{alias}.c{n}", item.term.kind, item.term.canonical, scale=item.term.scale) for n, item in enumerate(query.items)]
        outer = Select(sources=[inner], rows=query.rows)
        numbers = [column for column, call in zip(columns[first:], calls) if "rank" in call.sql or call.sql == "count(*)"]
        if numbers:
            outer.where.append(f"{rng.choice(numbers).sql} {rng.choice(['<=', '<', '='])} {rng.choice([0, 1, 1, 2, 3, 10, 100])}")
        outer.items = [Item(column) for column in columns]
        if self.chance(0.4):
            # Groups, or the first rows, above the windows.
            outer.items, outer.grouped = [Item(columns[0], True), Item(Term("count(*)", integer))], True
            if not columns[0].canonical:
                outer.items[0].key, outer.items = False, outer.items[1:]
        elif self.chance(0.4) and all(column.canonical and column.kind not in ("float", "float8") for column in columns):
            outer.ordered = True
            self.limit(outer, rng.choice(["1", "20", "500"]))
        return outer

    def divided(self) -> tuple:
        """Rows of a join, and the same in three parts by a condition: rows for which it is true, false and NULL are all."""
        source, self.scope, rows = self.relation()
        query = Select(sources=[source], rows=rows)
        if self.chance(0.6):
            self.join(query, 0)
        query.items = [Item(self.rng.choice(self.scope)) for _ in range(3)]
        condition = self.condition()
        parts = [query.body([*query.where, part]) for part in (condition, f"not {condition}", f"{condition} is null")]
        return query.body(query.where), " union all ".join(parts)

