//! Functions in CUDA: on a machine without a GPU their twins answer, whoever runs the query.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray,
};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use headrace_engine::{Fallback, Processor, Session, SessionOptions, Settings};
use tempfile::TempDir;

use crate::{ran, tables};

const ROWS: i64 = 5_000;

/// Every fifth row has no `b`, every seventh no text.
fn table() -> RecordBatch {
    let a = Int64Array::from_iter_values(0..ROWS);
    let b = Int32Array::from_iter((0..ROWS as i32).map(|row| (row % 5 != 4).then_some(row % 100)));
    let t = StringArray::from_iter((0..ROWS).map(|row| (row % 7 != 6).then(|| format!("t{row}"))));
    let columns: [(&str, ArrayRef, bool); 3] =
        [("a", Arc::new(a), false), ("b", Arc::new(b), true), ("t", Arc::new(t), true)];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn session(processor: Processor, fallback: Fallback) -> (Session, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.arrow");
    tables::write(&path, &table(), 640, true);
    let settings = Settings { processor, fallback, ..Settings::default() };
    let session = Session::new(SessionOptions { settings, ..SessionOptions::default() }).unwrap();
    session.register_arrow("numbers", &[path]).unwrap();
    (session, folder)
}

async fn run(session: &Session, sql: &str) -> Result<RecordBatch, String> {
    let text = |error: datafusion::common::DataFusionError| error.strip_backtrace();
    let query = session.sql(sql).await.map_err(text)?;
    let schema = query.schema();
    let (batches, report) = query.collect().await.map_err(text)?;
    ran::on_wanted(&session.settings(), &report)?;
    concat_batches(&schema, &batches).map_err(|error| error.to_string())
}

async fn numbers(session: &Session, sql: &str) -> Vec<Option<i64>> {
    let found = run(session, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    found.column(0).as_primitive::<Int64Type>().iter().collect()
}

async fn refused(session: &Session, sql: &str, cause: &str) {
    let error = run(session, sql).await.unwrap_err();
    assert!(error.contains(cause), "{sql}: {error}");
}

const MIXED: &str = "create function mixed(x bigint, y int) returns bigint language cuda as $$
    return x * 3 + y;
$$ twin 'x * 3 + y'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twins_answer_in_pipelines_and_in_the_planner() {
    let wanted: i64 = (0..ROWS)
        .filter(|row| row % 5 != 4)
        .map(|row| row * 3 + row % 100)
        .filter(|x| x % 3 == 1)
        .sum();
    for (processor, fallback) in
        [(Processor::Off, Fallback::Allow), (Processor::Cpu, Fallback::Forbid)]
    {
        let (session, _folder) = session(processor, fallback);
        run(&session, MIXED).await.unwrap();
        let sum = "select sum(mixed(a, b)) from numbers where mixed(a, b) % 3 = 1";
        assert_eq!(numbers(&session, sum).await, [Some(wanted)], "{processor}");
        let nulls = "select count(*) from numbers where mixed(a, b) is null";
        assert_eq!(numbers(&session, nulls).await, [Some(ROWS / 5)], "{processor}");
        // Numbers become what the parameters are, and constants are numbers, too.
        assert_eq!(numbers(&session, "select mixed(2, 1.0)").await, [Some(7)], "{processor}");
        assert_eq!(numbers(&session, "select mixed(null, 1)").await, [None], "{processor}");
        // NULL for NULL is the rule of the code, whatever the twin says.
        run(
            &session,
            "create function or_one(x int) returns bigint language cuda as 'return x;' \
                       twin 'coalesce(x, 1)'",
        )
        .await
        .unwrap();
        let ones = "select count(or_one(b)) from numbers";
        assert_eq!(numbers(&session, ones).await, [Some(ROWS - ROWS / 5)], "{processor}");
        run(
            &session,
            "create function size(t varchar) returns bigint language cuda \
                       as 'return t.size;' twin 'octet_length(t)'",
        )
        .await
        .unwrap();
        let sizes = "select sum(size(t)) from numbers";
        let wanted: usize =
            (0..ROWS).filter(|row| row % 7 != 6).map(|row| format!("t{row}").len()).sum();
        assert_eq!(numbers(&session, sizes).await, [Some(wanted as i64)], "{processor}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_lasts_until_it_is_replaced_or_dropped() {
    let (session, _folder) = session(Processor::Cpu, Fallback::Allow);
    run(&session, MIXED).await.unwrap();
    let query = "select mixed(a, b) from numbers where a = 7";
    assert_eq!(numbers(&session, query).await, [Some(28)]);
    refused(&session, MIXED, "already").await;
    let other = MIXED.replace("create", "create or replace").replace("3 + y", "5 + y");
    run(&session, &other).await.unwrap();
    assert_eq!(numbers(&session, query).await, [Some(42)]);
    // Sessions beside it have what it had.
    assert_eq!(numbers(&session.beside(), query).await, [Some(42)]);
    run(&session, "drop function mixed").await.unwrap();
    assert!(run(&session, query).await.is_err());
    run(&session, "drop function if exists mixed").await.unwrap();
    refused(&session, "drop function mixed", "no function").await;
    refused(&session, "drop function abs", "not made by").await;
    for name in ["abs", "sum", "row_number", "generate_series"] {
        let taken =
            format!("create or replace {}", &MIXED.replace("mixed", name)["create ".len()..]);
        refused(&session, &taken, "cannot be replaced").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_without_a_twin_is_for_a_gpu_alone() {
    for processor in [Processor::Off, Processor::Cpu, Processor::Auto] {
        let (session, _folder) = session(processor, Fallback::Allow);
        let alone = MIXED.split(" twin").next().unwrap();
        run(&session, alone).await.unwrap();
        for query in ["select mixed(a, b) from numbers", "select mixed(1, 2)"] {
            refused(&session, query, "without a TWIN").await;
            refused(&session, query, "hint: headrace gpu-service start").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_function_is_told() {
    let (session, _folder) = session(Processor::Cpu, Fallback::Allow);
    for (text, cause) in [
        ("create function f(x decimal(9,2)) returns int language cuda as ''", "cannot be"),
        ("create function f(x int) returns varchar language cuda as ''", "cannot return"),
        ("create function f(x int) returns int language cuda as '' twin 'y'", "the TWIN of f()"),
        (
            "create function f(x int) returns int language cuda as '' twin 'sum(x)'",
            "the TWIN of f()",
        ),
        (
            "create function f(x int) returns int language cuda as '' twin '(select max(a) from numbers)'",
            "the TWIN of f()",
        ),
        (
            "create function f(x int) returns int language cuda as '' twin 'x) from numbers --'",
            "TWIN",
        ),
        ("create function f(x nothing) returns int language cuda as ''", "nothing"),
        ("create function \"a b\"(x int) returns int language cuda as ''", "no name of C++"),
        ("create function f(x int, x int) returns int language cuda as ''", "two parameters"),
        ("create function f(x fixed_binary) returns int language cuda as ''", "fixed_binary(128)"),
    ] {
        refused(&session, text, cause).await;
    }
    run(&session, MIXED).await.unwrap();
    refused(&session, "select mixed(1)", "mixed() takes (bigint, integer), and is given (bigint)")
        .await;
    refused(&session, "select mixed('a', 1)", "mixed() takes").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_and_lists_are_arguments_as_well() {
    let (session, _folder) = session(Processor::Off, Fallback::Allow);
    run(
        &session,
        "create function apart(p fixed_binary(2), q fixed_binary(2)) returns bigint language cuda \
         as 'return 0;' twin 'hamming_distance(p, q)'",
    )
    .await
    .unwrap();
    assert_eq!(numbers(&session, "select apart(x'ff00', x'f001')").await, [Some(5)]);
    assert!(run(&session, "select apart(x'ff', x'f001')").await.is_err());
    run(
        &session,
        "create function sized(v float[3]) returns double language cuda \
         as 'return v[0];' twin 'v[1] + 0.5'",
    )
    .await
    .unwrap();
    let found = run(&session, "select sized([1.5, 2, 3])").await.unwrap();
    assert_eq!(found.column(0).data_type(), &DataType::Float64);
    assert_eq!(
        found.column(0).as_primitive::<datafusion::arrow::datatypes::Float64Type>().value(0),
        2.0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_says_that_only_the_service_runs_it() {
    let (session, _folder) = session(Processor::Cuda, Fallback::Allow);
    run(&session, MIXED).await.unwrap();
    let shown = run(&session, "explain select sum(mixed(a, b)) from numbers").await.unwrap();
    let text: String = (0..shown.num_columns())
        .flat_map(|column| {
            let column = shown.column(column).as_string::<i32>();
            (0..column.len()).map(|row| column.value(row).to_string()).collect::<Vec<_>>()
        })
        .collect();
    assert!(text.contains("mixed() is CUDA code, which only the GPU service runs"), "{text}");
    assert!(text.contains("mixed(a, b)"), "{text}");
}
