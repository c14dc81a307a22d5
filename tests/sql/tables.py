"""Tables for random queries: many NULLs, few frequent values, record batches of odd sizes, an empty table."""

import datetime
import decimal
import pathlib
import random

WORDS = ["", "a", "ab", "abc", "b", "Berlin", "zebra", "öl", "a%b", "x_y", "Ab", "null"]
# Longer than what a group's key on a GPU holds, and equal but for their ends.
TAILS = [f" with a tail of which nobody can tell the end before all of it is read: {end}" for end in ("x", "y", "yy", "é")]
DAY = datetime.date(2020, 1, 1)
MOMENT = datetime.datetime(2020, 1, 1)


def skewed(r: random.Random, rows: int) -> int:
    """Many of them are one of five, but not so many that joins of them have no end."""
    frequent = 0.5 if rows < 10_000 else 0.02
    return r.randint(0, 4) if r.random() < frequent else r.randint(0, max(rows // 3, 10))


# Name: kind, how a value is made. Floats are quarters: sums of them are the same in any order.
COLUMNS = {
    "k": ("int", skewed),
    "i": ("int", lambda r, rows: r.randint(-50, 50)),
    "s": ("int", lambda r, rows: r.randint(-5, 5)),
    "l": ("int", lambda r, rows: r.choice([r.randint(-(10**12), 10**12), r.randint(0, 9)])),
    "d": ("decimal", lambda r, rows: decimal.Decimal(r.choice([r.randint(-999, 999), r.randint(-(10**8), 10**8)])).scaleb(-2)),
    "e": ("decimal", lambda r, rows: decimal.Decimal(r.randint(-9999, 9999)).scaleb(-4)),
    "f": ("float", lambda r, rows: r.randint(-4000, 4000) / 4),
    "t": ("text", lambda r, rows: r.choice(WORDS) + r.choice(["", "", str(r.randint(0, 30)), r.choice(TAILS)])),
    "c": ("text", lambda r, rows: r.choice(WORDS)),
    "b": ("bool", lambda r, rows: r.random() < 0.3),
    "day": ("date", lambda r, rows: DAY + datetime.timedelta(days=r.randint(-400, 400))),
    "at": ("timestamp", lambda r, rows: MOMENT + datetime.timedelta(seconds=r.randint(-(10**7), 10**7))),
}

# Rows, share of NULLs, columns beside `id`.
TABLES = {
    "t1": (2000, 0.1, list(COLUMNS)),
    "t2": (600, 0.3, ["k", "i", "d", "f", "t", "c", "day", "b"]),
    "t3": (120, 0.05, ["k", "s", "e", "c", "at"]),
    "t4": (0, 0.0, ["k", "i", "t"]),
    "big": (120_000, 0.02, ["k", "l", "d", "t"]),
}

# The largest share of rows with one value, about, of columns in which few values are frequent; of others, one in a thousand.
FREQUENT = {"id": 0.001, "k": 0.1, "i": 0.01, "s": 0.1, "l": 0.05, "d": 0.001, "e": 0.001, "f": 0.001, "t": 0.05, "c": 0.09, "day": 0.002, "at": 0.001}


def kind(column: str) -> str:
    """The kind of a column."""
    return "int" if column == "id" else COLUMNS[column][0]


def table(name: str, seed: int, without_last: bool):
    """A table; the same for a seed."""
    # Whoever only asks for names of columns may lack it.
    import pyarrow as pa

    types = {
        "id": pa.int32(), "k": pa.int64(), "i": pa.int32(), "s": pa.int16(), "l": pa.int64(), "d": pa.decimal128(15, 2), "e": pa.decimal128(9, 4),
        "f": pa.float64(), "t": pa.utf8(), "c": pa.utf8(), "b": pa.bool_(), "day": pa.date32(), "at": pa.timestamp("us"),
    }
    rows, nulls, columns = TABLES[name]
    r = random.Random(f"{seed} {name}")
    # Large tables repeat values: to make each takes long.
    distinct = min(rows, 20_000)
    arrays = {"id": pa.array(range(rows), pa.int32())}
    for column in columns:
        make = COLUMNS[column][1]
        some = [None if r.random() < nulls else make(r, rows) for _ in range(distinct)]
        values = some if rows <= distinct else [some[(row * 7919 + row // distinct) % distinct] for row in range(rows)]
        arrays[column] = pa.array(values, types[column])
    whole = pa.table(arrays)
    if without_last:
        whole = whole.slice(0, max(rows - 1, 0))
    if "c" in columns:
        codes = whole.column("c").combine_chunks().dictionary_encode()
        codes = codes if isinstance(codes, pa.DictionaryArray) else codes.chunk(0)
        whole = whole.set_column(whole.schema.get_field_index("c"), "c", codes)
    return whole


def write(folder: pathlib.Path, seed: int, without_last: bool = False) -> None:
    """All tables as Arrow files of odd batches, `t1` as a folder of two."""
    import pyarrow as pa

    folder.mkdir(parents=True, exist_ok=True)
    for name, (rows, _, _) in TABLES.items():
        r = random.Random(f"batches {seed} {name}")
        whole = table(name, seed, without_last)
        halves = [whole]
        if name == "t1":
            (folder / name).mkdir(exist_ok=True)
            halves = [whole.slice(0, rows // 3), whole.slice(rows // 3)]
        for part, half in enumerate(halves):
            path = folder / name / f"{part}.arrow" if name == "t1" else folder / f"{name}.arrow"
            with pa.ipc.new_file(path, half.schema) as file:
                start = 0
                while start < half.num_rows:
                    size = r.choice([1, 7, 64, 65, 1000, 4096, 100_000])
                    size = min(size if name != "big" else max(size, 20_000), half.num_rows - start)
                    for batch in half.slice(start, size).combine_chunks().to_batches():
                        file.write(batch)
                    start += size
