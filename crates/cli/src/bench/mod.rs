//! `headrace bench`: thin doors over `headrace_bench::transfer` and `headrace_bench::ooc`.

pub mod args;
pub mod ooc;
mod output;
mod plan;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headrace_bench::transfer::{self, Bench, BenchError, BenchRun, Progress, SweepPlan};
use headrace_ceilings::{Ceilings, Recorded};

use crate::error::{CliError, Result};
use args::IoArgs;

/// Measures as the command line says, then prints and writes the result.
pub fn io(args: &IoArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    output::check(args)?;
    let progress = Arc::new(Progress::default());
    let mut base = plan::base(args)?;
    base.hooks.progress = Some(progress.clone());
    base.hooks.cancel = Some(cancel.clone());
    let mut bench = bench_with_ceilings(args);
    let watched = watch::Line::show(progress, args.quiet);
    if args.sweep {
        let plan = plan::sweep(args, base);
        return sweep(args, &mut bench, &plan, watched);
    }
    let mut runs = Vec::new();
    let mut failed = None;
    for _ in 0..args.runs {
        let run = match bench.run(&base) {
            Ok(run) => run,
            Err(error) => {
                failed = Some(failure(error));
                break;
            }
        };
        let ended = run.partial.is_some() && cancel.load(Ordering::Relaxed);
        watched.suspend(|| output::run(args, &run))?;
        runs.push(run);
        if ended {
            break;
        }
    }
    drop(watched);
    record(&mut bench);
    // What the runs before a failure measured is kept.
    if !runs.is_empty() {
        output::files_of_runs(args, &runs, base.trace.as_ref())?;
    }
    match failed {
        Some(error) => Err(error),
        None => mismatches(&runs),
    }
}

/// Without a readable record nothing is compared and nothing recorded; the measurement continues.
fn bench_with_ceilings(args: &IoArgs) -> Bench {
    match Ceilings::load() {
        Ok(ceilings) => Bench::with_ceilings(ceilings, !args.no_record),
        Err(error) => {
            say!("no ceilings to compare with: {error}");
            Bench::new()
        }
    }
}

fn record(bench: &mut Bench) {
    match bench.record_ceilings() {
        Ok(Recorded { moved_aside: Some(file) }) => {
            say!("a damaged record of ceilings was moved to {}", file.display());
        }
        Ok(_) => {}
        Err(error) => say!("the ceilings were not recorded: {error}"),
    }
}

fn sweep(args: &IoArgs, bench: &mut Bench, plan: &SweepPlan, watched: watch::Line) -> Result<()> {
    let found = transfer::sweep(bench, plan, |_| ()).map_err(failure)?;
    drop(watched);
    record(bench);
    output::sweep(args, &found)?;
    let runs: Vec<BenchRun> = found.runs().cloned().collect();
    mismatches(&runs)
}

/// Bytes that differ from their file are a failure, at any speed.
fn mismatches(runs: &[BenchRun]) -> Result<()> {
    let wrong = runs.iter().filter_map(|run| run.verification.as_ref());
    let (chunks, first) = wrong.fold((0, None), |(count, first), verification| {
        (count + verification.mismatch_count, first.or(verification.mismatches.first()))
    });
    let Some(first) = first else { return Ok(()) };
    Err(CliError::new(format!(
        "{chunks} chunks did not arrive as they lie in their files; the first is chunk {} of {} at \
         offset {}",
        first.chunk, first.file, first.offset
    ))
    .hint("run it again with another --path to see which way is at fault"))
}

fn failure(error: BenchError) -> CliError {
    let (remedy, is_usage) = (error.remedy(), error.is_usage());
    let failure = CliError::carrying_hint(error);
    let failure = if is_usage { failure.into_usage() } else { failure };
    match remedy {
        Some(hint) if !failure.has_hint() => failure.hint(hint),
        _ => failure,
    }
}
