//! `run` of a suite, such as `headrace ssb run`.

use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use headrace_engine::{Processor, Session};
use headrace_suites::{Query, Suite};
use serde::Serialize;

use crate::args::RunArgs;
use crate::error::{CliError, Context, Result};
use crate::machine::Machine;
use crate::output::{print, print_json};
use crate::session::{self, failure};
use crate::suite::measure::{Measurement, Plan, measure};
use crate::suite::table;

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Record<'a> {
    suite: &'static str,
    scale: f64,
    machine: Machine,
    version: &'static str,
    command: String,
    memory_limit_bytes: Option<u64>,
    peak_rss_bytes: Option<u64>,
    runs: &'a [Measurement],
}

/// Runs, prints the table, writes the JSON. A wrong answer is an error at the end.
pub async fn run(suite: Suite, args: &RunArgs) -> Result<()> {
    let queries = selected(suite, &args.queries)?;
    if !args.data.exists() {
        let cause = format!("{}: no {} tables", args.data.display(), suite.title());
        return Err(CliError::new(cause).hint(generate_hint(suite, &args.data)));
    }
    let engine = args.engine.of_this_process();
    // The process ends with its queries.
    let session = session::open(&args.data, &engine)?.inline();
    if args.runs > 0 {
        session.runner().allow_rehearsals();
    }
    let scale = scale(suite, &args.data, &session).await?;
    let off = session::on(Processor::Off, &engine);
    let baseline = if args.check { Some(session::open(&args.data, &off)?) } else { None };
    let files = if args.cold { data_files(&args.data)? } else { Vec::new() };
    let plan = Plan { runs: args.runs, drop_before_first: &files, baseline: baseline.as_ref() };
    let mut measurements = Vec::new();
    for query in queries {
        measurements.push(measure(&session, query, &plan).await?);
    }
    let peak = headrace_io::system::peak_memory_bytes();
    let peak_shown =
        peak.map(|bytes| format!("peak resident memory {:.0} MB\n", bytes as f64 / 1e6));
    print(&format!(
        "{}{}\n{}",
        table::render(&measurements),
        table::totals(&measurements),
        peak_shown.unwrap_or_default()
    ))?;
    if let Some(path) = &args.json {
        let record = Record {
            suite: suite.name(),
            scale,
            machine: Machine::read(),
            version: env!("CARGO_PKG_VERSION"),
            command: command_line(),
            memory_limit_bytes: args.engine.memory_limit,
            peak_rss_bytes: peak,
            runs: &measurements,
        };
        write_json(path, &record)?;
    }
    session::write_trace(&session, &args.engine)?;
    refuse_wrong_answers(&measurements)
}

fn generate_hint(suite: Suite, data: &Path) -> String {
    let (name, out) = (suite.name(), data.display());
    format!("generate the tables first: headrace {name} generate --scale 1 --out {out}")
}

/// The scale of the manifest; without one (tables of another generator), inferred from the number of rows.
async fn scale(suite: Suite, data: &Path, session: &Session) -> Result<f64> {
    let hint = generate_hint(suite, data);
    if let Some(manifest) =
        headrace_suites::read_manifest(suite, data).map_err(|e| CliError::new(e).hint(&hint))?
    {
        return Ok(manifest.scale);
    }
    for table in suite.tables() {
        if !session.has_table(table) {
            let (folder, title) = (data.display(), suite.title());
            let cause = format!("{folder}: no {title} tables: there is no {table}");
            return Err(CliError::new(cause).hint(hint));
        }
    }
    let table = suite.fact_table();
    let failed = |error| failure(table, &error);
    let count = format!("select count(*) from {table}");
    let query = session.sql(&count).await.map_err(failed)?;
    let (batches, _) = query.collect().await.map_err(failed)?;
    let rows = batches.first().map_or(0, |b| b.column(0).as_primitive::<Int64Type>().value(0));
    Ok(rows as f64 / suite.fact_rows())
}

/// The query texts by name, as JSON.
pub fn print_queries(suite: Suite) -> Result<()> {
    let queries = suite.queries().iter();
    let texts: serde_json::Map<String, serde_json::Value> =
        queries.map(|query| (query.id.to_string(), query.sql.into())).collect();
    print_json(&texts)
}

fn selected(suite: Suite, wanted: &[String]) -> Result<Vec<&'static Query>> {
    if wanted.is_empty() {
        return Ok(suite.queries().iter().collect());
    }
    wanted.iter().map(|id| find(suite, id.trim())).collect()
}

fn find(suite: Suite, id: &str) -> Result<&'static Query> {
    suite.queries().iter().find(|query| query.id == id).ok_or_else(|| {
        let ids: Vec<&str> = suite.queries().iter().map(|query| query.id).collect();
        CliError::usage(format!("there is no query {id:?}"))
            .hint(format!("one of {}", ids.join(", ")))
    })
}

/// Every file below a folder.
fn data_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).at(folder.display())? {
        let path = entry.at(folder.display())?.path();
        if path.is_dir() {
            files.extend(data_files(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

fn write_json(path: &Path, record: &Record<'_>) -> Result<()> {
    let text = serde_json::to_string_pretty(record).at(path.display())?;
    std::fs::write(path, text + "\n").at(path.display())
}

fn command_line() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("headrace {}", arguments.join(" "))
}

/// Fails if any answer differed from the baseline's.
pub fn refuse_wrong_answers(measurements: &[Measurement]) -> Result<()> {
    let wrong: Vec<&str> = measurements
        .iter()
        .filter(|m| m.equal_to_off == Some(false))
        .map(|m| m.query.as_str())
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(CliError::new(format!("wrong answers: query {}", wrong.join(", "))))
}
