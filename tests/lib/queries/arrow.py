"""Tables in Arrow files: many NULLs, few frequent values, record batches of odd sizes, an empty table."""

import pathlib
import random

from lib.queries.dialect import Table


def array(table: Table, column, r: random.Random):
    # A machine that was given its tables has no pyarrow.
    import pyarrow as pa

    decimal = column.type.startswith("decimal")
    kind = pa.decimal128(*map(int, column.type[8:-1].split(","))) if decimal else pa.type_for_alias(column.type)
    nulls = table.nulls if column.nulls is None else column.nulls
    # Large tables repeat values: to make each takes long.
    distinct = min(table.rows, 20_000)
    some = [None if r.random() < nulls else column.value(r, table.rows) for _ in range(distinct)]
    values = some if table.rows <= distinct else [some[(row * 7919 + row // distinct) % distinct] for row in range(table.rows)]
    return pa.array(values, kind)


def made(table: Table, seed: int, without_last: bool = False):
    """A table, the same for a seed; the texts of column `c` are a dictionary."""
    import pyarrow as pa

    r = random.Random(f"{seed} {table.name}")
    arrays = {}
    for column in table.columns:
        if column.name == "id":
            arrays["id"] = pa.array(range(table.rows), column.type)
        else:
            arrays[column.name] = array(table, column, r)
    whole = pa.table(arrays)
    if without_last:
        whole = whole.slice(0, max(table.rows - 1, 0))
    if "c" in arrays:
        codes = whole.column("c").combine_chunks().dictionary_encode()
        codes = codes if isinstance(codes, pa.DictionaryArray) else codes.chunk(0)
        whole = whole.set_column(whole.schema.get_field_index("c"), "c", codes)
    return whole


def write(folder: pathlib.Path, tables: tuple, seed: int, without_last: bool = False) -> None:
    """All tables as Arrow files of odd batches, the first as a folder of two."""
    import pyarrow as pa

    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        r = random.Random(f"batches {seed} {table.name}")
        whole = made(table, seed, without_last)
        paths, halves = [folder / f"{table.name}.arrow"], [whole]
        if table is tables[0]:
            (folder / table.name).mkdir(exist_ok=True)
            paths = [folder / table.name / f"{part}.arrow" for part in range(2)]
            halves = [whole.slice(0, table.rows // 3), whole.slice(table.rows // 3)]
        for path, half in zip(paths, halves, strict=True):
            with pa.ipc.new_file(path, half.schema) as file:
                start = 0
                while start < half.num_rows:
                    size = r.choice([1, 7, 64, 65, 1000, 4096, 100_000])
                    size = min(max(size, table.rows // 6) if table.rows > 100_000 else size, half.num_rows - start)
                    for batch in half.slice(start, size).combine_chunks().to_batches():
                        file.write(batch)
                    start += size
