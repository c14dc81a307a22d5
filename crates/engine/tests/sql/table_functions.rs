//! Functions of whole tables in CUDA: on a machine without a GPU their twins answer, whoever runs the query.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray,
};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::Int64Type;
use headrace_engine::{Fallback, Processor, Session, SessionOptions, Settings};
use tempfile::TempDir;

use crate::tables;

const ROWS: i64 = 3_000;

/// Every third row has no `x`.
fn table() -> RecordBatch {
    let id = Int64Array::from_iter_values(0..ROWS);
    let x =
        Float64Array::from_iter((0..ROWS).map(|row| (row % 3 != 2).then_some(row as f64 / 2.0)));
    let t = StringArray::from_iter_values((0..ROWS).map(|row| format!("t{row}")));
    let columns: [(&str, ArrayRef, bool); 3] =
        [("id", Arc::new(id), false), ("x", Arc::new(x), true), ("t", Arc::new(t), false)];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn session(processor: Processor, fallback: Fallback) -> (Session, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("points.arrow");
    tables::write(&path, &table(), 640, true);
    let settings = Settings { processor, fallback, ..Settings::default() };
    let session = Session::new(SessionOptions { settings, ..SessionOptions::default() }).unwrap();
    session.register_arrow("points", &[path]).unwrap();
    (session, folder)
}

async fn run(session: &Session, sql: &str) -> Result<RecordBatch, String> {
    let text = |error: datafusion::common::DataFusionError| error.strip_backtrace();
    let query = session.sql(sql).await.map_err(text)?;
    let schema = query.schema();
    let (batches, _) = query.collect().await.map_err(text)?;
    concat_batches(&schema, &batches).map_err(|error| error.to_string())
}

async fn numbers(session: &Session, sql: &str) -> Vec<Option<i64>> {
    let found = run(session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    found.column(0).as_primitive::<Int64Type>().iter().collect()
}

async fn refused(session: &Session, sql: &str, cause: &str) {
    let found = run(session, sql).await;
    let error = found.err().unwrap_or_else(|| panic!("{sql} is not refused"));
    assert!(error.contains(cause), "{sql}: {error}");
}

const ABOVE: &str = "create function above(p table (id bigint, x double), low double, k bigint) \
    returns table (id bigint, more double) language cuda as $$
    for (uint64_t i = thread; i < p.rows; i += threads)
        if (!p.x.is_null(i) && p.x[i] > low) emit(p.id[i] * k, p.x[i] - low);
$$ rows rows * k twin 'select id * $k, x - $low from p where x > $low'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_twin_answers_over_tables_and_queries() {
    for processor in [Processor::Off, Processor::Cpu] {
        let (session, _folder) = session(processor, Fallback::Allow);
        run(&session, ABOVE).await.unwrap();
        let wanted = (0..ROWS).filter(|row| row % 3 != 2 && *row as f64 / 2.0 > 700.0).count();
        let all = [Some(wanted as i64)];
        // A table by its name, of which only the columns that are wanted are read; a query; a table in memory.
        for argument in [
            "points",
            "(select * from points)",
            "(select t as y, x, id from points p where p.id >= 0)",
            "(select cast(id as int) as ID, x from points order by x limit 5000)",
            "(with q as (select * from points) select q.* from q)",
        ] {
            let count = format!("select count(*) from above({argument}, 700, 1)");
            assert_eq!(numbers(&session, &count).await, all, "{count}");
        }
        let sum =
            "select sum(a.id), min(a.more) from above(points, 10.0, 2) as a where a.id % 4 = 0";
        let wanted: i64 =
            (0..ROWS).filter(|r| r % 3 != 2 && *r > 20).map(|r| r * 2).filter(|x| x % 4 == 0).sum();
        assert_eq!(numbers(&session, sum).await, [Some(wanted)]);
        let joined = "select count(*) from above(points, 10.0, 1) a join points b on a.id = b.id join \
                      above((select * from points where id < 100), 10, 1) c on c.id = a.id";
        assert_eq!(
            numbers(&session, joined).await,
            [Some((21..100).filter(|r| r % 3 != 2).count() as i64)]
        );
        let renamed = "select max(b) from above(points, 0, 1) as t(b, c)";
        assert_eq!(numbers(&session, renamed).await, [Some(ROWS - 2)]);
        let values = "select id from above((select * from (values (1, 2.0), (5, 7.5))), 3, 1)";
        refused(&session, values, "wants a column id").await;
        let values = "select id from above((select column1 as id, column2 as x from (values (1, 2.0), (5, 7.5))), 3, 1)";
        assert_eq!(numbers(&session, values).await, [Some(5)]);
        assert!(
            numbers(&session, "select id from above((select * from points where false), 3, 1)")
                .await
                .is_empty()
        );
        let prepared = "prepare p as select count(*) from above(points, $1, 1)";
        run(&session, prepared).await.unwrap();
        assert_eq!(numbers(&session, "execute p(700)").await, all);
        run(&session, "create view high as select * from above(points, 700, 1)").await.unwrap();
        assert_eq!(numbers(&session, "select count(*) from high").await, all);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_twin_may_be_any_query_over_its_table() {
    let (session, _folder) = session(Processor::Cpu, Fallback::Allow);
    run(
        &session,
        "create function bins(v table (x double), width double) returns table (bin bigint, n bigint) \
         language cuda as '' rows 1000 twin $$
            with b as (select cast(floor(v.x / $width) as bigint) as bin from v where x is not null)
            select bin, count(*) + 0 * (select count(*) from v) from b group by bin
        $$",
    )
    .await
    .unwrap();
    let found = "select n from bins(points, 100.0) order by bin";
    let of_bin = |bin| (0..ROWS).filter(|r| r % 3 != 2 && r / 200 == bin).count() as i64;
    let wanted: Vec<_> = (0..15).map(|bin| Some(of_bin(bin))).collect();
    assert_eq!(numbers(&session, found).await, wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_twin_only_the_service_answers() {
    for processor in [Processor::Off, Processor::Cpu, Processor::Cuda, Processor::Auto] {
        let (session, _folder) = session(processor, Fallback::Allow);
        run(&session, ABOVE.split(" twin").next().unwrap()).await.unwrap();
        for cause in ["above() is CUDA code without a TWIN", "hint: headrace gpu-service start"] {
            refused(&session, "select * from above(points, 1, 1)", cause).await;
        }
    }
    let (session, _folder) = session(Processor::Cuda, Fallback::Forbid);
    run(&session, ABOVE).await.unwrap();
    refused(
        &session,
        "select * from above((select 1 as id, 2.0 as x), 1, 1)",
        "fallback is forbid",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_lasts_until_it_is_replaced_or_dropped() {
    let (session, _folder) = session(Processor::Cpu, Fallback::Allow);
    run(&session, ABOVE).await.unwrap();
    let count = "select count(*) from above(points, 1498, 1)";
    assert_eq!(numbers(&session, count).await, [Some(2)]);
    refused(&session, ABOVE, "already").await;
    let other = ABOVE
        .replacen("create", "create or replace", 1)
        .replace("where x > $low", "where x < $low");
    run(&session, &other).await.unwrap();
    assert_eq!(numbers(&session, count).await, [Some(1998)]);
    assert_eq!(numbers(&session.beside(), count).await, [Some(1998)]);
    // A function of values may take its place, and the other way round.
    let value = "create or replace function above(x bigint) returns bigint language cuda as 'return x;' twin 'x'";
    run(&session, value).await.unwrap();
    assert_eq!(numbers(&session, "select above(3)").await, [Some(3)]);
    assert!(run(&session, count).await.is_err());
    run(&session, &other).await.unwrap();
    assert!(run(&session, "select above(3)").await.is_err());
    run(&session, "drop function above").await.unwrap();
    assert!(run(&session, count).await.is_err());
    refused(&session, "drop function above", "no function").await;
    for name in ["abs", "sum", "generate_series", "row_number"] {
        let taken = other.replacen("above", name, 1);
        refused(&session, &taken, "cannot be replaced").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_function_or_call_is_told() {
    let (session, _folder) = session(Processor::Cpu, Fallback::Allow);
    let made = |rest: &str| {
        format!(
            "create function f(t table (x bigint), k int) returns table (y bigint) language cuda as '' {rest}"
        )
    };
    for (text, cause) in [
        (made("rows y"), "ROWS of f() is no number"),
        (made("grid sum(rows)"), "GRID of f()"),
        (made("block 2000"), "1 to 1024 threads"),
        (made("twin 'select nothing from t'"), "the TWIN of f()"),
        (made("twin 'select x from points'"), "the TWIN of f()"),
        (made("twin 'select x, x from t'"), "its columns are"),
        (made("twin 'select $z from t'"), "no parameter z"),
        (made("twin 'select $1 from t'"), "by their names"),
        (made("twin 'drop table points'"), "no query over t"),
        (made("twin 'select x from t; select 1'"), "the TWIN of f()"),
        (made("").replace("y bigint", "y varchar"), "are written"),
        (made("").replace("x bigint", "x decimal(9, 2)"), "cannot be"),
        (made("").replace("x bigint", "rows bigint"), "called rows"),
        (made("").replace("x bigint", "x bigint, x int"), "called x"),
        (made("").replace("k int", "t int"), "called t"),
    ] {
        refused(&session, &text, cause).await;
    }
    run(&session, ABOVE).await.unwrap();
    for (call, cause) in [
        ("above()", "no table as its first argument"),
        ("above(1, 2, 3)", "no table as its first argument"),
        ("above(nothing, 2, 3)", "nothing"),
        ("above(points)", "above() takes (double precision, bigint), and is given ()"),
        ("above(points, 1, 2, 3)", "above() takes"),
        ("above(points, 'a', 2)", "above() takes"),
        ("above(points, p.x, 2)", "above() takes p.x"),
        ("above(points, (select 1), 2)", "no constant"),
        ("above(points, random(), 2)", "no constant"),
        ("above(points, null, 2)", "NULL as low"),
        ("above(points, low => 1, k => 2)", "no argument"),
        ("above((select t as x, id from points), 1, 2)", "above() takes"),
        ("above((select * from points order by id), 1, 2)", "have no order"),
        (
            "above((select x, 1 as \"X\", id as \"ID\", 2 as \"Id\" from points), 1, 2)",
            "are called id",
        ),
    ] {
        refused(&session, &format!("select * from {call}"), cause).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_tells_of_the_twin() {
    let (session, _folder) = session(Processor::Cpu, Fallback::Allow);
    run(&session, ABOVE).await.unwrap();
    let text = |shown: &RecordBatch| -> String {
        let lines = (0..shown.num_columns()).flat_map(|column| {
            let column = shown.column(column).as_string::<i32>();
            (0..column.len()).map(|row| column.value(row).to_string()).collect::<Vec<_>>()
        });
        lines.collect()
    };
    let shown = run(&session, "explain select * from above(points, 1, 2)").await.unwrap();
    let shown = text(&shown);
    assert!(
        shown.contains("TableCallExec: above(1, 2), in the gpu-service, or its TWIN"),
        "{shown}"
    );
    assert!(shown.contains("TableCall: above("), "{shown}");
    let query = session.sql("select * from above(points, 1, 2)").await.unwrap();
    let (_, report) = query.collect().await.unwrap();
    let told = report.why_not.iter().any(|why| why.contains("the TWIN of above() answers"));
    assert!(told, "{:?}", report.why_not);
}
