//! The table of functions: each example answers what the table says, and the page of docs is that table.

use std::path::Path;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::util::display::array_value_to_string;
use headrace_engine::functions::{Entry, page, sections};
use headrace_engine::{Session, SessionOptions};

/// Fewer than this have lost a section.
const FUNCTIONS_MIN: usize = 300;

async fn answer(session: &Session, example: &str) -> Result<String, String> {
    let query = session.sql(&format!("select {example}")).await.map_err(|e| e.to_string())?;
    let (batches, _) = query.collect().await.map_err(|e| e.to_string())?;
    let value = |column: &ArrayRef, row: usize| match column.is_null(row) {
        true => "NULL".to_string(),
        false => array_value_to_string(column, row).unwrap(),
    };
    let rows = batches.iter().flat_map(|batch| {
        (0..batch.num_rows())
            .map(|row| batch.columns().iter().map(|c| value(c, row)).collect::<Vec<_>>().join("|"))
    });
    Ok(rows.collect::<Vec<_>>().join(";"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_answers_what_the_table_says() {
    let session = Session::new(SessionOptions::default()).unwrap();
    let entries: Vec<Entry> = sections().into_iter().flat_map(|(_, entries)| entries).collect();
    assert!(entries.len() >= FUNCTIONS_MIN, "{} functions", entries.len());
    let mut wrong = Vec::new();
    for entry in &entries {
        match answer(&session, entry.example).await {
            Ok(found) if found == entry.answer => {}
            Ok(found) => {
                wrong.push(format!("{}\t{found}\tand not {}", entry.example, entry.answer))
            }
            Err(error) => wrong.push(format!("{}\t{error}", entry.example)),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), entries.len(), wrong.join("\n"));
}

#[test]
fn the_page_of_docs_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/functions.md");
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == page(),
        "docs/functions.md is not what the program says; scripts/functions-docs writes it"
    );
}
