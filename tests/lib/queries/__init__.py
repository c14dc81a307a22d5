"""Random queries: typed expressions, queries and tables from a seed.

    grammar.py     texts from templates
    terms.py       expressions and conditions of a kind, over the columns in scope
    select.py      a query as lists, and how it is made smaller
    generator.py   relations, joins, subqueries, aggregates, whole queries
    dialect.py     what a dialect says: kinds, how constants are spelt, which forms, tables and shapes there are
    headrace.py    Headrace on its cores or a GPU against Headrace without pipelines
    postgres.py    PostgreSQL with the extension against PostgreSQL without
    correlated.py  Headrace against DuckDB: subqueries that look at the outer row
    arrow.py       tables in Arrow files;  server.py  tables in a PostgreSQL server

SQL leaves only one answer to each query. What would leave several is not made: sums of floats that depend on the order of
rows, and groups, ties or extremes among values that are equal and yet written differently (1.0 and 1.00). At most one
operator of a query may fail, since SQL leaves the order of evaluation open.

`tests/sql/constructs` fails when a dialect no longer makes a construct that it made before.
"""
