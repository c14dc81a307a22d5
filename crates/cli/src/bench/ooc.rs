//! `headrace bench ooc`: a thin door over `headrace_bench::ooc`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use headrace_bench::ooc::{self, Benchmark, OocBenchError, OocPlan, OocRecord, render};
use headrace_io::write::folder_of;

use crate::error::{CliError, Result};
use crate::machine::Machine;
use crate::output::{is_stdout, print, put};
use crate::sizes::parse_bytes;

/// `bench ooc`.
#[derive(Debug, Args)]
pub struct OocArgs {
    /// What to measure: intersect, sort, matvec or all.
    #[arg(value_name = "OPERATOR", default_value = "all", value_parser = parse_operator)]
    pub operator: OperatorArg,
    /// Folder on the storage to measure; files are made in it, and removed at the end.
    #[arg(long, value_name = "DIR")]
    pub folder: PathBuf,
    /// Space that files may take at a time: inputs, results and temporary files.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub max: u64,
    /// One small size, few chunk sizes and shares, and one run of each point.
    #[arg(long)]
    pub quick: bool,
    /// Runs of each point, of which the median counts (default: 3; with --quick 1).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Write the record as JSON ("-": to standard output, in place of the text).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the tables as Markdown ("-": to standard output, in place of the text).
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// No line for each point.
    #[arg(short, long)]
    pub quiet: bool,
}

/// One operator, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorArg {
    /// All operators.
    All,
    /// This one.
    One(Benchmark),
}

fn parse_operator(name: &str) -> std::result::Result<OperatorArg, String> {
    match name {
        "all" => Ok(OperatorArg::All),
        name => name.parse().map(OperatorArg::One).map_err(|told| format!("{told}, all")),
    }
}

/// Measures as the command line says, then prints and writes the result.
pub fn run(args: &OocArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    check(args)?;
    let plan = OocPlan {
        benchmarks: match args.operator {
            OperatorArg::All => Benchmark::ALL.to_vec(),
            OperatorArg::One(benchmark) => vec![benchmark],
        },
        folder: args.folder.clone(),
        max_bytes: args.max,
        is_quick: args.quick,
        runs: args.runs.map_or(OocPlan::usual_runs(args.quick), |runs| runs as usize),
        command: command(),
        cancel,
    };
    let tell = |line: &str| {
        if !args.quiet {
            say!("{line}");
        }
    };
    let record = ooc::run(&plan, &tell).map_err(failure)?;
    write(args, &record)?;
    match record.failures().next() {
        None => Ok(()),
        Some(first) => {
            let count = record.failures().count();
            let what = format!("{count} points failed; {}: {}", first.variant, first.reason);
            Err(CliError::new(what).hint("headrace doctor looks at the machine"))
        }
    }
}

/// Checked before minutes of measuring, not after.
fn check(args: &OocArgs) -> Result<()> {
    let files = || [&args.json, &args.markdown].into_iter().flatten();
    if files().filter(|file| is_stdout(file)).count() > 1 {
        return Err(CliError::usage("--json and --markdown cannot both be standard output")
            .hint("name a file for one of them"));
    }
    for file in files().filter(|file| !is_stdout(file)) {
        let folder = folder_of(file);
        if !folder.is_dir() {
            return Err(CliError::new(format!("{}: there is no such folder", folder.display()))
                .hint(format!("mkdir -p {}", folder.display())));
        }
    }
    Ok(())
}

fn write(args: &OocArgs, record: &OocRecord) -> Result<()> {
    let is_taken = |file: &Option<PathBuf>| file.as_deref().is_some_and(is_stdout);
    if !is_taken(&args.json) && !is_taken(&args.markdown) {
        print(&render::text(record))?;
    }
    if let Some(file) = &args.json {
        put(file, &render::json_document(&Machine::read(), record))?;
    }
    if let Some(file) = &args.markdown {
        put(file, &render::markdown(record))?;
    }
    Ok(())
}

fn command() -> String {
    let words = std::env::args_os().skip(1);
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    format!("headrace {}", words.join(" "))
}

fn failure(error: OocBenchError) -> CliError {
    let is_usage = error.is_usage();
    let failure = CliError::carrying_hint(error);
    if is_usage { failure.into_usage() } else { failure }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn operators_are_named_alone_or_all_together() {
        assert_eq!(parse_operator("all").unwrap(), OperatorArg::All);
        let one = OperatorArg::One(Benchmark::Intersect);
        assert_eq!(parse_operator("intersect").unwrap(), one);
        assert!(parse_operator("join").unwrap_err().contains("intersect"));
    }
}
