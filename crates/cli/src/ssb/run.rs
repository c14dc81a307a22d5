//! `headrace ssb run`.

use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use headrace_engine::{Processor, Session};
use headrace_ssb::{QUERIES, Query};
use serde::Serialize;

use crate::args::RunArgs;
use crate::error::{CliError, Context, Result};
use crate::machine::Machine;
use crate::memory::peak_rss_bytes;
use crate::session::{self, failure};
use crate::ssb::measure::{Measurement, Plan, measure};
use crate::ssb::table;

/// What `--json` writes.
#[derive(Debug, Serialize)]
struct Record<'a> {
    scale: f64,
    machine: Machine,
    version: &'static str,
    command: String,
    memory_limit_bytes: Option<u64>,
    peak_rss_bytes: Option<u64>,
    runs: &'a [Measurement],
}

/// Runs, prints the table, writes the JSON. A wrong answer is an error after all of that.
pub async fn run(args: &RunArgs) -> Result<()> {
    let queries = selected(&args.queries)?;
    if !args.data.exists() {
        let cause = format!("{}: no SSB tables", args.data.display());
        return Err(CliError::new(cause).hint(generate_hint(&args.data)));
    }
    let session = session::open(&args.data, &args.engine)?;
    let scale = scale(&args.data, &session).await?;
    let off = session::on(Processor::Off, &args.engine);
    let baseline = if args.check { Some(session::open(&args.data, &off)?) } else { None };
    let files = if args.cold { data_files(&args.data)? } else { Vec::new() };
    let plan = Plan { runs: args.runs, drop_before_first: &files, baseline: baseline.as_ref() };
    let mut measurements = Vec::new();
    for query in queries {
        measurements.push(measure(&session, query, &plan).await?);
    }
    print!("{}", table::render(&measurements));
    println!("{}", table::totals(&measurements));
    let peak = peak_rss_bytes();
    if let Some(bytes) = peak {
        println!("peak resident memory {:.0} MB", bytes as f64 / 1e6);
    }
    if let Some(path) = &args.json {
        let record = Record {
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

fn generate_hint(data: &Path) -> String {
    format!("generate the tables first: headrace ssb generate --scale 1 --out {}", data.display())
}

/// Rows of lineorder at scale 1.
const LINEORDER_ROWS: f64 = 6e6;

/// The scale that the manifest says; without one, of tables that another generator wrote, what their rows say.
async fn scale(data: &Path, session: &Session) -> Result<f64> {
    let hint = generate_hint(data);
    if let Some(manifest) =
        headrace_ssb::read_manifest(data).map_err(|e| CliError::new(e).hint(&hint))?
    {
        return Ok(manifest.scale);
    }
    for table in ["lineorder", "customer", "supplier", "part", "date"] {
        if !session.has_table(table) {
            let cause = format!("{}: no SSB tables: there is no {table}", data.display());
            return Err(CliError::new(cause).hint(hint));
        }
    }
    let failed = |error| failure("lineorder", &error);
    let query = session.sql("select count(*) from lineorder").await.map_err(failed)?;
    let (batches, _) = query.collect().await.map_err(failed)?;
    let rows = batches.first().map_or(0, |b| b.column(0).as_primitive::<Int64Type>().value(0));
    Ok(rows as f64 / LINEORDER_ROWS)
}

/// The 13 query texts by name, as JSON.
pub fn print_queries() -> Result<()> {
    let texts: serde_json::Map<String, serde_json::Value> =
        QUERIES.iter().map(|query| (query.id.to_string(), query.sql.into())).collect();
    println!("{}", serde_json::to_string_pretty(&texts).at("queries")?);
    Ok(())
}

fn selected(wanted: &[String]) -> Result<Vec<&'static Query>> {
    if wanted.is_empty() {
        return Ok(QUERIES.iter().collect());
    }
    wanted.iter().map(|id| find(id.trim())).collect()
}

fn find(id: &str) -> Result<&'static Query> {
    QUERIES.iter().find(|query| query.id == id).ok_or_else(|| {
        let ids: Vec<&str> = QUERIES.iter().map(|query| query.id).collect();
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
