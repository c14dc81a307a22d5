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
