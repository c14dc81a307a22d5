"""Whether two answers of a PostgreSQL server are the same: rows as multisets, byte for byte, floats within a relative tolerance."""

import math

TOLERANCES = {700: 1e-5, 701: 1e-9}


def _close(one: bytes | None, two: bytes | None, tolerance: float) -> bool:
    if one == two or one is None or two is None:
        return one == two
    left, right = float(one), float(two)
    if math.isnan(left) or math.isnan(right) or math.isinf(left) or math.isinf(right):
        return left == right or (math.isnan(left) and math.isnan(right))
    return math.isclose(left, right, rel_tol=tolerance)


def _sort_key(row: tuple, floats: list) -> tuple:
    """Floats last and by value: their last digits must not change which rows meet."""
    exact = tuple((v is None, v or b"") for i, v in enumerate(row) if i not in floats)
    loose = tuple((v is None, v == b"NaN", 0.0 if v is None or v == b"NaN" else float(v)) for v in (row[i] for i in floats))
    return exact, loose


def difference(one, two) -> str | None:
    """What distinguishes two results (wire.Result), or None."""
    if one.types != two.types or one.names != two.names:
        return f"columns {one.names} {one.types} and {two.names} {two.types}"
    if len(one.rows) != len(two.rows):
        return f"{len(one.rows)} rows and {len(two.rows)}"
    if one.rows == two.rows:
        return None
    floats = [i for i, oid in enumerate(one.types) if oid in TOLERANCES]
    left = sorted(one.rows, key=lambda row: _sort_key(row, floats))
    right = sorted(two.rows, key=lambda row: _sort_key(row, floats))
    for number, (a, b) in enumerate(zip(left, right)):
        for i, oid in enumerate(one.types):
            if not _close(a[i], b[i], TOLERANCES[oid]) if oid in TOLERANCES else a[i] != b[i]:
                return f"row {number} of the sorted answers, column {i + 1}: {shown(a)} and {shown(b)}"
    return None


def shown(row: tuple) -> str:
    """A row for people."""
    return "(" + ", ".join("NULL" if v is None else v[:60].decode(errors="replace") for v in row) + ")"
