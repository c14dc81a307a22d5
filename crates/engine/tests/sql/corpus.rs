//! Runs `tests/slt/*.slt` with one processor, and in little memory.
//!
//! What is expected was answered by PostgreSQL, where it has the statement, or by DuckDB, over the same tables; where
//! Headrace differs by intention, a comment beside the case says how.
//!
//! After `SET headrace.fallback = 'forbid'` what should be a pipeline and cannot be fails its script. Most scripts ask for it
//! `onlyif cpu`: a GPU hands more over to the cores.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::DataFusionError;
use headrace_engine::{Processor, RunnerOptions, Session, SessionOptions, Settings};
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Record, RecordOutput, Runner};
use sqllogictest::{StatementExpect, parse_file, strict_column_validator};

use crate::{ran, tables};

/// Fewer than this have lost a script, or cases of one.
const CASES_MIN: usize = 3000;

/// Scripts at once, each in a session with its memory.
const THREADS_MAX: usize = 12;

/// For every table and query of the corpus, and little enough that whoever asks for more than he needs fails.
const LITTLE_MEMORY_BYTES: u64 = 32 << 20;

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
    // A column of type NULL has no validity bitmap, and lists have NULLs of their own: the formatter knows all of them.
    let options = FormatOptions::default().with_null("NULL");
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

/// What came of scripts.
#[derive(Default)]
struct Outcome {
    /// Queries and expected errors that were looked at; settings are none, nor is what a condition skips.
    cases: usize,
    /// Pipelines that the wanted processor ran.
    ran: usize,
    failures: Vec<String>,
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        self.cases += other.cases;
        self.ran += other.ran;
        self.failures.extend(other.failures);
    }
}

/// Whether a record says what a statement answers, and does not merely prepare others.
fn is_case(record: &Record<DefaultColumnType>) -> bool {
    match record {
        Record::Query { .. } => true,
        Record::Statement { expected, .. } => matches!(expected, StatementExpect::Error(_)),
        _ => false,
    }
}

/// One script in a session of its own, to its end: each case that fails is told.
async fn run_script(script: &Path, options: SessionOptions, folder: &Path) -> Outcome {
    let processor = options.settings.processor;
    let session = Arc::new(Session::new(options).unwrap());
    tables::register(&session, folder).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let mut runner = Runner::new(|| async {
        let (session, ran) = (Arc::clone(&session), Arc::clone(&ran));
        Ok::<_, DataFusionError>(Database { session, ran })
    });
    runner.add_label(&processor.to_string());
    runner.with_column_validator(strict_column_validator);
    let mut outcome = Outcome::default();
    for record in parse_file(script).unwrap() {
        let is_case = is_case(&record);
        match runner.run_async(record).await {
            Ok(RecordOutput::Nothing) => {}
            Ok(_) => outcome.cases += usize::from(is_case),
            Err(error) => outcome.failures.push(error.display(false).to_string()),
        }
    }
    outcome.ran = ran.load(Ordering::Relaxed);
    if processor == Processor::Cpu && outcome.ran == 0 {
        outcome.failures.push(format!("{}: {processor} ran nothing", script.display()));
    }
    outcome
}

/// What comes of the scripts that `next` gives, in tables and a runtime of its own.
fn run_scripts(next: impl Fn() -> Option<PathBuf>, options: &SessionOptions) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut all = Outcome::default();
    while let Some(script) = next() {
        all.add(runtime.block_on(run_script(&script, options.clone(), folder.path())));
    }
    all
}

/// All scripts; all failures are told, not only the first. Pipelines run on the wanted processor: in each
/// script on the CPU, in some on a GPU, which takes no plain text.
fn run_corpus(processor: Processor, limits: &RunnerOptions) {
    let settings = Settings { processor, ..Settings::default() };
    let options = SessionOptions { settings, limits: limits.clone() };
    let scripts = Mutex::new(scripts().into_iter());
    let next = || scripts.lock().unwrap().next();
    // A GPU's programs are compiled one after the other in a session, which takes most of its time.
    let threads = std::thread::available_parallelism().unwrap().get().min(THREADS_MAX);
    let mut all = Outcome::default();
    std::thread::scope(|scope| {
        let runs: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| run_scripts(next, &options))).collect();
        runs.into_iter().for_each(|run| all.add(run.join().unwrap()));
    });
    println!("processor {processor}: {} cases, {} pipelines", all.cases, all.ran);
    assert!(
        all.failures.is_empty(),
        "processor {processor}: {} failures\n{}",
        all.failures.len(),
        all.failures.join("\n")
    );
    assert!(processor == Processor::Off || all.ran > 0, "{processor} ran nothing");
    assert!(all.cases >= CASES_MIN, "{} cases were run, of at least {CASES_MIN}", all.cases);
}

#[test]
fn corpus_by_the_planner() {
    run_corpus(Processor::Off, &RunnerOptions::default());
}

#[test]
fn corpus_on_the_cpu() {
    run_corpus(Processor::Cpu, &RunnerOptions::default());
}

#[test]
fn corpus_in_little_memory() {
    let limits =
        RunnerOptions { memory_limit_bytes: Some(LITTLE_MEMORY_BYTES), ..RunnerOptions::default() };
    run_corpus(Processor::Cpu, &limits);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_corpus() {
    run_corpus(Processor::Cuda, &RunnerOptions::default());
}

/// For a run by hand: `HEADRACE_SLT_PROCESSOR=cuda cargo test .. -- corpus_by_environment`.
#[test]
#[ignore = "takes its processor from HEADRACE_SLT_PROCESSOR"]
fn corpus_by_environment() {
    let name = std::env::var("HEADRACE_SLT_PROCESSOR").unwrap();
    run_corpus(name.parse().unwrap(), &RunnerOptions::default());
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
                strict_column_validator,
            );
            runner.update_test_file(&script, " ", validator, normalizer, columns).await.unwrap();
        }
    });
}
