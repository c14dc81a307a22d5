"""Headrace against DuckDB: subqueries that look at the outer row.

Subqueries of one value (aggregates, first rows of an order, single rows), EXISTS and IN stand in conditions, among outputs,
in groups, aggregates and orders, and as LATERAL tables; what they look for is found by equalities, by inequalities, by both
and by neither, below joins, unions, windows, DISTINCT, GROUP BY and LIMIT. All orders that decide which rows come out are
total, by a key at their end. `i` is the inner row, `o` the outer one.
"""

import random

from lib.queries.dialect import Column, Table
from lib.queries.grammar import Grammar


def column(name: str, values: int, nulls: float) -> Column:
    return Column(name, "int", lambda r, rows: r.randrange(values), "int64", nulls)


COLUMNS = (Column("id", "int", None, "int64"), column("k", 6, 0.1), column("g", 3, 0), column("x", 12, 0.2), column("y", 40, 0.1))
# Integers with NULLs; `id` is a key.
TABLES = tuple(Table(name, rows, COLUMNS) for name, rows in {"o": 14, "t": 20, "u": 9}.items())

LATERAL = "(select {l}.x, {l}.y {rows l o}"
PRODUCTIONS = {
    "column r": ("{r}.k", "{r}.g", "{r}.x", "{r}.y"),
    # An order that leaves no ties.
    "ordered r": ("{r}.y, {r}.id, {r}.k, {r}.g, {r}.x",),
    "plain i o": (
        "{column i} = {column o}", "{i}.k = {o}.k", "{i}.k = {o}.k and {column i} {<|<>|>=} {column o}", "{i}.k = {o}.k and {i}.g = {o}.g",
        "{column i} {<|>|<>} {column o}", "{i}.k + 1 = {o}.k", "{i}.x is not distinct from {o}.x", "({i}.k = {o}.k or {o}.x is null)",
        "{i}.y > {0..29} and {i}.g = {o}.g", "{i}.id = {o}.id", "{o}.g = 1", "{i}.x > 3",
    ),
    # Of a subquery within the subquery.
    "deeper i o": (
        "{i}.y >= (select min({n}.y) from u {n} where {n}.g = {i}.g and {n}.k <> {o}.k)",
        "{i}.x <= (select max({n}.x) from u {n} where {n}.x <> {o}.y)",
        "{|not }exists (select 1 from u {n} where {n}.g = {i}.g and {n}.x > {o}.x)",
        "{i}.g {|not }in (select {n}.g from t {n} where {n}.k = {o}.k)",
        "{i}.y > (select {n}.y from u {n} where {n}.id = {i}.id) and {i}.k = {o}.k",
    ),
    "asks i o": (*["{plain i o}"] * 6, "{deeper i o}"),
    "joined i o": (
        *["from {t|t|u} {i} {join|left join} u {n} on {n}.g = {i}.g where {asks i o}"] * 3,
        *["from {t|t|u} {i} {join|left join} u {n} on {n}.g = {i}.g and {plain n o} where {asks i o}"] * 2,
    ),
    # FROM and WHERE of a subquery whose rows are called i.
    "rows i o": (
        *["from {t|t|u} {i} where {asks i o}"] * 3, "{joined i o}",
        "from (select * from t {n} where {asks n o} union all select * from u where u.g = {o}.g) {i}",
        "from (select distinct k, g, x, y, 0 as id from {t|t|u} {n} where {asks n o}) {i}",
        "from (select * from {t|t|u} {n} where {asks n o} order by {n}.y, {n}.id limit 2) {i}",
    ),
    "call i": ("sum({column i})", "count(*)", "max({column i})", "min({column i})", "count({column i})"),
    # A subquery of one value, a number.
    "value o": (
        "(select {call i} {rows i o})", "(select {call i} + {column o} {rows i o})", "(select {column i} {rows i o} order by {ordered i} limit 1)",
        "(select {i}.x {rows i o} order by {i}.x desc nulls last, {ordered i} limit 1)", "(select {column i} {rows i o} order by {ordered i} limit 1 offset 1)",
        "(select max({column i}) {rows i o} having count(*) > 2)", "(select {i}.x from {t|u} {i} where {i}.id = {column o})", "(select {column i} {rows i o})",
        "(select {i}.g {rows i o} group by {i}.g order by count(*) desc, {i}.g limit 1)",
        "(select sum(c) from (select {i}.g, count(*) as c {rows i o} group by {i}.g) q)",
        "(select max(n) from (select row_number() over (order by {ordered i}) as n {rows i o}) q)",
    ),
    "compared": ("{=|<>|<|>=} {any|all}",),
    "one i": ("count(*)", "max({i}.x)", "sum({i}.g)"),
    "row o": ("(coalesce({o}.k, 0), {o}.g)",),
    "found o": (
        # An aggregate without groups has a row, whatever was found.
        "{|not }exists (select {one i} {rows i o})", "{column o} {|not }in (select {one i} {rows i o})",
        "{column o} {compared} (select {one i} {rows i o})", "{column o} {compared} (select {column i} {rows i o})",
        # The outer query's own table, under its own name.
        "{column o} {|not }in (select o.{k|g|x|y} from o where o.x > 3)", "{column o} {compared} (select o.y from o where o.g = 1)",
        "({column o} {|not }in (select o.k from o where o.g < 2)) is not true", "{row o} {|not }in (select coalesce({i}.x, 0), {i}.g from t {i})",
        "{row o} {=|<|>=|<>} ({0..5}, {0..2})", "{|not }exists (select 1 {rows i o})", "{column o} {|not }in (select {column i} {rows i o})",
        "{column o} {|not }in (select {i}.x from t {i})",
    ),
    # Windows that inherit from others.
    "window": (
        "select o.id, {sum(o.x)|count(*)|max(o.y)} over (w order by {o.y, o.id|o.id}) as v from o window w as (partition by o.g)",
        "select o.id, {sum(o.x)|count(*)|max(o.y)} over w2 as v from o window w as (partition by o.g), w2 as (w order by {o.y, o.id|o.id})",
        "select o.id, {sum(o.x)|count(*)|max(o.y)} over (w) as v from o window w as (partition by o.k)",
    ),
    "query o q": (
        *["select o.id, {value o} as v from o"] * 2, "{window}", "select o.id, {found o} as v from o",
        "select o.id, case when {found o} then {value o} else -1 end as v from o", "select o.id from o where {column o} {<|>=|=} {value o}",
        "select o.id from o where o.g = 1 or coalesce({value o}, 0) > 5", "select o.id from o where {found o} or o.x > 5",
        "select o.id from o where {found o}", "select o.id, l.n, l.s from o, lateral (select count(*) as n, sum({column l}) as s {rows l o}) l",
        f"select o.id, l.* from o {{join|left join}} lateral {LATERAL}) l on {{true|l.x > o.g}}",
        "select o.g, sum({value o}) as v from o group by o.g", "select {value o} as v, count(*) from o group by 1",
        "select o.id from o order by {value o}, o.id limit 5", "select o.id, q.g from o join u q on o.k = q.k where {value q} > o.x",
        f"select o.id, l.x, l.y from o, lateral {LATERAL} order by {{ordered l}} limit 2) l",
        f"select o.id, l.x, l.y from o left join lateral {LATERAL} order by {{ordered l}} limit 2) l on true",
    ),
}


def queries(seed: int):
    """Without end."""
    grammar = Grammar(random.Random(seed), PRODUCTIONS)
    while True:
        yield grammar.made("query", "o", "q")
