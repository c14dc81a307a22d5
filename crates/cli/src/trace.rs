//! Trace files: Chrome/Perfetto JSON, which other programs draw.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Args, Command};
use headrace_flow::Trace;

use crate::error::{Context, Result};
use crate::output::put;

/// Maximum spans of a trace.
pub const SPANS_MAX: usize = 1 << 20;

/// The file of a trace. A name of a picture format is refused before anything runs.
#[derive(Debug, Clone)]
pub struct TraceFileParser;

impl TypedValueParser for TraceFileParser {
    type Value = PathBuf;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> std::result::Result<PathBuf, clap::Error> {
        let file = PathBufValueParser::new().parse_ref(command, arg, value)?;
        if !file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg")) {
            return Ok(file);
        }
        let option = arg.and_then(Arg::get_long).unwrap_or("trace");
        let refused = format!(
            "{}: traces are written as JSON\n\nhint: --{option} {}, and open it at ui.perfetto.dev\n",
            file.display(),
            file.with_extension("json").display()
        );
        Err(clap::Error::raw(ErrorKind::ValueValidation, refused))
    }
}

/// `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Files that --trace wrote, or other files in the Chrome trace format.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// File to write, as Chrome/Perfetto JSON ("-": standard output).
    #[arg(long, value_name = "FILE", value_parser = TraceFileParser)]
    pub out: PathBuf,
}

/// Writes the trace.
pub fn write(file: &Path, trace: &Trace) -> Result<()> {
    if trace.dropped() > 0 {
        say!("{}: {} spans did not fit the trace", file.display(), trace.dropped());
    }
    let mut json = Vec::new();
    trace.write_json(&mut json).at(file.display())?;
    put_json(file, json)
}

/// `headrace trace`: merges several files.
pub fn merge(args: &TraceArgs) -> Result<()> {
    let mut json = Vec::new();
    // The error names the file.
    Trace::merge_files(&args.files, &mut json).at("trace")?;
    put_json(&args.out, json)
}

fn put_json(file: &Path, json: Vec<u8>) -> Result<()> {
    put(file, &String::from_utf8(json).at(file.display())?)
}
