"""Compares what PostgreSQL's regression suite printed without the extension and with it, plans aside.

    suite.py OFF ON

Left out: plans, what tells of them, and the order of groups that no query asked for. Exit 1 if anything else differs, or if no plan has the node.
"""

import difflib
import pathlib
import re
import sys

# Tests that show numbers of batches, buckets or workers of PostgreSQL's own plans.
OF_PLANS = {
    "join_hash": "counts the batches of hash joins",
    "memoize": "shows plans through functions",
    "partition_prune": "shows plans through functions",
    "select_parallel": "shows plans through functions",
    "stats": "counts index scans",
}
# float min and max: which of 0 and -0 comes out depends on the order of rows.
ZEROS = re.compile(r"-0(?![\d.])")
UNORDERED = re.compile(r"\bgroup\s+by\b", re.IGNORECASE)
ORDERED = re.compile(r"\b(order\s+by|fetch|move|execute)\b", re.IGNORECASE)


def answers(path: pathlib.Path) -> list:
    """The lines of an output without plans; groups that come in no order that the query names are sorted."""
    kept, echo, rows, in_plan, before = [], "", None, False, ""
    for line in path.read_text(errors="replace").split("\n"):
        end = re.fullmatch(r"\(\d+ rows?\)", line)
        if re.fullmatch(r" *QUERY PLAN *", line):
            in_plan = True
        elif in_plan:
            in_plan = not end
        elif rows is not None and end:
            kept += (sorted(rows) if UNORDERED.search(echo) and not ORDERED.search(echo) else rows) + [line]
            rows, echo = None, ""
        else:
            (kept if rows is None else rows).append(" ".join(ZEROS.sub("0", line).split()))
            if rows is None:
                echo += line + " "
                # Below the names of columns, which begin with a blank; others are comments.
                if re.fullmatch(r"-+(\+-+)*", line) and before.startswith(" "):
                    rows = []
        before = line
    return kept + (rows or [])


def main() -> int:
    off, on = map(pathlib.Path, sys.argv[1:])
    differing, nodes, compared = 0, 0, 0
    for path in sorted(on.glob("*.out")):
        nodes += path.read_text(errors="replace").count("Custom Scan (Headrace)")
        if path.stem in OF_PLANS:
            continue
        compared += 1
        lines = list(difflib.unified_diff(answers(off / path.name), answers(path), "off", path.stem, lineterm="", n=2))
        if lines:
            differing += 1
            print("\n".join(lines[:60]))
    print(f"suite: {compared} files compared, {differing} differ, {nodes} plans with Headrace shown in all")
    if nodes == 0:
        print("error: no plan has the node: the extension was not there")
    return 1 if differing or nodes == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
