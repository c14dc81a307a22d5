//! Results on standard output and in files. A file is written completely or not at all.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use headrace_bench::transfer::{BenchRun, Sweep, render};
use headrace_flow::Trace;
use headrace_io::write::folder_of;

use super::args::IoArgs;
use crate::error::{CliError, Result};
use crate::machine::Machine;
use crate::output::{is_stdout, print, put};
use crate::trace;

/// Whether the requested files can be written; checked before minutes of measuring, not after.
pub fn check(args: &IoArgs) -> Result<()> {
    if outputs(args).filter(|file| is_stdout(file)).count() > 1 {
        return Err(CliError::usage("--json and --trace cannot both be standard output")
            .hint("name a file for --json or for --trace"));
    }
    for file in outputs(args).filter(|file| !is_stdout(file)) {
        if outputs(args).filter(|other| *other == file).count() > 1 {
            return Err(CliError::usage(format!("{}: named twice", file.display()))
                .hint("--json and --trace each need a file of their own"));
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
        if is_something_else(file) {
            return Err(CliError::usage(format!(
                "{}: there is a file already that is not JSON, and it would be lost",
                file.display()
            ))
            .hint("--json and --trace take the file to write; \"-\" is standard output"));
        }
    }
    Ok(())
}

/// A user who takes `--json` for a switch names the next word as the file: a file that does not
/// begin like our records is not replaced.
fn is_something_else(file: &Path) -> bool {
    if !file.is_file() {
        return false;
    }
    let mut first = [0];
    match File::open(file).and_then(|mut opened| opened.read(&mut first)) {
        Ok(0) => false,
        Ok(_) => !matches!(first[0], b'{' | b'['),
        // It cannot be read, so what it is stays unknown.
        Err(_) => true,
    }
}

fn outputs(args: &IoArgs) -> impl Iterator<Item = &Path> {
    [&args.json, &args.trace].into_iter().flatten().map(PathBuf::as_path)
}

/// A run, when it is done.
pub fn run(args: &IoArgs, run: &BenchRun) -> Result<()> {
    if !stdout_is_taken(args) {
        print(&format!("{}\n", render::text(run)))?;
    }
    Ok(())
}

/// A sweep, when it is done.
pub fn sweep(args: &IoArgs, sweep: &Sweep) -> Result<()> {
    if !stdout_is_taken(args) {
        print(&render::sweep_table(sweep))?;
    }
    if let Some(file) = &args.json {
        put(file, &render::sweep_document(&Machine::read(), sweep))?;
    }
    Ok(())
}

/// The requested files.
pub fn files_of_runs(args: &IoArgs, runs: &[BenchRun], trace: Option<&Trace>) -> Result<()> {
    if let Some(file) = &args.json {
        put(file, &render::json_document(&Machine::read(), runs))?;
    }
    let (Some(file), Some(trace)) = (&args.trace, trace) else { return Ok(()) };
    trace::write(file, trace)
}

/// Standard output carries one thing: a file that goes there replaces the text.
fn stdout_is_taken(args: &IoArgs) -> bool {
    outputs(args).any(is_stdout)
}
