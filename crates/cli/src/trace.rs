//! Traces on their way into files: Chrome/Perfetto JSON, or a picture if the name ends in .svg.

use std::path::Path;

use headrace_bench::timeline::chrome_svg;
use headrace_flow::Trace;

use crate::args::TraceArgs;
use crate::error::{Context, Result};
use crate::output::put;

/// Spans that a recorder of the command line has room for.
pub const SPANS_MAX: usize = 1 << 20;

/// Writes what was recorded.
pub fn write(file: &Path, trace: &Trace) -> Result<()> {
    if trace.dropped() > 0 {
        say!("{}: {} spans did not fit the trace", file.display(), trace.dropped());
    }
    let mut json = Vec::new();
    trace.write_json(&mut json).at(file.display())?;
    write_json(file, json)
}

/// `headrace trace`: several files become one picture, or one file.
pub fn merge(args: &TraceArgs) -> Result<()> {
    let mut json = Vec::new();
    // The error names the file.
    Trace::merge_files(&args.files, &mut json).at("trace")?;
    write_json(&args.out, json)
}

fn write_json(file: &Path, json: Vec<u8>) -> Result<()> {
    let text = if file.extension().is_some_and(|extension| extension == "svg") {
        chrome_svg(&[("trace", &json)]).at(file.display())?
    } else {
        String::from_utf8(json).at(file.display())?
    };
    put(file, &text)
}
