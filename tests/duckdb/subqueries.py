"""Random queries whose subqueries look at the outer row (lib/queries/correlated.py), in DuckDB and in Headrace.

    subqueries.py --headrace PATH [--queries 300] [--seed 1] [--processor cpu] [--allow-refused 0.05] [--mutate]

The rows must be the same, NULLs included; where DuckDB finds more than one row for one value, Headrace must say so. Of what
Headrace does not offer there may be a share. --mutate gives Headrace tables that lack a row: then it must fail.
"""

import argparse
import itertools
import pathlib
import sys
import tempfile

import duckdb

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lib import program  # noqa: E402
from lib.queries import arrow, correlated  # noqa: E402

# What Headrace says where a subquery of one value has several rows: of one that looks at the outer row, and of one that does not.
SEVERAL = ("a subquery of one value found", "Scalar subquery returned more than one row")
REFUSED = ("is not offered", "does not support logical expression", "reads the outer rows twice")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headrace", required=True)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processor", default="cpu")
    parser.add_argument("--allow-refused", type=float, default=0.05, metavar="SHARE")
    parser.add_argument("--mutate", action="store_true")
    arguments = parser.parse_args()

    database = duckdb.connect()
    wrong = refused = errors = 0
    with tempfile.TemporaryDirectory() as folder:
        arrow.write(pathlib.Path(folder), correlated.TABLES, arguments.seed, arguments.mutate)
        for table in correlated.TABLES:
            database.register(table.name, arrow.made(table, arguments.seed))
        for query in itertools.islice(correlated.queries(arguments.seed), arguments.queries):
            try:
                expected = sorted(database.execute(query).fetchall(), key=repr)
            except duckdb.InvalidInputException as error:
                assert "More than one row" in str(error), f"{query}\n{error}"
                expected = None
            ran = program.ask(arguments.headrace, query, "--data", folder, "--processor", arguments.processor)
            said, answers = ran.stderr.decode().strip(), program.answers(ran.stdout.decode())
            found = sorted(answers[0], key=repr) if answers else None
            if ran.returncode == 0 and expected is not None and found == expected:
                continue
            if expected is None and any(text in said for text in SEVERAL):
                errors += 1
                continue
            # DuckDB also looks for what CASE and OR do not ask for.
            if expected is None and ran.returncode == 0 and ("case when" in query or " or " in query):
                continue
            if ran.returncode != 0 and any(text in said for text in REFUSED):
                refused += 1
                print(f"refused: {query}\n  {said.splitlines()[0]}")
                continue
            wrong += 1
            print(f"differs: {query}\n  DuckDB:   {expected}\n  Headrace: {said if ran.returncode else found}")
    share = refused / arguments.queries
    print(f"{arguments.queries} queries, {errors} of them errors on both sides, {refused} refused, {wrong} wrong")
    if errors == 0:
        print("error: no query found two rows for one value", file=sys.stderr)
        return 1
    return 1 if wrong or share > arguments.allow_refused else 0


if __name__ == "__main__":
    sys.exit(main())
