//! Measures the generator of the Star Schema Benchmark: `speed SCALE DIR [THREADS] [LINEORDER_FILES]`.
//!
//! Prints the rows of lineorder a second that one thread computes without writing, and those of a
//! whole run into DIR.

use std::{path::PathBuf, process::ExitCode, time::Instant};

use headrace_suites::ssb::{Generator, Table};
use headrace_suites::{GenerateOptions, Suite, SuiteError, generate};

const ROWS_PER_BATCH: u64 = 1 << 20;

/// Rows a second of one thread over at most the first ten batches.
fn compute_rate(scale: f64) -> Result<f64, SuiteError> {
    let data = Generator::new(scale, 42)?;
    let rows = data.rows(Table::Lineorder).min(10 * ROWS_PER_BATCH);
    let started = Instant::now();
    let mut start = 0;
    while start < rows {
        let end = rows.min(start + ROWS_PER_BATCH);
        std::hint::black_box(data.batch(Table::Lineorder, start..end)?);
        start = end;
    }
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}

fn measure(scale: f64, out: PathBuf, threads: usize, fact_files: u32) -> Result<(), SuiteError> {
    println!("compute, 1 thread: {:.1} M rows/s", compute_rate(scale)? / 1e6);
    let options =
        GenerateOptions { threads, fact_files, ..GenerateOptions::new(Suite::Ssb, scale, out) };
    let summary = generate(&options)?;
    let seconds = summary.elapsed.as_secs_f64();
    println!(
        "whole run: {} rows, {:.2} GB in {seconds:.2} s: {:.1} M rows/s, {:.2} GB/s{}",
        summary.rows,
        summary.bytes as f64 / 1e9,
        summary.rows as f64 / seconds / 1e6,
        summary.bytes as f64 / seconds / 1e9,
        if summary.reused { " (was complete already)" } else { "" }
    );
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |position: usize| arguments.get(position).map_or(Some(0), |text| text.parse().ok());
    let (Some(Ok(scale)), Some(out), Some(threads), Some(files)) =
        (arguments.first().map(|text| text.parse()), arguments.get(1), number(2), number(3))
    else {
        eprintln!("usage: speed SCALE DIR [THREADS] [LINEORDER_FILES]");
        return ExitCode::from(2);
    };
    match measure(scale, out.into(), threads as usize, files) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
