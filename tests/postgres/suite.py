"""Compares what PostgreSQL's regression suite printed without the extension and with it, plans aside.

    suite.py OFF ON

Left out: plans, and what tells of them. Exit 1 if anything else differs, or if no plan has the node.
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


def answers(path: pathlib.Path) -> list:
    """The lines of an output without plans."""
    kept, in_plan = [], False
    for line in path.read_text(errors="replace").split("\n"):
        if re.fullmatch(r" *QUERY PLAN *", line):
            in_plan = True
        elif in_plan:
            in_plan = not re.fullmatch(r"\(\d+ rows?\)", line)
        else:
            kept.append(" ".join(ZEROS.sub("0", line).split()))
    return kept


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
