//! Runs `tests/slt/*.slt` with one processor.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::DataFusionError;
use headrace_engine::{Processor, Session, SessionOptions, Settings};
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};

use crate::{ran, tables};

/// A session as sqllogictest wants it.
struct Database {
    session: Arc<Session>,
    /// Pipelines that the wanted processor ran.
    ran: Arc<AtomicUsize>,
}

#[async_trait]
impl AsyncDB for Database {
    type Error = DataFusionError;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, DataFusionError> {
        let query = self.session.sql(sql).await?;
        let schema = query.schema();
        let (batches, report) = query.collect().await?;
        let ran = ran::on_wanted(&self.session.settings(), &report);
        self.ran.fetch_add(ran.map_err(DataFusionError::Internal)?, Ordering::Relaxed);
        if schema.fields().is_empty() {
            return Ok(DBOutput::StatementComplete(0));
        }
        let types = schema.fields().iter().map(|f| column_type(f.data_type())).collect();
        let mut rows = Vec::new();
        for batch in &batches {
            for row in 0..batch.num_rows() {
                rows.push(batch.columns().iter().map(|c| cell(c, row)).collect());
            }
        }
        Ok(DBOutput::Rows { types, rows })
    }

    async fn shutdown(&mut self) {}
}

fn column_type(data_type: &DataType) -> DefaultColumnType {
    match data_type {
        t if t.is_integer() => DefaultColumnType::Integer,
        t if t.is_floating() || t.is_decimal() => DefaultColumnType::FloatingPoint,
        _ => DefaultColumnType::Text,
    }
}

/// A value as the corpus writes it: NULL, `(empty)`, newlines as `\n`.
fn cell(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "NULL".to_string();
    }
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(column, &options).unwrap();
    let mut text = String::new();
    write!(text, "{}", formatter.value(row)).unwrap();
    match text.as_str() {
        "" => "(empty)".to_string(),
        "NULL" => "NULL".to_string(),
        other => other.replace('\n', "\\n"),
    }
}

fn scripts() -> Vec<PathBuf> {
    // A prebuilt test program runs where this folder may lie elsewhere.
    let folder = std::env::var("HEADRACE_SLT_DIR")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slt").to_string());
    let mut scripts: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "slt"))
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty(), "no scripts in {folder}");
    scripts
}

/// Every script in a session of its own; all failures are told, not only the first. Pipelines run
/// on the wanted processor: in each script on the CPU, in some on a GPU, which takes no plain text.
fn run_corpus(processor: Processor) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    let mut ran_in_all = 0;
    runtime.block_on(async {
        for script in scripts() {
            let settings = Settings { processor, ..Settings::default() };
            let options = SessionOptions { settings, ..SessionOptions::default() };
            let session = Arc::new(Session::new(options).unwrap());
            tables::register(&session, folder.path()).await;
            let ran = Arc::new(AtomicUsize::new(0));
            let mut runner = Runner::new(|| async {
                let (session, ran) = (Arc::clone(&session), Arc::clone(&ran));
                Ok::<_, DataFusionError>(Database { session, ran })
            });
            runner.add_label(&processor.to_string());
            if let Err(error) = runner.run_file_async(&script).await {
                failures.push(format!("{}: {}", script.display(), error.display(false)));
            }
            let ran = ran.load(Ordering::Relaxed);
            ran_in_all += ran;
            if processor == Processor::Cpu && ran == 0 {
                failures.push(format!("{}: {processor} ran nothing", script.display()));
            }
        }
    });
    assert!(failures.is_empty(), "processor {processor}:\n{}", failures.join("\n"));
    assert!(processor == Processor::Off || ran_in_all > 0, "{processor} ran nothing");
}

#[test]
fn corpus_by_the_planner() {
    run_corpus(Processor::Off);
}

#[test]
fn corpus_on_the_cpu() {
    run_corpus(Processor::Cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_corpus() {
    run_corpus(Processor::Cuda);
}

/// For a run by hand: `HEADRACE_SLT_PROCESSOR=cuda cargo test .. -- corpus_by_environment`.
#[test]
#[ignore = "takes its processor from HEADRACE_SLT_PROCESSOR"]
fn corpus_by_environment() {
    let name = std::env::var("HEADRACE_SLT_PROCESSOR").unwrap();
    run_corpus(name.parse().unwrap());
}

/// Writes the planner's own answers into the scripts: review the difference.
#[test]
#[ignore = "rewrites tests/slt"]
fn corpus_rewrite() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        for script in scripts() {
            let settings = Settings { processor: Processor::Off, ..Settings::default() };
            let options = SessionOptions { settings, ..SessionOptions::default() };
            let session = Arc::new(Session::new(options).unwrap());
            tables::register(&session, folder.path()).await;
            let mut runner = Runner::new(|| async {
                let (session, ran) = (Arc::clone(&session), Arc::default());
                Ok::<_, DataFusionError>(Database { session, ran })
            });
            let (validator, normalizer, columns) = (
                sqllogictest::default_validator,
                sqllogictest::default_normalizer,
                sqllogictest::default_column_validator,
            );
            runner.update_test_file(&script, " ", validator, normalizer, columns).await.unwrap();
        }
    });
}
