//! `headrace demo`: one command from nothing to a table of answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use headrace_engine::Processor;
use headrace_suites::{GenerateOptions, Suite};

use crate::args::{DemoArgs, EngineArgs};
use crate::blocking::blocking;
use crate::error::Result;
use crate::output::print;
use crate::session;
use crate::suite::generate::generate;
use crate::suite::measure::{Measurement, Plan, measure};
use crate::suite::{run, table};

/// Generates once, runs every query on every processor present, checks every answer.
pub async fn run(args: &DemoArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    let folder =
        args.data.clone().unwrap_or_else(|| default_folder(&format!("ssb-{}", args.scale)));
    say!("Star Schema Benchmark, scale {}, in {}", args.scale, folder.display());
    let (out, scale) = (folder.clone(), args.scale);
    let summary =
        blocking(move || generate(GenerateOptions::new(Suite::Ssb, scale, &out), false, &cancel))
            .await?;
    say!("{} rows in five tables, {:.2} GB on disk", summary.rows, summary.bytes as f64 / 1e9);
    let engine = EngineArgs::default();
    let baseline = session::open(&folder, &session::on(Processor::Off, &engine))?;
    let mut measurements = Vec::new();
    for processor in processors() {
        let strict = EngineArgs { fallback: "forbid".into(), ..session::on(processor, &engine) };
        let session = session::open(&folder, &strict)?;
        for query in Suite::Ssb.queries() {
            let plan = Plan { runs: 2, drop_before_first: &[], baseline: Some(&baseline) };
            measurements.push(measure(&session, query, &plan).await?);
        }
    }
    print_result(&measurements, &folder)?;
    run::refuse_wrong_answers(&measurements)
}

fn print_result(measurements: &[Measurement], folder: &Path) -> Result<()> {
    let (program, data) = (this_program(), quoted(folder));
    print(&format!(
        "{}{}\n\nTry next:\n  {program} --data {data}\n  {program} --data {data} -c \"explain analyze select d_year, \
         sum(lo_revenue) from lineorder, date where lo_orderdate = d_datekey group by d_year\"\n  \
         {program} -c \"select * from 'your.parquet' limit 3\"\n",
        table::render(measurements),
        table::totals(measurements),
    ))
}

/// This program in shell syntax.
pub(super) fn this_program() -> String {
    let program = std::env::args_os().next().unwrap_or_else(|| "headrace".into());
    quoted(program.as_ref())
}

/// A path in shell syntax.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// The CPU always; the GPU if one is usable. Otherwise the reason is reported.
pub(super) fn processors() -> Vec<Processor> {
    let mut found = vec![Processor::Cpu];
    match headrace_gpu::probe().why_unusable() {
        None => found.push(Processor::Cuda),
        Some(reason) => say!("no GPU run: {}", reason.lines().next().unwrap_or_default()),
    }
    found
}

/// Under `$XDG_DATA_HOME/headrace`, `~/.local/share/headrace` or the temporary folder.
pub(super) fn default_folder(name: &str) -> PathBuf {
    let base = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")))
        .unwrap_or_else(std::env::temp_dir);
    base.join("headrace").join(name)
}
