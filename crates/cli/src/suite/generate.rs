//! `generate` of a suite, such as `headrace ssb generate`.

use std::io::IsTerminal;
use std::sync::atomic::AtomicBool;

use headrace_suites::{GenerateOptions, Progress, Suite, SuiteError, Summary};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::GenerateArgs;
use crate::error::{CliError, Result};

/// Generates from the command line and reports the written files.
pub fn run(suite: Suite, args: &GenerateArgs, seed: u64, cancel: &AtomicBool) -> Result<()> {
    let start = std::time::Instant::now();
    let options = GenerateOptions {
        seed,
        threads: args.threads.unwrap_or(0) as usize,
        rows_per_batch: args.batch_rows,
        fact_files: args.files.unwrap_or(0),
        ..GenerateOptions::new(suite, args.scale, &args.out)
    };
    let summary = generate(options, args.quiet, cancel)?;
    if !args.quiet {
        let done = if summary.reused { "already there" } else { "generated" };
        say!(
            "{}: {done}: scale {}, {} rows, {:.3} GB, {:.1} s",
            args.out.display(),
            args.scale,
            summary.rows,
            summary.bytes as f64 / 1e9,
            start.elapsed().as_secs_f64(),
        );
    }
    Ok(())
}

/// Generates unless the same data already exists. The progress bar shows only on a terminal.
pub fn generate(options: GenerateOptions<'_>, quiet: bool, cancel: &AtomicBool) -> Result<Summary> {
    let bar = if quiet || !std::io::stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(0).with_style(style())
    };
    let show = |progress: Progress| {
        bar.set_length(progress.rows_total);
        bar.set_position(progress.rows_done);
    };
    let options = GenerateOptions { progress: Some(&show), cancel: Some(cancel), ..options };
    let result = headrace_suites::generate(&options);
    bar.finish_and_clear();
    result.map_err(|error| match error {
        SuiteError::Cancelled => CliError::new("cancelled; no half-written file was left"),
        other => CliError::new(other),
    })
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("generating {bar:40} {percent}% {pos} rows, {per_sec}, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
