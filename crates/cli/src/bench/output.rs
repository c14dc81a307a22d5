//! What was measured, on standard output and in files. A file is either written whole or not at
//! all.

use headrace_flow::Trace;
use headrace_gauge::bench::{BenchRun, Sweep, picture, render};
use headrace_gauge::plot::{SweepPlot, sweep_svg};

use super::args::IoArgs;
use crate::error::{CliError, Context, Result};
use crate::machine::Machine;
use crate::output::{folder_of, is_stdout, print, put};
use crate::trace;

/// Whether what is asked for can be written: better known before minutes of measuring than after.
pub fn check(args: &IoArgs) -> Result<()> {
    for file in [&args.json, &args.plot, &args.trace].into_iter().flatten() {
        if is_stdout(file) {
            continue;
        }
        let folder = folder_of(file);
        if !folder.is_dir() {
            return Err(CliError::new(format!("{}: there is no such folder", folder.display()))
                .hint(format!("mkdir -p {}", folder.display())));
        }
        if file.is_dir() {
            return Err(
                CliError::new(format!("{}: this is a folder", file.display())).hint("name a file")
            );
        }
    }
    Ok(())
}

/// A run, as soon as it is done.
pub fn run(args: &IoArgs, run: &BenchRun) -> Result<()> {
    if !json_is_stdout(args) {
        print(&format!("{}\n", render::text(run)))?;
    }
    Ok(())
}

/// A sweep, when it is done.
pub fn sweep(args: &IoArgs, sweep: &Sweep) -> Result<()> {
    if !json_is_stdout(args) {
        print(&render::sweep_table(sweep))?;
    }
    if let Some(file) = &args.json {
        put(file, &render::sweep_document(&Machine::read(), sweep))?;
    }
    plot(args, || picture::of_sweep(sweep))
}

/// The files that were asked for.
pub fn files_of_runs(args: &IoArgs, runs: &[BenchRun], trace: Option<&Trace>) -> Result<()> {
    if let Some(file) = &args.json {
        put(file, &render::json_document(&Machine::read(), runs))?;
    }
    plot(args, || picture::of_runs(runs))?;
    let (Some(file), Some(trace)) = (&args.trace, trace) else { return Ok(()) };
    trace::write(file, trace)
}

fn plot(args: &IoArgs, plot: impl FnOnce() -> SweepPlot) -> Result<()> {
    let Some(file) = &args.plot else { return Ok(()) };
    put(file, &sweep_svg(&plot()).at(file.display())?)
}

fn json_is_stdout(args: &IoArgs) -> bool {
    args.json.as_deref().is_some_and(is_stdout)
}
