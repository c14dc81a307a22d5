"""Tables in a PostgreSQL server: every type, several sizes, keys and states of vacuuming.

All tables have the same columns, so that any expression goes with any of them. Columns are of two sorts:
tame ones, whose sums no order of rows can change and whose products stay in range, and wild ones (a name
that ends in x) with the extremes of their types.
"""

from lib.queries.dialect import Column, Table


def column(name: str, type_: str, kind: str, value: str, nulls: float = 0.1, **more) -> Column:
    return Column(name, kind, value, type_, nulls, **more)


def _one_of(*values: str) -> str:
    return f"(array[{', '.join(values)}])[1 + floor(random() * {len(values)})::int4]"


def _integers(name: str, bits: int) -> Column:
    top = (1 << (bits - 1)) - 1
    value = _one_of(str(top), f"-{top} - 1", "0", "1", "-1", str(top // 2), str(-(top // 3)))
    return column(name, f"int{bits // 8}", f"int{bits // 8}", f"{value}::int{bits // 8}", wild=True)


INSTANTS = "'{0}'::{1}, '-infinity', 'infinity', '2000-01-01', '1970-01-01', '1999-12-31', '2024-02-29', '0044-03-15 BC'"
COLUMNS = (
    column("id", "int8", "int8", "i", nulls=0, top=200000, share=0.0001),
    column("k", "int4", "int4", "floor(random() * 200)", top=200, share=0.005),
    column("k2", "int8", "int8", "floor(random() ^ 3 * 1000)", nulls=0.02, top=1000, share=0.02),
    column("kt", "text", "text", "'key ' || floor(random() * 150)", nulls=0.05, share=0.007),
    column("b", "bool", "bool", "random() < 0.4"),
    column("i2", "int2", "int2", "floor(random() * 201) - 100", top=100),
    column("i4", "int4", "int4", "floor(random() * 20001) - 10000", top=10001),
    column("i8", "int8", "int8", "floor(random() * 2000001) - 1000000", nulls=0, top=1000010),
    _integers("i2x", 16),
    _integers("i4x", 32),
    _integers("i8x", 64),
    column("f4", "float4", "float4", "(floor(random() * 801) - 400) / 4.0"),
    column("f8", "float8", "float8", "(floor(random() * 32001) - 16000) / 16.0"),
    column("f4x", "float4", "float4", _one_of("'nan'", "'infinity'", "'-infinity'", "'-0'", "'0'", "3.4028235e38", "1e-45", "0.1") + "::float4", wild=True),
    column("f8x", "float8", "float8", _one_of("'nan'", "'infinity'", "'-infinity'", "'-0'", "'0'", "1.7976931348623157e308", "5e-324", "0.1") + "::float8", wild=True),
    column("n", "numeric(12, 2)", "numeric", "floor(random() * 2e8 - 1e8) / 100", scale=2),
    column("m", "numeric(5, 1)", "numeric", "floor(random() * 200 - 100) / 10", nulls=0, scale=1),
    column("big", "numeric(38, 10)", "numeric", "floor(random() * 1e15)::numeric * 1e12 + random()::numeric", scale=10),
    column("free", "numeric", "numeric", "trim_scale(round((random() * 1000)::numeric, floor(random() * 8)::int4))"),
    column("freex", "numeric", "numeric", _one_of("'nan'", "'infinity'", "'-infinity'", "1e-200", "1e200", "123456789012345678901234567890.5", "0") + "::numeric", wild=True),
    column("d", "date", "date", "date '1992-01-01' + floor(random() * 2500)::int4"),
    column("dx", "date", "date", _one_of(INSTANTS.format("5874897-12-31", "date")), wild=True),
    column("ti", "time", "time", _one_of("time '24:00'", "'00:00'", "'23:59:59.999999'", "'12:34:56'", "time '00:00' + random() * interval '86399 s'")),
    column("ts", "timestamp", "timestamp", "timestamp '1995-01-01' + floor(random() * 1e5) * interval '37 min 0.25 s'"),
    column("tsx", "timestamp", "timestamp", _one_of(INSTANTS.format("294276-12-31 23:59:59.999999", "timestamp")), wild=True),
    column("tz", "timestamptz", "timestamptz", "timestamptz '2020-01-01 00:00+00' + floor(random() * 20000) * interval '1 h'"),
    column("t", "text", "text", "repeat('ab' || floor(random() * 40), floor(random() * 4)::int4) || " + _one_of("''", "' '", "'ü€'", "'%_'", "'X'")),
    column("v", "varchar(20)", "text", "'v' || floor(random() ^ 2 * 300)"),
    column("c", "char(7)", "text", "'c' || floor(random() * 60)", padded=True),
    column("long", "text", "text", "case when random() < 0.02 then repeat(md5((i % 20)::text), 100) when random() < 0.1 then repeat('l' || i % 9, 900) else 'l' || i % 9 end"),
    column("u", "uuid", "uuid", "md5((i % 50)::text)::uuid", share=0.02),
    column("ux", "uuid", "uuid", _one_of("repeat('0', 32)", "repeat('f', 32)", "repeat('0', 31) || '1'", "'7' || repeat('f', 31)", "'8' || repeat('0', 31)", "md5(i::text)") + "::uuid", wild=True),
    column("uk", "uuid", "uuid", "md5((i * 7)::text)::uuid", nulls=0.02, share=0.0004),
    column("e", "data.label", "data.label", "(enum_range(null::data.label))[1 + floor(random() ^ 2 * 5)]"),
    column("a", "data.amount", "numeric", "floor(random() * 2e5) / 100", scale=2),
    column("j", "jsonb", "jsonb", "case when random() < 0.03 then (array['[1]', '5', 'null', '{}', '{\"s\": {\"in\": 1}}']::jsonb[])[1 + floor(random() * 5)::int4] when random() < 0.02 then jsonb_build_object('s', repeat(md5((i % 20)::text), 100), 'n', 1) else jsonb_build_object('s', 'v' || floor(random() * 30), 'n', floor(random() * 40) / 4, 'b', random() < 0.5, 'z', null, 'o', jsonb_build_object('in', floor(random() * 9)), 'long key', 'l' || i % 9) end"),
    column("y", "bytea", "bytea", _one_of("''", r"'\x00'", r"'\xff'", r"'\x00ff'") + "::bytea"),
)

SIZES = {"empty": 0, "one": 1, "tiny": 30, "small": 400, "never": 1500, "mid": 3000, "half": 3000, "fresh": 5000, "altered": 2000, "parts": 4000, "big": 15000}
WEIGHTS = (1, 1, 2, 6, 4, 5, 5, 4, 4, 6, 6)
TABLES = tuple(Table(name, rows, COLUMNS, weight) for (name, rows), weight in zip(SIZES.items(), WEIGHTS, strict=True))


def create(connection, schema: str, seed: float) -> None:
    """Makes the tables in a schema; the same seed gives the same rows."""
    # Kinds name their types, so these two are of one schema.
    connection.query("create schema if not exists data; create type data.label as enum ('one', 'two', 'four', 'five'); create domain data.amount as numeric(12, 2)")
    connection.query("alter type data.label add value 'three' before 'four'")
    connection.query(f"create schema if not exists {schema}; set search_path = {schema}; select setseed({seed})")
    columns = ", ".join(f"{c.name} {c.type}" for c in COLUMNS)
    values = ", ".join(c.value if c.nulls == 0 else f"case when random() >= {c.nulls} then {c.value} end" for c in COLUMNS)
    for name, rows in SIZES.items():
        if name == "parts":
            create_parts(connection, columns)
        else:
            connection.query(f"create table {name} ({columns}) with (autovacuum_enabled = off)")
        if name == "altered":
            connection.query("alter table altered drop v, drop u, drop i4, add gone int8 default 5")
            present = [c for c in COLUMNS if c.name not in ("v", "u", "i4")]
            kept = ", ".join(c.name for c in present)
            some = ", ".join(c.value for c in present)
            connection.query(f"insert into altered ({kept}) select {some} from generate_series(1, {rows // 2}) i")
            connection.query(
                "alter table altered drop gone, add v varchar(20) default 'v7', add u uuid default md5('3')::uuid, add i4 int4 default -5"
            )
            kept, values_here, first = f"{kept}, v", f"{some}, 'v' || i % 9", rows // 2 + 1
        else:
            kept, values_here, first = ", ".join(c.name for c in COLUMNS), values, 1
        connection.query(f"insert into {name} ({kept}) select {values_here} from generate_series({first}, {rows}) i")
        if name != "never":
            connection.query(f"vacuum (freeze, analyze) {name}")
    # Only the first half's blocks stay all-visible; and changes everywhere, of which some are vacuumed.
    for statement in (
        "update half set i8 = i8 + 1, t = t || '!' where id > 1500",
        "delete from fresh where id % 100 = 3",
        "vacuum fresh",
        "update fresh set i4 = -i4, n = n + 1 where id % 50 = 7",
        "begin; delete from fresh where id % 3 = 0; insert into half select * from tiny; rollback",
        "delete from altered where id % 10 = 3",
        "vacuum altered",
        "update parts_1 set i8 = i8 - 1 where id % 40 = 1",
        "delete from parts where id % 90 = 5",
        "vacuum parts_rest_0",
    ):
        connection.query(statement)


def create_parts(connection, columns: str) -> None:
    """A partitioned table: one part with its columns in another order behind a dropped one, one of parts itself."""
    turned = ", ".join(f"{c.name} {c.type}" for c in reversed(COLUMNS))
    connection.query(f"create table parts ({columns}) partition by range (id)")
    connection.query("create table parts_0 partition of parts for values from (minvalue) to (1000)")
    connection.query(f"create table parts_1 (gone text, {turned}); alter table parts_1 drop gone")
    connection.query("alter table parts attach partition parts_1 for values from (1000) to (2500)")
    connection.query("create table parts_rest partition of parts default partition by hash (k)")
    for part in range(2):
        connection.query(f"create table parts_rest_{part} partition of parts_rest for values with (modulus 2, remainder {part})")


def copy(connection, schema: str) -> None:
    """The same rows in another order, in a schema of their own: every answer must be the same there."""
    connection.query(f"create schema {schema}")
    for name in SIZES:
        connection.query(f"create table {schema}.{name} (like data.{name} including defaults)")
        connection.query(f"insert into {schema}.{name} select * from data.{name} order by md5(id::text || ctid::text)")
        connection.query(f"vacuum analyze {schema}.{name}")


def mutate(connection, schema: str) -> None:
    """One row of each table is gone, another has one value changed: what a comparison has to notice."""
    for name in SIZES:
        first, last = (f"(select {which}(id) from {schema}.{name})" for which in ("min", "max"))
        connection.query(f"delete from {schema}.{name} where id = {first}")
        connection.query(f"update {schema}.{name} set i8 = i8 + 1, f8 = f8 + 0.0625 where id = {last}")
