//! Canaries: the smallest statement that shows each fault of DataFusion which `src/fixes/` works around, run by plain
//! DataFusion without our rules, functions or parsers. Each canary expects the faulty answer. A canary that gets another
//! answer shows that upstream has mended the fault: the file of its name can go.

mod batches;
mod plain;
mod times;
mod trees;

use plain::{
    Plain,
    Still::{Error, Panic, Rows},
};

/// Files that have no canary, and why.
const WITHOUT: [(&str, &str); 4] = [
    ("deep_expressions", "a stack that overflows ends the process"),
    ("long_groups", "is a part of long_lists"),
    ("whole_rows", "is what stars and long_lists share"),
    ("mod", "is the table"),
];

/// One test a file: what plain DataFusion still answers.
macro_rules! canaries {
    ($($file:ident: $plain:expr, [$($setup:expr),*], [$($sql:expr => $still:expr),+ $(,)?];)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $file() {
                let plain = $plain;
                $(plain.run($setup).await;)*
                $(plain.still(stringify!($file), $sql, &$still).await;)+
            }
        )+

        const FILES: &[&str] = &[$(stringify!($file)),+];
    };
}

canaries! {
    array_agg_views: Plain::of(1).memory(2_000_000), [], [
        "SELECT cardinality(array_agg(s)) FROM (SELECT arrow_cast(repeat('x', 100000 + CAST(value AS INT)), 'Utf8View') AS s \
         FROM generate_series(1, 100)) AS q" => Rows(&["100"]),
    ];
    cast_names: Plain::of(1), [], [
        "SELECT max(x), max(CAST(x AS TEXT)) FROM (VALUES (1)) AS t(x)" => Error("require unique expression names"),
    ];
    columnless_values: Plain::of(1), [], [
        "SELECT (SELECT FROM (VALUES (1)) AS t(x))" => Panic("index out of bounds"),
    ];
    computed_nans: Plain::of(1), [], [
        "SELECT CAST('inf' AS DOUBLE) - x = CAST('nan' AS DOUBLE) FROM (VALUES (CAST('inf' AS DOUBLE))) AS t(x)"
            => Rows(&["false"]),
    ];
    constant_groups: Plain::of(1), [], [
        "SELECT count(*) FROM (VALUES (1.5)) AS t(x) GROUP BY x, CAST(x AS INT)"
            => Error("eliminate_group_by_constant"),
    ];
    correlated: Plain::of(1), ["CREATE TABLE t AS SELECT * FROM (VALUES (1, 10), (2, 20)) AS v(a, b)"], [
        "SELECT a, (SELECT count(*) FROM t AS u WHERE u.a < t.a) FROM t" => Error("ScalarSubquery"),
        "SELECT a, (SELECT b FROM t AS u WHERE u.a = t.a) FROM t" => Error("must be aggregated"),
        "SELECT a, EXISTS (SELECT 1 FROM t AS u WHERE u.a = t.a) FROM t" => Error("Exists"),
        "SELECT a, x.b FROM t, LATERAL (SELECT b FROM t AS u WHERE u.a = t.a LIMIT 3) AS x"
            => Error("OuterReferenceColumn"),
    ];
    cross_join_nulls: Plain::of(1), [
        "CREATE TABLE a AS SELECT * FROM (VALUES (1), (NULL)) AS v(x)",
        "CREATE TABLE b AS SELECT * FROM (VALUES (1), (NULL)) AS v(y)",
        "CREATE TABLE c AS SELECT * FROM (VALUES (1), (NULL)) AS v(z)"
    ], [
        "SELECT * FROM a JOIN b ON a.x = b.y JOIN c ON b.y IS NOT DISTINCT FROM c.z ORDER BY x"
            => Rows(&["1 1 1", "NULL NULL NULL"]),
    ];
    decimal_digits: Plain::of(1), [], [
        "SELECT round(x, 0) = CAST(2 AS DECIMAL(5, 2)) FROM (VALUES (CAST(2.345 AS DECIMAL(10, 3)))) AS t(x)"
            => Error("Invalid comparison operation"),
        "SELECT ceil(CAST(99.5 AS DECIMAL(3, 1)))" => Error("overflow while applying ceil"),
    ];
    distinct_sums: Plain::of(1), [], [
        "SELECT sum(x) > max(x), count(DISTINCT y) FROM (VALUES (CAST(1 AS DECIMAL(20, 4)), 1)) AS t(x, y)"
            => Error("Invalid comparison operation"),
    ];
    equijoin_nulls: Plain::of(1), [
        "CREATE TABLE a AS SELECT * FROM (VALUES (1), (NULL)) AS v(x)",
        "CREATE TABLE b AS SELECT * FROM (VALUES (1), (NULL)) AS v(y)"
    ], [
        "SELECT * FROM a JOIN b ON a.x IS NOT DISTINCT FROM b.y WHERE a.x = b.y ORDER BY x" => Rows(&["1 1", "NULL NULL"]),
    ];
    extremes: Plain::of(1), [], [
        "SELECT k, max(x) FROM (VALUES (1, CAST('nan' AS DOUBLE)), (1, 2.0)) AS t(k, x) GROUP BY k" => Rows(&["1 2.0"]),
        "SELECT k, max(x) FROM (VALUES (1, CAST('-inf' AS DOUBLE))) AS t(k, x) GROUP BY k"
            => Rows(&["1 -1.7976931348623157e308"]),
    ];
    false_constants: Plain::of(4), ["CREATE TABLE t AS SELECT value AS id FROM generate_series(1, 4)"], [
        "SELECT x.tag, t.id FROM (SELECT id, 'top' AS tag FROM t WHERE id = 3) AS x RIGHT JOIN t ON t.id = x.id AND t.id > 1 \
         ORDER BY tag, t.id LIMIT 2" => Rows(&["NULL 1", "NULL 2"]),
    ];
    far_dates: Plain::of(1), [], [
        "SELECT DATE '9999-12-31' > arrow_cast('2024-01-01T00:00:00', 'Timestamp(Microsecond, None)')"
            => Error("exceeds the representable i64 range"),
        "SELECT DATE '9999-12-31' UNION ALL SELECT arrow_cast('2024-01-01T00:00:00', 'Timestamp(Microsecond, None)')"
            => Error("exceeds the representable i64 range"),
    ];
    far_moments: Plain::of(1), [], [
        "SELECT date_trunc('month', arrow_cast('9999-12-31T00:00:00', 'Timestamp(Microsecond, None)'))"
            => Error("out of range"),
        "SELECT date_bin(INTERVAL '1 day', arrow_cast('9999-12-31T00:00:00', 'Timestamp(Microsecond, None)'))"
            => Rows(&["NULL"]),
    ];
    filters_by_name: Plain::of(4), [], [
        "WITH x(c, b) AS (VALUES (1, true), (3, false)), y(c, b) AS (VALUES (1, true), (2, true), (3, true), (3, false)) \
         SELECT count(y.b), bool_or(y.b) FROM x RIGHT JOIN y ON x.c = y.c WHERE y.b AND x.b IS NOT true"
            => Rows(&["0 NULL"]),
    ];
    groupings: Plain::of(1), ["CREATE TABLE t AS SELECT * FROM (VALUES (1, 2)) AS v(x, y)"], [
        "SELECT count(*) FROM t GROUP BY ()" => Error("Empty tuple not supported"),
        "SELECT 1 FROM t HAVING true" => Error("must appear in the GROUP BY"),
        "SELECT x FROM t GROUP BY GROUPING SETS (ROLLUP (x, y))" => Error("Invalid function 'rollup'"),
        "SELECT x FROM t GROUP BY ROLLUP ((x, y))" => Error("Tuple expressions are not supported"),
    ];
    guarded_conjunctions: Plain::of(1), [], [
        "SELECT x FROM (VALUES (0), (2), (3), (4), (5), (20)) AS t(x) WHERE x <> 0 AND 10 / x > 1" => Error("Divide by zero"),
    ];
    hidden_tables: Plain::of(1), [], [
        "WITH a AS (SELECT 1 AS x) SELECT (WITH a AS (SELECT 2 AS x) SELECT x FROM a) FROM a"
            => Error("specified more than once"),
    ];
    ignored_clauses: Plain::of(1), ["CREATE TABLE t AS SELECT 1 AS x"], [
        "SELECT x FROM t TABLESAMPLE (0)" => Rows(&["1"]),
        "SELECT x FROM t PREWHERE x > 5" => Rows(&["1"]),
        "SELECT abs(x) FILTER (WHERE false) FROM t" => Rows(&["1"]),
        "SELECT x, count(*) FROM t GROUP BY x WITH ROLLUP" => Rows(&["1 1"]),
    ];
    in_subqueries: Plain::of(1), ["CREATE TABLE s AS SELECT * FROM (VALUES (2), (NULL)) AS v(y)"], [
        "SELECT x FROM (VALUES (1)) AS t(x) WHERE 1 NOT IN (SELECT y FROM s)" => Rows(&["1"]),
        "SELECT x IN (SELECT y FROM s) FROM (VALUES (1)) AS t(x)" => Error("InSubquery"),
    ];
    is_distinct_from: Plain::of(1), [], [
        "SELECT count(*) FROM (VALUES (1)) AS t WHERE true IS DISTINCT FROM true AND false" => Rows(&["1"]),
    ];
    lag_defaults: Plain::of(1), [], [
        "SELECT lag(x, 1, y) OVER (ORDER BY x) FROM (VALUES (1, 2)) AS t(x, y)" => Error("only support Literal types"),
    ];
    like_escapes: Plain::of(1), [], [
        "SELECT 'a%' LIKE 'a#%' ESCAPE '#'" => Error("does not support escape_char"),
    ];
    meaningless: Plain::of(1), [], [
        "SELECT x, count(*) OVER (ORDER BY x RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM (VALUES ('a'), ('b')) AS t(x)"
            => Rows(&["a 1", "b 2"]),
        "SELECT nth_value(x, 0) OVER () FROM (VALUES (1)) AS t(x)" => Rows(&["NULL"]),
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT sum(n) + 1 FROM r HAVING sum(n) < 3) SELECT * FROM r"
            => Rows(&["1", "2", "3"]),
    ];
    named_windows: Plain::of(1), [], [
        "SELECT x, sum(y) OVER (w) FROM (VALUES (1, 10), (2, 20)) AS t(x, y) WINDOW w AS (PARTITION BY x) ORDER BY x"
            => Rows(&["1 30", "2 30"]),
    ];
    natural_joins: Plain::of(1), [
        "CREATE TABLE a AS SELECT * FROM (VALUES (1)) AS v(k)",
        "CREATE TABLE b AS SELECT * FROM (VALUES (2)) AS v(k)"
    ], [
        "SELECT k FROM a NATURAL RIGHT JOIN b" => Rows(&["NULL"]),
    ];
    nested_extremes: Plain::of(1), [], [
        "SELECT max(x) FROM (VALUES ([[1, 2]]), ([[1], [3]])) AS t(x)" => Error("Uncomparable values"),
    ];
    nested_loops_again: Plain::of(4).memory(6_000).batch_rows(100), [], [
        "SELECT count(*) FROM (SELECT value AS v FROM generate_series(1, 1000) WHERE value > 0) AS l \
         JOIN (SELECT value AS w FROM generate_series(1, 10000)) AS r ON l.v < r.w" => Panic("partition not used yet"),
        "SELECT count(*) FROM generate_series(1, 1000) AS l(v) \
         LEFT JOIN generate_series(1, 10000) AS r(w) ON l.v < r.w AND r.w < 5" => Rows(&["4003"]),
    ];
    nullable_subqueries: Plain::of(1), ["CREATE TABLE t AS SELECT 1 AS x"], [
        "SELECT (SELECT 5 FROM t WHERE x > 3) IS NULL" => Rows(&["false"]),
    ];
    order_by_outputs: Plain::of(1), [], [
        "SELECT a AS b, CAST(b AS TEXT) AS c FROM (VALUES (10, 1), (9, 2)) AS t(a, b) GROUP BY a, CAST(b AS TEXT) ORDER BY b"
            => Rows(&["10 1", "9 2"]),
    ];
    order_keys: Plain::of(1), [], [
        "SELECT array_agg(x ORDER BY length(x) > 3, x) FROM (VALUES ('a'), ('abcd')) AS t(x)" => Error("SanityCheckPlan"),
    ];
    outer_aggregates: Plain::of(1), ["CREATE TABLE t AS SELECT * FROM (VALUES (1), (2)) AS v(x)"], [
        "SELECT (SELECT sum(t.x)) FROM t" => Error("ScalarSubquery"),
    ];
    outer_tables: Plain::of(1), [
        "CREATE TABLE city AS SELECT 1 AS id",
        "CREATE TABLE t AS SELECT named_struct('id', 7) AS city"
    ], [
        "SELECT (SELECT city.id FROM t) FROM city" => Rows(&["7"]),
    ];
    projections_below_filters: Plain::of(1), [
        "CREATE TABLE t AS SELECT * FROM (VALUES (1, 0, 0), (2, 2, 1)) AS v(a, b, c)"
    ], [
        "SELECT a / c, b FROM t WHERE b <> 0" => Error("Divide by zero"),
    ];
    repeated_orders: Plain::of(4), [], [
        "SELECT first_value(value ORDER BY value, value) FROM generate_series(1, 3)" => Error("number of columns"),
    ];
    rollup_elements: Plain::of(1), [], [
        "SELECT count(*) FROM (VALUES (1)) AS t(x) GROUP BY ROLLUP ((x) + 1)" => Error("Expected: ), found: +"),
    ];
    row_comparisons: Plain::of(1), [], [
        "SELECT (1, NULL) = (1, NULL), (NULL, 4) < (3, 2)" => Rows(&["true true"]),
    ];
    set_operations: Plain::of(1), [], [
        "SELECT x FROM (VALUES (1), (1)) AS t(x) EXCEPT ALL SELECT 1" => Rows(&[]),
        "SELECT x FROM (VALUES (1), (1)) AS t(x) INTERSECT ALL SELECT 1" => Rows(&["1", "1"]),
    ];
    similar_to: Plain::of(1), [], [
        "SELECT 'abc' SIMILAR TO 'b', 'abc' SIMILAR TO 'a%'" => Rows(&["true false"]),
    ];
    sliding_variances: Plain::of(1), [], [
        "SELECT min(v) < 0 FROM (SELECT var_pop(x) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS v \
         FROM (VALUES (1, 1e8 + 0.7), (2, 0.1), (3, 0.1)) AS t(i, x)) AS q" => Rows(&["true"]),
    ];
    sort_reservations: Plain::of(1).memory(5_000_000), [
        "CREATE TABLE t AS SELECT * FROM (VALUES (1), (3), (2)) AS v(x)"
    ], [
        "SELECT x FROM t ORDER BY x" => Error("Not enough memory to continue external sort"),
    ];
    string_agg_orders: Plain::of(1), [], [
        "SELECT string_agg(s, ',' ORDER BY x), string_agg(s, ',' ORDER BY y) FROM (VALUES ('a', 1, 2)) AS t(s, x, y)"
            => Error("Conflicting ordering requirements"),
    ];
    struct_orders: Plain::of(1), [], [
        "SELECT rank() OVER (ORDER BY named_struct('a', x)) FROM (VALUES (1)) AS t(x)"
            => Error("Cannot run range queries on datatype"),
    ];
    unnested_lists: Plain::of(1), ["CREATE TABLE t AS SELECT make_array(1, 2) AS l"], [
        "SELECT u FROM t, unnest(t.l) AS u(u)" => Error("OuterReferenceColumn"),
    ];
    using_columns: Plain::of(1), [
        "CREATE TABLE a AS SELECT * FROM (VALUES (1)) AS v(k)",
        "CREATE TABLE b AS SELECT * FROM (VALUES (2)) AS v(k)"
    ], [
        "SELECT k FROM a RIGHT JOIN b USING (k)" => Rows(&["NULL"]),
        "SELECT k FROM a JOIN a AS b USING (k) JOIN a AS c USING (k)" => Error("Ambiguous reference"),
    ];
    values_in: Plain::of(1), [], [
        "SELECT x FROM (VALUES (1)) AS t(x) WHERE x IN (VALUES (1), (7))" => Error("single expression required"),
    ];
}

#[test]
fn every_fix_has_a_canary() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/fixes");
    let table = std::fs::read_to_string(folder.join("mod.rs")).unwrap();
    let others = batches::FILES.iter().chain(&times::FILES).chain(&trees::FILES).copied();
    let mut known: Vec<&str> =
        FILES.iter().copied().chain(others).chain(WITHOUT.map(|(file, _)| file)).collect();
    known.sort_unstable();
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        path.file_stem().unwrap().to_str().unwrap().to_string()
    };
    let mut found: Vec<String> = std::fs::read_dir(&folder).unwrap().map(name).collect();
    found.sort_unstable();
    assert_eq!(found, known, "files of src/fixes, and canaries");
    for file in found.iter().filter(|file| *file != "mod") {
        assert!(table.contains(&format!("[`{file}`]")), "the table in fixes/mod.rs has no {file}");
    }
}
