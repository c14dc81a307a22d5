//! What was measured, on standard output and in files. A file is either written whole or not at
//! all.

use std::io::Write;
use std::path::Path;

use headrace_flow::Trace;
use headrace_gauge::bench::{BenchRun, Sweep, picture, render};
use headrace_gauge::plot::{SweepPlot, sweep_svg};
use headrace_gauge::timeline::trace_svg;

use super::args::IoArgs;
use crate::error::{CliError, Context, Result};
use crate::machine::Machine;

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
    if trace.dropped() > 0 {
        eprintln!("{}: {} spans did not fit the trace", file.display(), trace.dropped());
    }
    let is_picture = file.extension().is_some_and(|extension| extension == "svg");
    let text = if is_picture {
        trace_svg(std::slice::from_ref(trace)).at(file.display())?
    } else {
        let mut json = Vec::new();
        trace.write_json(&mut json).at(file.display())?;
        String::from_utf8(json).at(file.display())?
    };
    put(file, &text)
}

fn plot(args: &IoArgs, plot: impl FnOnce() -> SweepPlot) -> Result<()> {
    let Some(file) = &args.plot else { return Ok(()) };
    put(file, &sweep_svg(&plot()).at(file.display())?)
}

fn json_is_stdout(args: &IoArgs) -> bool {
    args.json.as_deref().is_some_and(is_stdout)
}

fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}

fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Writes beside the file and renames, so that nobody ever finds half of it.
fn put(file: &Path, text: &str) -> Result<()> {
    if is_stdout(file) {
        return print(text);
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder_of(file).join(format!(".{name}.{}.partial", std::process::id()));
    let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, file));
    if written.is_err() {
        // Nothing half-written stays; if even that fails, its name says what it is.
        let _ = std::fs::remove_file(&temporary);
    }
    written.at(file.display())
}

fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads our output has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.at("standard output"),
    }
}
