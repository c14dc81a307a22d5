//! The time to plan a query is not the square of its columns.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch};
use headrace_engine::{Session, SessionOptions};
use tempfile::TempDir;

use crate::tables;

const FEW: usize = 1_000;
const MANY: usize = 8 * FEW;

/// A table of so many columns, called `wide`.
fn session(columns: usize, folder: &Path) -> Session {
    let session = Session::new(SessionOptions::default()).unwrap();
    let column = |i: usize| {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![i as i32, i as i32 + 1]));
        (format!("c{i}"), values)
    };
    let batch = RecordBatch::try_from_iter((0..columns).map(column)).unwrap();
    let path = folder.join(format!("wide{columns}.arrow"));
    tables::write(&path, &batch, 2, true);
    session.register_arrow("wide", &[path]).unwrap();
    session
}

/// How long a statement was planned, the fastest of a few times, each with another text; its answer has these columns and rows.
async fn planning_ms(session: &Session, sql: &str, columns: usize, rows: usize) -> f64 {
    let mut fastest = f64::INFINITY;
    for time in 0..7 {
        let query = session.sql(&format!("{sql} -- {time}")).await.unwrap();
        let (batches, report) = query.collect().await.unwrap();
        let found: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!((batches[0].num_columns(), found), (columns, rows), "{sql}");
        fastest = fastest.min(report.planning_ms);
    }
    fastest
}

fn sessions() -> (Session, Session, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (session(FEW, folder.path()), session(MANY, folder.path()), folder)
}

/// Eight times the columns take eight times as long, or 64 times if each is compared with each.
async fn check(sql: &str, rows: usize) {
    let (few, many, _folder) = sessions();
    let few_ms = planning_ms(&few, sql, FEW, rows).await;
    let many_ms = planning_ms(&many, sql, MANY, rows).await;
    let times = many_ms / few_ms;
    assert!(times < 40.0, "{sql}: {few_ms:.1} ms, and {many_ms:.1} ms of {MANY} columns");
}

#[tokio::test]
async fn everything_of_a_table_is_planned_in_the_time_of_its_columns() {
    check("select * from wide", 2).await;
    check("select * from wide where c7 > 7 order by c5 desc limit 5", 1).await;
}

#[tokio::test]
async fn everything_of_a_subquery_is_planned_in_the_time_of_its_columns() {
    check("select * from (select * from wide where c7 > 7) as w order by w.c5", 1).await;
}

/// A statement of a list of so many outputs.
fn listed(columns: usize, output: impl Fn(usize) -> String, around: [&str; 2]) -> String {
    let outputs: Vec<String> = (0..columns).map(output).collect();
    let [before, behind] = around;
    format!("{before}select {} from wide {behind}", outputs.join(", "))
}

/// Four times the outputs take four times as long, or 16 times if each is compared with each.
async fn check_list(output: impl Fn(usize) -> String + Copy, around: [&str; 2], rows: usize) {
    const LISTED: usize = 600;
    let folder = tempfile::tempdir().unwrap();
    let mut taken_ms = Vec::new();
    for columns in [LISTED, 4 * LISTED] {
        let session = session(columns, folder.path());
        let sql = listed(columns, output, around);
        taken_ms.push(planning_ms(&session, &sql, columns, rows).await);
    }
    let times = taken_ms[1] / taken_ms[0];
    assert!(times < 10.0, "{around:?}: {taken_ms:?} ms");
}

#[tokio::test]
async fn a_list_of_columns_is_planned_in_little_more_than_the_time_of_its_columns() {
    check_list(|i| format!("c{i}"), ["", ""], 2).await;
    check_list(|i| format!("c{i}"), ["", "where c7 > 7 order by c5 desc limit 5"], 1).await;
    check_list(|i| format!("c{i}"), ["select * from (", ") as w where c5 > 5"], 1).await;
}

#[tokio::test]
async fn a_list_of_expressions_is_planned_in_little_more_than_the_time_of_its_columns() {
    check_list(|i| format!("c{i} + 1 as d{i}"), ["", "where wide.c7 > 7"], 1).await;
}

#[tokio::test]
async fn a_list_of_aggregates_is_planned_in_little_more_than_the_time_of_its_columns() {
    check_list(|i| format!("sum(c{i})"), ["", ""], 1).await;
    check_list(|i| format!("max(c{i}) + c5 as m{i}"), ["", "group by c5"], 2).await;
}

#[tokio::test]
async fn a_long_list_means_what_a_short_one_means() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(600, folder.path());
    let text = |sql: String| {
        let session = session.clone();
        async move {
            let query = session.sql(&sql).await?;
            let names: Vec<String> =
                query.schema().fields().iter().map(|field| field.name().clone()).collect();
            let (batches, _) = query.collect().await?;
            let cell = |column: usize| {
                let column = batches[0].column(column);
                datafusion::arrow::util::display::array_value_to_string(column, 0).unwrap()
            };
            let last = names.len() - 1;
            let shown = format!("{}={} {}={}", names[0], cell(0), names[last], cell(last));
            Ok::<_, datafusion::common::DataFusionError>(shown)
        }
    };
    let behind = ["", "where c1 > 1 order by c5 limit 1"];
    let of = |output: fn(usize) -> String| text(listed(600, output, behind));
    assert_eq!(of(|i| format!("c{i}")).await.unwrap(), "c0=1 c599=600");
    assert_eq!(of(|i| format!("wide.c{i}")).await.unwrap(), "c0=1 c599=600");
    assert_eq!(of(|i| format!("C{i}")).await.unwrap(), "c0=1 c599=600");
    let computed = of(|i| if i == 5 { "c5".into() } else { format!("abs(c{i}) + c1") });
    assert_eq!(computed.await.unwrap(), "abs(c0) + c1=3 abs(c599) + c1=602");
    // These are the planner's: equal names, and columns that are not grouped by.
    let twice = text(listed(600, |i| format!("c{}", i / 2), ["", "where c1 > 1"]));
    assert_eq!(twice.await.unwrap(), "c0=1 c299=300");
    let counted = text(listed(600, |i| format!("c{i} - count(*) as s{i}"), ["", "group by c0"]));
    let counted = counted.await.unwrap_err().to_string();
    assert!(counted.contains("c1") && counted.contains("GROUP BY"), "{counted}");
    let grouped = |i| match i {
        5 => "wide.c5".to_string(),
        i => format!("sum(c{i}) + count(*) + c5 as s{i}"),
    };
    let grouped = text(listed(600, grouped, ["", "where c1 > 1 group by c5 order by s7"]));
    assert_eq!(grouped.await.unwrap(), "s0=8 s599=607");
    let now = text(listed(600, |i| format!("now() > '2020-01-01' as n{i}"), ["", ""]));
    assert_eq!(now.await.unwrap(), "n0=true n599=true");
    let sums = text(listed(600, |i| format!("sum(c{i}) as s{i}"), ["", ""]));
    assert_eq!(sums.await.unwrap(), "s0=1 s599=1199");
    let missing = text(listed(600, |i| format!("c{}", i + 1), ["", ""])).await.unwrap_err();
    assert!(missing.to_string().contains("c600"), "{missing}");
}

#[tokio::test]
async fn many_columns_are_summarized_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(300, folder.path());
    let (batches, _) = session.sql("summarize wide").await.unwrap().collect().await.unwrap();
    let rows: Vec<String> = batches
        .iter()
        .flat_map(|batch| {
            let cell = |row, column: usize| {
                let column = batch.column(column);
                datafusion::arrow::util::display::array_value_to_string(column, row).unwrap()
            };
            (0..batch.num_rows()).map(move |row| {
                (0..8).map(|column| cell(row, column)).collect::<Vec<_>>().join(" ")
            })
        })
        .collect();
    let wanted = (0..300).map(|i| {
        let (least, most) = (i, i + 1);
        let std = std::f64::consts::FRAC_1_SQRT_2;
        format!("c{i} INT {least} {most} {least}.5 {std} 2 0")
    });
    assert_eq!(rows, wanted.collect::<Vec<_>>());
}
