//! `headrace ssb run`.

use std::path::{Path, PathBuf};

use headrace_engine::Processor;
use headrace_ssb::{Manifest, QUERIES, Query};
use serde::Serialize;

use crate::args::RunArgs;
use crate::error::{CliError, Context, Result};
use crate::machine::Machine;
use crate::memory::peak_rss_bytes;
use crate::session;
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
    let manifest = manifest(&args.data)?;
    let session = session::open(&args.data, &args.engine)?;
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
            scale: manifest.scale,
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

fn manifest(data: &Path) -> Result<Manifest> {
    let hint = format!(
        "generate the tables first: headrace ssb generate --scale 1 --out {}",
        data.display()
    );
    match headrace_ssb::read_manifest(data) {
        Ok(Some(manifest)) => Ok(manifest),
        Ok(None) => Err(CliError::new(format!("{}: no SSB tables", data.display())).hint(hint)),
        Err(error) => Err(CliError::new(error).hint(hint)),
    }
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
