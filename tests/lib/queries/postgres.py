"""PostgreSQL with the extension against PostgreSQL without: every type, NULLs, extremes, prepared statements."""

from lib.queries import server
from lib.queries.dialect import Dialect, forms
from lib.queries.terms import chosen, fixed, like_first, of_scales, rescaled, shrinking, within_range

INTEGER_TOP = {"int2": (1 << 15) - 1, "int4": (1 << 31) - 1, "int8": (1 << 63) - 1}
NUMBERS = (*INTEGER_TOP, "float4", "float8", "numeric")
TIMES = ("date", "timestamp", "timestamptz")
OTHERS = ("time", "text", "bool", "uuid", "bytea", "data.label")
DEVIATIONS = ("stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp")
SECONDS = {"second": 6, "milliseconds": 3, "microseconds": 0, "epoch": 6}

INTEGER = forms(
    (40, "({self:} {+|-|*} {self:})", within_range), (15, "({self:} {/|%} {$self 2|3|7|10|100})", shrinking),
    (10, "{abs|-|+}({self:})", like_first),
)
OF_DOCUMENT = (5, "({jsonb@} -> 'o' ->> 'in')::{self}", fixed(top=9))
FLOAT = forms((12, "({self@} / {$self 3})", fixed(summable=False)), (12, "{int2|int4@}::{self}"))
INTERVAL = "{$interval '1 mon'|'-1 year 3 days'|'31 days'|'1 mon -1 day 02:03:04.5'|'-0.000001 s'|'90 min'}"
TRUNCATED = "date_trunc('{year|quarter|month|week|day|hour|minute|second|milliseconds}', {self:})"
TEXT_OF_DOCUMENT = "({jsonb@} {->> 's'|->> 'n'|->> 'b'|->> 'z'|-> 'o' ->> 'in'|->> 'long key'|->> 'none'})"
CONTAINED = ('"s": "v{0..30}"', '"n": {0..9}.{0|25|5|75}', '"n": {0..9}.000', '"b": true', '"b": false, "z": null', '"none": 1', '"s": 5', "", '"o": {(}"in": 3{)}')
PATTERN = r"{%text 'ab%'|'%1%'|'v_'|'%'|'c1_%'|'%b1%2%'|'key 1%'|'%ü%'|'%\%%'|''|'_%0 '|'l%'}"


DIALECT = Dialect(
    tables=server.TABLES,
    types={kind: kind for kind in (*NUMBERS, *TIMES, *OTHERS)},
    constants={
        **dict.fromkeys(("float4", "float8"), ("({-50..49}.{0|25|5|75})",)),
        "numeric": ("({-500..500})", "({-500..499}.{0..9})", "({-500..499}.{00..99})"),
        "bool": ("true", "false"),
        "date": ("'{1992..1998}-{01..12}-{01..28}'",),
        "timestamp": ("'{1995..2002}-{01..12}-{01..28} {00..23}:30'",),
        "timestamptz": ("'{2020..2022}-{01..12}-{01..28} {00..23}:30'",),
        "time": ("'{00..23}:{00..59}'",),
        "data.label": ("'one'", "'two'", "'three'", "'four'", "'five'"),
        "uuid": ("md5('{0..60}')::uuid", "md5((7 * {0..3000})::text)::uuid", *(f"'{digit * 32}'" for digit in "07f"), f"'{{10..99}}{'0' * 30}'"),
        "bytea": (r"'\x00'", r"'\xff'", "''"),
        "text": ("''", "'ab1'", "'v{0..300}'", "'c{0..60}'", "'key {0..150}'", "'l3'", "' '", "'%'"),
    },
    spelt={kind: f"{{}}::{kind}" for kind in (*NUMBERS, *TIMES, *OTHERS, "interval") if kind != "text"},
    integers=tuple(INTEGER_TOP),
    decimal="numeric",
    groups={"integer": tuple(INTEGER_TOP), "number": NUMBERS},
    tops=INTEGER_TOP,
    forms={
        "": forms(
            (3, "(case when {?} then {self:} else {self:} end)", chosen), (3, "(case when {?} then {self:} end)", chosen),
            (3, "coalesce({self:}, {self:})", chosen), (3, "nullif({self:}, {self:})", chosen),
            (2.5, "{greatest|least}({self:}, {self:})", chosen), (0.5, "{greatest|least}({self:}, {self:}, null)", chosen),
        ),
        "int2": INTEGER,
        "int4": INTEGER + forms(
            OF_DOCUMENT,
            (4, "{length|octet_length}({text:})", fixed(top=10_000)), (4, "strpos({text:}, {text.})", fixed(top=10_000)),
            (4, "position('b' in {text:})", fixed(top=10_000)), (3, "({date:} - {date@})", fixed(top=10_000)),
            (12, "extract({year|month|day|dow|isodow|doy|quarter|week|isoyear|decade|century|millennium} from {date|timestamp|timestamptz@})::int4", fixed(top=3000)),
        ),
        "int8": INTEGER + forms(OF_DOCUMENT, (2, "bit_count(({int4@})::bit(32))", fixed(top=32)), (2, "bit_count(({self@})::bit(64))", fixed(top=64))),
        "float4": FLOAT + forms(
            (40, "({self@} {+|-|*} {self!})", fixed(summable=False)), (17, "{abs|floor|ceil|-|round|trunc}({self@})::float4", shrinking),
        ),
        "float8": FLOAT + forms(
            (40, "({self@} {+|-|*} {self!})", shrinking), (17, "{abs|floor|ceil|-|round|trunc}({self@})", shrinking),
            (5, "({jsonb@} ->> 'n')::float8"),
        ),
        "numeric": forms(
            (12, "({self:} / {$self 3|1.05|100})"), (4, "extract({second|milliseconds|microseconds|epoch} from {timestamp|timestamptz@})", lambda _, made: {"scale": SECONDS[made.picked[0]]}),
            (16, "{abs|-|floor|ceil|sign|round|trunc}({self:})"), (8, "{round|trunc}({self:}, {0..3})", rescaled), (2, "{self:}::numeric(38, {0..10})", rescaled),
            (3, "mod({self:}, {$self 3|1.05|100})"), (4, "{integer@}::numeric", fixed(scale=0)), (5, "({jsonb@} ->> 'n')::numeric"),
            (40, "({self:} {+|-|*} {self:})", of_scales),
        ),
        "text": forms(
            (4, TEXT_OF_DOCUMENT), (2, f"left({TEXT_OF_DOCUMENT}, 2)"), (2, f"coalesce({TEXT_OF_DOCUMENT}, {{text.}})"), (3, "{uuid:}{::text|::varchar}"),
            (3, "left({uuid:}{::text|::varchar}, 2)"), (3, "upper({uuid:}::text)"), (3, "({text.} || {uuid:}::varchar)"), (5, "{upper|lower|trim|reverse}({text:})"),
            (5, "{upper|lower|trim|reverse}({text:})"), (5, "substr({text:}, {0..4}, {0..5})"), (5, "({text:} || {text.})"), (5, "{left|right}({text:}, {-2..6})"),
            (5, "replace({text:}, 'b', 'B')"), (5, "({text:} || {int4.})"), (5, "ltrim({text:}, 'vc')"), (5, "btrim({text:}, {text.})"),
            (5, "concat({text:}, {text.}, '-')"), (5, "substring({text:}, {int2@}::int4)"), (5, "right({text:}, {int2@}::int4)"), (5, "replace({text:}, {text.}, 'ü')"),
        ),
        "bool": forms((40, "{?}")),
        "date": forms((30, "{date|timestamp|timestamptz@}::date"), (40, "({date@} {+|-} {%int4 -40|-7|-1|0|1|3|12|31|40})"), (25, "({date@} {+|-} {int2@}::int4)")),
        "timestamp": forms(
            (30, "{date|timestamp|timestamptz@}::timestamp"), (30, TRUNCATED), (10, "({timestamptz@} at time zone '{Europe/Vienna|Asia/Kolkata|UTC|EST}')"),
            (25, f"({{timestamp@}} {{+|-}} {INTERVAL})"), (10, f"({{date@}} {{+|-}} {INTERVAL})"),
        ),
        "timestamptz": forms((30, "{date|timestamp|timestamptz@}::timestamptz"), (30, TRUNCATED), (35, f"({{timestamptz@}} {{+|-}} {INTERVAL})")),
        **dict.fromkeys(("time", "uuid", "bytea", "data.label"), forms((80, "{self.}"))),
    },
    conditions={
        "": forms(
            (30, "{a} {=|<>|<|<=|>|>=|<>|<|<=|>|>=} {self!}"), (14, "{a} {=|<>|<|<=|>|>=} {self:}"), (6, "{a} is {|not |not }null"),
            (6, "{a} is {|not |not }distinct from {self.}"), (10, "{a} {|not }in ({self!*})"), (3, "{a} = any (array[{self!*}])"),
            (8, "{a} {|not }between {self!} and {self!}"), (6, "{a} {|not }between {self!} and {self:}"),
            *((0.5, f"{{jsonb@}} @> '{{(}}{field}{{)}}'") for field in CONTAINED), (1, "({jsonb@} ->> 'b')::bool"),
        ),
        "text": forms((70, f"{{a}} {{|not }}{{like|like|ilike}} {PATTERN}"), (12, f"starts_with({{a}}, {PATTERN})")),
        "bool": forms((3, "{a}"), (3, "{a} is {|not }{true|false|unknown}")),
        **dict.fromkeys(NUMBERS, forms((15, "{a} {=|<>|<|<=|>|>=} {number:}"))),
    },
    condition_kinds=(*NUMBERS, *TIMES, *OTHERS, "int4", "numeric", "date", "text"),
    item_kinds=(*NUMBERS, *TIMES, *OTHERS, "int4", "text"),
    group_kinds=("int4", "int4", "int8", "int2", "text", "text", "date", "timestamp", "bool", "numeric", "uuid", "float8", "time", "timestamptz", "data.label"),
    join_kinds=("integer", "integer", "integer", "text", "uuid"),
    same_key=0.9,
    joins={"inner join": 40, "cross join": 20, "left join": 18, "right join": 3, "full join": 2},
    join_counts=(0, 0, 0, 0, 1, 1, 1, 2, 2, 3),
    exists=("", "1"),
    wide_full_joins=False,
    pairs_max=100_000,
    nesting=1,
    materialized=("", "materialized ", "not materialized "),
    shapes={"whole": 26, "groups": 42, "rows": 8, "top": 9, "distinct": 5, "window": 6, "any": 4},
    sums={"int2": "int8", "int4": "int8", "int8": "numeric", "float4": "float4", "float8": "float8", "numeric": "numeric"},
    averages=("avg",),
    deviations=DEVIATIONS,
    bool_calls=("bool_and", "bool_or", "every"),
    count_only=("uuid", "bytea"),
    over_aggregates=(
        "{a} + {b}", "coalesce({a}, 0)", "{a} / nullif({b}, 0)", "{a} * 2", "case when {a} > {b} then 1 else 0 end", "round({a}::numeric / 7, 3)",
    ),
    windows=(
        "sum({number})", "rank() over (order by count({number}))", "sum(sum({number})) over (order by {key})", "sum(count(*)) over ()",
        "max(sum({number})) over (partition by count(*))", "lag(count(*)) over (order by {key})",
    ),
    null_share=0.01,
    depth=2,
)
