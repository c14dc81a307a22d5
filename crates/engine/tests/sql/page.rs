//! docs/sql.md lists the functions that run in pipelines: these are they, found by trying every function that the
//! planner has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Int32Array, RecordBatch,
};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::physical_plan::displayable;
use headrace_engine::{Processor, RunnerOptions, Session, SessionOptions, Settings};
use tempfile::TempDir;

use crate::tables;

/// Arguments that functions of rows are tried with: columns of the table `types`, and constants behind them.
const ARGUMENTS: &[&str] = &[
    "text",
    "real",
    "id",
    "price",
    "day",
    "flag",
    "cast(day as timestamp)",
    "'day', cast(day as timestamp)",
    "'day', day",
    "real, 3",
    "text, 2",
    "text, 2, 3",
    "text, 'a'",
    "text, 'a', 'b'",
    "text, kind",
    "id, 5",
    "real, 0.5",
    "flag, true",
    "day, cast('2024-01-01' as date)",
    "id, 0, 10",
    "bits",
    "bits, bits",
    "floats, floats",
];

/// The same of aggregates.
const AGGREGATED: &[&str] = &[
    "id", "real", "text", "flag", "id, 5", "real, 0.5", "real, real", "text, ','", "id order by id",
];

/// A session over the corpus's tables, and the folder that they lie in.
async fn session() -> (Session, TempDir) {
    let settings = Settings { processor: Processor::Cpu, ..Settings::default() };
    let options = SessionOptions { settings, limits: RunnerOptions::default() };
    let session = Session::new(options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    tables::register(&session, folder.path()).await;
    let path = folder.path().join("alike.arrow");
    tables::write(&path, &alike(), 2, true);
    session.register_arrow("alike", &[path]).unwrap();
    (session, folder)
}

/// Fingerprints and vectors.
fn alike() -> RecordBatch {
    let bits = FixedSizeBinaryArray::try_from_iter([[1, 2], [3, 4]].iter()).unwrap();
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let floats = Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0, 4.0]));
    let floats = FixedSizeListArray::new(item, 2, floats, None);
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int32Array::from(vec![1, 2]))),
        ("bits", Arc::new(bits)),
        ("floats", Arc::new(floats)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Names of the planner's functions of a kind.
async fn names(session: &Session, kind: &str) -> BTreeSet<String> {
    let sql = format!(
        "select distinct routine_name from information_schema.routines where function_type = '{kind}'"
    );
    let (batches, _) = session.sql(&sql).await.unwrap().collect().await.unwrap();
    let mut names = BTreeSet::new();
    for batch in &batches {
        let name = |row| array_value_to_string(batch.column(0), row).unwrap();
        names.extend((0..batch.num_rows()).map(name));
    }
    names
}

/// Whether a query is a pipeline, and none of certain nodes is left to the planner.
async fn is_pipeline(session: &Session, sql: &str, left: &[&str]) -> bool {
    let Ok(query) = session.sql(sql).await else { return false };
    let plan = displayable(query.plan().as_ref()).indent(false).to_string();
    plan.contains("PipelineExec") && !left.iter().any(|node| plan.contains(node))
}

/// The functions that some arguments make part of a pipeline.
async fn in_pipelines(
    session: &Session,
    kind: &str,
    arguments: &[&str],
    left: &[&str],
    query: impl Fn(&str) -> String,
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in names(session, kind).await {
        for arguments in arguments {
            if is_pipeline(session, &query(&format!("{name}({arguments})")), left).await {
                found.insert(name.clone());
                break;
            }
        }
    }
    found
}

/// The names that the page lists behind a mark.
fn listed(page: &str, mark: &str) -> BTreeSet<String> {
    let begin = format!("<!-- {mark} -->");
    let (_, list) = page.split_once(&begin).unwrap_or_else(|| panic!("docs/sql.md lacks {begin}"));
    let (list, _) = list.split_once("<!-- end -->").unwrap();
    list.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

fn assert_same(found: &BTreeSet<String>, listed: &BTreeSet<String>, what: &str) {
    let missing: Vec<_> = found.difference(listed).collect();
    let wrong: Vec<_> = listed.difference(found).collect();
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "docs/sql.md, {what}: it lacks {missing:?}; of those that it lists, {wrong:?} are none. All of them: {}",
        found.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    );
}

#[tokio::test]
async fn the_page_lists_the_functions_of_pipelines() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql.md");
    let page = fs::read_to_string(page).unwrap();
    let (session, _folder) = session().await;
    let rows = |call: &str| {
        let is_alike = call.contains("(bits") || call.contains("(floats");
        let table = if is_alike { "alike" } else { "types" };
        format!("select {call} as x from {table} where id > 0")
    };
    let scalar = in_pipelines(
        &session,
        "SCALAR",
        ARGUMENTS,
        &["HeadraceScanExec", "ProjectionExec", "FilterExec"],
        rows,
    )
    .await;
    assert!(scalar.contains("abs") && !scalar.contains("sqrt"), "{scalar:?}");
    // Names are given to the columns of groups by a projection; where no row is left out, statistics may be the answer.
    let groups = |call: &str| format!("select {call} as x from types where id > 0");
    let aggregates = in_pipelines(
        &session,
        "AGGREGATE",
        AGGREGATED,
        &["HeadraceScanExec", "AggregateExec"],
        groups,
    )
    .await;
    assert_same(&scalar, &listed(&page, "functions in pipelines"), "functions");
    assert_same(&aggregates, &listed(&page, "aggregates in pipelines"), "aggregates");
}
