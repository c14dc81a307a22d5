"""Random expressions and conditions over whatever columns are in scope.

At most one operator of a query may fail, since SQL leaves the order of evaluation open.
"""

import random
from dataclasses import dataclass

INTEGER_TOP = {"int2": (1 << 15) - 1, "int4": (1 << 31) - 1, "int8": (1 << 63) - 1}
INTEGERS = tuple(INTEGER_TOP)
NUMBERS = (*INTEGERS, "float4", "float8", "numeric")


@dataclass(frozen=True)
class Term:
    """An expression. `canonical`: equal values are written alike; `summable`: its sum is the same in any order;
    `top`: an integer's largest magnitude; `scale`: the digits behind the point if they are always the same;
    `padded`: a char(n), equal to a text that has fewer spaces at its end."""

    sql: str
    kind: str
    canonical: bool = True
    summable: bool = True
    top: int = 0
    scale: int | None = None
    padded: bool = False


class Terms:
    """Makes expressions over `scope`, pairs of a term and whether it is wild. While `prepared` is on, constants
    become parameters at times: (type, value) in `parameters`."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.prepared = False
        self.parameters = []
        self.may_fail = self.fails = False
        self.scope = []

    def literal(self, value: str, kind: str, typed: bool = True) -> str:
        """A constant, or a parameter of a prepared statement."""
        if self.prepared and self.rng.random() < 0.6:
            self.parameters.append((kind, value))
            return f"${len(self.parameters)}"
        return f"{value}::{kind}" if typed else value

    def constant(self, kind: str, near: Term | None = None) -> Term:
        """A constant of a kind, within what tame columns hold, or what it is compared with; seldom NULL."""
        rng = self.rng
        if rng.random() < 0.01:
            return Term(self.literal("null", kind), kind, scale=0)
        if kind in INTEGERS:
            top = min(near.top if near and near.top and rng.random() < 0.7 else rng.choice([1, 10, 100, 5000]), INTEGER_TOP[kind] // 4)
            return Term(self.literal(f"({rng.randint(-top // 4, top)})", kind), kind, top=top)
        if kind in ("float4", "float8"):
            return Term(self.literal(f"({rng.randint(-200, 200) / 4})", kind), kind)
        if kind == "numeric":
            scale = rng.randint(0, 2)
            return Term(self.literal(f"({rng.uniform(-500, 500):.{scale}f})", kind), kind, scale=scale)
        return Term(self.literal(self.plain(kind), kind, typed=kind != "text"), kind)

    def plain(self, kind: str) -> str:
        """A constant's text."""
        rng = self.rng
        match kind:
            case "bool":
                return rng.choice(["true", "false"])
            case "date":
                return f"'{rng.randint(1992, 1998)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}'"
            case "timestamp" | "timestamptz":
                year = rng.randint(1995, 2002) if kind == "timestamp" else rng.randint(2020, 2022)
                return f"'{year}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} {rng.randint(0, 23):02}:30'"
            case "time":
                return f"'{rng.randint(0, 23):02}:{rng.randint(0, 59):02}'"
            case "data.label":
                return rng.choice(["'one'", "'two'", "'three'", "'four'", "'five'"])
            case "uuid":
                return rng.choice([f"md5('{rng.randint(0, 60)}')::uuid", f"md5('{7 * rng.randint(0, 3000)}')::uuid", f"'{rng.choice('07f') * 32}'", f"'{rng.randint(0, 255):02x}{'0' * 30}'"])
            case "bytea":
                return rng.choice([r"'\x00'", r"'\xff'", "''"])
        return "'" + rng.choice(["", "ab1", f"v{rng.randint(0, 300)}", f"c{rng.randint(0, 60)}", f"key {rng.randint(0, 150)}", "l3", " ", "%"]) + "'"

    def column(self, kind: str, wild: float = 0.1) -> Term:
        """A column of the scope, or a constant where it has none of the kind."""
        want_wild = self.rng.random() < wild
        found = [t for t, is_wild in self.scope if t.kind == kind and (want_wild or not is_wild)]
        return self.rng.choice(found) if found else self.constant(kind)

    def term(self, kind: str, depth: int = 2) -> Term:
        """An expression of a kind."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.4:
            return self.column(kind) if rng.random() < 0.95 else self.constant(kind)
        if rng.random() < 0.15 and kind != "bool":
            return self.choice(kind, depth)
        if kind in ("int4", "int8", "float8", "numeric") and rng.random() < 0.06 and (document := self.document()):
            field = "-> 'o' ->> 'in'" if kind in INTEGERS else "->> 'n'"
            return Term(f"({document} {field})::{kind}", kind, kind != "numeric", top=9 if kind in INTEGERS else 0)
        if kind in INTEGERS:
            return self.integer(kind, depth)
        if kind in ("float4", "float8"):
            return self.float(kind, depth)
        if kind == "numeric":
            return self.numeric(depth)
        if kind == "text":
            return self.text(depth)
        if kind == "bool":
            return Term(self.predicate(depth - 1), "bool")
        if kind in ("date", "timestamp", "timestamptz"):
            return Term(self.moment(kind, depth), kind)
        return self.column(kind)

    def moment(self, kind: str, depth: int) -> str:
        """A moment: part of another, another type's, or later or earlier."""
        rng = self.rng
        of = self.column(rng.choice(["date", "timestamp", "timestamptz"]), 0).sql
        if rng.random() < 0.3:
            return f"{of}::{kind}"
        if kind == "date":
            days = self.literal(str(rng.randint(-40, 40)), "int4", typed=False) if rng.random() < 0.6 else self.column("int2", 0).sql + "::int4"
            return f"({self.column('date', 0).sql} {rng.choice('+-')} {days})"
        if rng.random() < 0.4:
            unit = rng.choice(["year", "quarter", "month", "week", "day", "hour", "minute", "second", "milliseconds"])
            return f"date_trunc('{unit}', {self.term(kind, depth - 1).sql})"
        if kind == "timestamp" and rng.random() < 0.2:
            return f"({self.column('timestamptz', 0).sql} at time zone '{rng.choice(['Europe/Vienna', 'Asia/Kolkata', 'UTC', 'EST'])}')"
        interval = self.literal(rng.choice(["'1 mon'", "'-1 year 3 days'", "'31 days'", "'1 mon -1 day 02:03:04.5'", "'-0.000001 s'", "'90 min'"]), "interval")
        return f"({self.column('date' if kind == 'timestamp' and rng.random() < 0.3 else kind, 0).sql} {rng.choice('+-')} {interval})"

    def choice(self, kind: str, depth: int) -> Term:
        """CASE, COALESCE, NULLIF, GREATEST: a number's scale is no longer known."""
        rng = self.rng
        one, two = self.term(kind, depth - 1), self.term(kind, depth - 1)
        text = rng.choice([
            f"case when {self.predicate(0)} then {one.sql} else {two.sql} end", f"case when {self.predicate(0)} then {one.sql} end",
            f"coalesce({one.sql}, {two.sql})", f"nullif({one.sql}, {two.sql})", f"{rng.choice(['greatest', 'least'])}({one.sql}, {two.sql}{', null' if rng.random() < 0.1 else ''})",
        ])
        canonical = kind != "numeric" and one.canonical and two.canonical and not one.padded and not two.padded
        return Term(f"({text})", kind, canonical, one.summable and two.summable, max(one.top, two.top))

    def failing(self) -> bool:
        """Whether an operator that may fail is made: once in a query at most."""
        if self.may_fail and self.rng.random() < 0.3:
            self.may_fail, self.fails = False, True
            return True
        return False

    def integer(self, kind: str, depth: int) -> Term:
        """Arithmetic within the type's range, except where failing is wanted."""
        rng = self.rng
        if self.failing():
            one, two = self.column(kind, 0.8), self.column(kind, 0.3)
            return Term(f"({one.sql} {rng.choice('+-*/%')} {two.sql})", kind, summable=kind != "int8", top=INTEGER_TOP[kind])
        shape = rng.random()
        if shape < 0.15 and kind == "int4":
            one = self.term("text", depth - 1).sql
            two = self.term("text", 0).sql
            return Term(rng.choice([f"length({one})", f"octet_length({one})", f"strpos({one}, {two})", f"position('b' in {one})"]), kind, top=10_000)
        if shape < 0.3 and kind == "int4":
            if rng.random() < 0.2:
                return Term(f"({self.term('date', 1).sql} - {self.column('date', 0).sql})", kind, top=10_000)
            unit, source = rng.choice(["year", "month", "day", "dow", "isodow", "doy", "quarter", "week", "isoyear", "decade", "century", "millennium"]), rng.choice(["date", "timestamp", "timestamptz"])
            return Term(f"extract({unit} from {self.column(source, 0).sql})::int4", kind, top=3000)
        one = self.term(kind, depth - 1)
        if shape < 0.4:
            return Term(f"{rng.choice(['abs', '-', '+'])}({one.sql})", kind, True, one.summable, one.top) if one.top and one.top < INTEGER_TOP[kind] else one
        if shape < 0.55:
            return Term(f"({one.sql} {rng.choice('/%')} {self.literal(str(rng.choice([2, 3, 7, 10, 100])), kind)})", kind, True, one.summable, one.top)
        two, operator = self.term(kind, depth - 1), rng.choice("+-*")
        top = one.top * two.top if operator == "*" else one.top + two.top
        if not one.top or not two.top or top > INTEGER_TOP[kind]:
            return one
        return Term(f"({one.sql} {operator} {two.sql})", kind, top=top)

    def float(self, kind: str, depth: int) -> Term:
        """Arithmetic whose results are exact, or that is not summed."""
        rng = self.rng
        column = self.column(kind, 0)
        shape = rng.random()
        if shape < 0.5:
            return Term(f"({column.sql} {rng.choice('+-*')} {self.constant(kind).sql})", kind, True, column.summable and kind == "float8")
        if shape < 0.7:
            return Term(f"{rng.choice(['abs', 'floor', 'ceil', '-', 'round', 'trunc'])}({column.sql})" + ("::float4" if kind == "float4" else ""), kind, True, column.summable)
        if shape < 0.85:
            return Term(f"({column.sql} / {self.literal('3', kind)})", kind, True, False)
        return Term(f"{self.column(rng.choice(('int2', 'int4')), 0).sql}::{kind}", kind)

    def numeric(self, depth: int) -> Term:
        """Arithmetic; the scale of a quotient depends on its value."""
        rng = self.rng
        one, two = self.term("numeric", depth - 1), self.term("numeric", depth - 1)
        shape = rng.random()
        if shape < 0.15:
            return Term(f"({one.sql} / {self.literal(rng.choice(['3', '1.05', '100']), 'numeric')})", "numeric", False)
        if shape < 0.2:
            unit, scale = rng.choice([("second", 6), ("milliseconds", 3), ("microseconds", 0), ("epoch", 6)])
            return Term(f"extract({unit} from {self.column(rng.choice(('timestamp', 'timestamptz')), 0).sql})", "numeric", scale=scale)
        if shape < 0.3:
            return Term(f"{rng.choice(['abs', '-', 'floor', 'ceil', 'sign', 'round', 'trunc'])}({one.sql})", "numeric", False)
        if shape < 0.4:
            digits = rng.randint(0, 3)
            return Term(f"{rng.choice(['round', 'trunc'])}({one.sql}, {digits})", "numeric", one.scale is not None, scale=digits)
        if shape < 0.42:
            digits = rng.randint(0, 12)
            return Term(f"{one.sql}::numeric(38, {digits})" if digits <= 10 else f"coalesce({one.sql}, 0)", "numeric", one.scale is not None and digits <= 10, scale=digits if digits <= 10 else None)
        if shape < 0.45:
            return Term(f"mod({one.sql}, {self.literal(rng.choice(['3', '1.05', '100']), 'numeric')})", "numeric", False)
        if shape < 0.5:
            return Term(f"{self.column(rng.choice(INTEGERS), 0).sql}::numeric", "numeric", scale=0)
        operator = rng.choice("+-*")
        if one.scale is None or two.scale is None:
            return Term(f"({one.sql} {operator} {two.sql})", "numeric", False)
        scale = one.scale + two.scale if operator == "*" else max(one.scale, two.scale)
        return Term(f"({one.sql} {operator} {two.sql})", "numeric", scale=scale)

    def document(self) -> str | None:
        """A column of documents, if the scope has one."""
        found = [t.sql for t, _ in self.scope if t.kind == "jsonb"]
        return self.rng.choice(found) if found else None

    def text(self, depth: int) -> Term:
        """Functions of texts."""
        rng, one = self.rng, self.term("text", depth - 1).sql
        two = self.term("text", 0).sql
        if rng.random() < 0.15 and (document := self.document()):
            path = rng.choice(["->> 's'", "->> 'n'", "->> 'b'", "->> 'z'", "-> 'o' ->> 'in'", "->> 'long key'", "->> 'none'"])
            shown = f"({document} {path})"
            return Term(rng.choice([shown, shown, f"left({shown}, 2)", f"coalesce({shown}, {two})"]), "text")
        if rng.random() < 0.15:
            shown = self.term("uuid", depth - 1).sql + rng.choice(["::text", "::varchar"])
            return Term(rng.choice([shown, f"left({shown}, 2)", f"upper({shown})", f"({two} || {shown})"]), "text")
        return Term(rng.choice([
            f"upper({one})", f"lower({one})", f"substr({one}, {rng.randint(0, 4)}, {rng.randint(0, 5)})", f"({one} || {two})",
            f"left({one}, {rng.randint(-2, 6)})", f"right({one}, {rng.randint(-2, 6)})", f"trim({one})", f"replace({one}, 'b', 'B')",
            f"({one} || {self.column('int4').sql})", f"ltrim({one}, 'vc')", f"btrim({one}, {two})", f"reverse({one})", f"concat({one}, {two}, '-')",
            f"substring({one}, {self.column('int2', 0).sql}::int4)", f"right({one}, {self.column('int2', 0).sql}::int4)", f"replace({one}, {two}, 'ü')",
        ]), "text")

    def predicate(self, depth: int = 2) -> str:
        """A condition, in parentheses."""
        rng = self.rng
        if depth > 0 and rng.random() < 0.35:
            if rng.random() < 0.25:
                return f"(not {self.predicate(depth - 1)})"
            return f"({self.predicate(depth - 1)} {rng.choice(['and', 'or'])} {self.predicate(depth - 1)})"
        if rng.random() < 0.04 and (document := self.document()):
            field = rng.choice([f'"s": "v{rng.randint(0, 30)}"', f'"n": {rng.randint(0, 40) / 4}', f'"n": {rng.randint(0, 9)}.000', '"b": true', '"b": false, "z": null', '"none": 1', '"s": 5', "", '"o": {"in": 3}'])
            return f"({document} @> '{{{field}}}')" if rng.random() < 0.7 else f"({document} ->> 'b')::bool"
        kind = rng.choice(["int2", "int4", "int4", "int8", "float4", "float8", "numeric", "numeric", "date", "date", "timestamp", "timestamptz", "time", "text", "text", "uuid", "bytea", "bool", "data.label"])
        one = self.term(kind, depth)
        shape = rng.random()
        if shape < 0.06:
            return f"({one.sql} is {rng.choice(['', 'not ', 'not '])}null)"
        if kind == "bool":
            return rng.choice([one.sql, f"({one.sql} is {rng.choice(['', 'not '])}{rng.choice(['true', 'false', 'unknown'])})"])
        if shape < 0.12:
            return f"({one.sql} is {rng.choice(['', 'not ', 'not '])}distinct from {self.term(kind, 0).sql})"
        if shape < 0.24:
            values = ", ".join(self.constant(kind, one).sql for _ in range(rng.randint(1, 6)))
            if rng.random() < 0.2:
                return f"({one.sql} = any (array[{values}]))"
            return f"({one.sql} {rng.choice(['', 'not '])}in ({values}))"
        if shape < 0.36:
            return f"({one.sql} {rng.choice(['', 'not '])}between {self.constant(kind, one).sql} and {rng.choice((self.term, self.constant))(kind).sql})"
        if kind == "text" and shape < 0.75:
            pattern = rng.choice(["ab%", "%1%", "v_", "%", "c1_%", "%b1%2%", "key 1%", "%ü%", r"%\%%", "", "_%0 ", "l%"])
            pattern = self.literal(f"'{pattern}'", "text", typed=False)
            if rng.random() < 0.15:
                return f"starts_with({one.sql}, {pattern})"
            return f"({one.sql} {rng.choice(['', 'not '])}{rng.choice(['like', 'like', 'ilike'])} {pattern})"
        if rng.random() < 0.7:
            other = self.constant(kind, one)
        else:
            other = self.term(rng.choice(NUMBERS) if kind in NUMBERS else kind, depth - 1 if depth else 0)
        return f"({one.sql} {rng.choices(['=', '<>', '<', '<=', '>', '>='], [1, 2, 3, 3, 3, 3])[0]} {other.sql})"
