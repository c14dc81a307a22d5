//! Running SQL from the command line, a file, a pipe or a terminal.

use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::CommandFactory;

use crate::args::{Cli, Format, QueryArgs};
use crate::error::{CliError, Context, Result};
use crate::memory::peak_rss_bytes;
use crate::session;
use crate::shell::{self, Origin, Shell};

/// Where SQL comes from.
enum Source {
    Text(String),
    File { name: String, text: String },
    Terminal,
}

/// Whether somebody types: without SQL, between two terminals.
pub fn is_typed(args: &QueryArgs) -> bool {
    args.sql.is_none()
        && args.file.is_none()
        && io::stdin().is_terminal()
        && io::stdout().is_terminal()
}

/// Runs every statement; stops at the first that fails.
pub async fn run(args: &QueryArgs, stop: Arc<AtomicBool>) -> Result<()> {
    if args.format == Some(Format::Parquet) && args.output.is_none() {
        return Err(CliError::usage("parquet needs a file").hint("-o FILE"));
    }
    let source = source(args)?;
    let session = session::new(&args.engine)?;
    for path in &args.data {
        session::register(&session, path).await?;
    }
    let mut shell = Shell::new(session, args)?;
    match source {
        Source::Text(text) => shell.run(&text, Origin::Typed).await.map(drop),
        Source::File { name, text } => shell.run(&text, Origin::Named(&name)).await.map(drop),
        Source::Terminal => shell::run_terminal(&mut shell, args, stop).await,
    }?;
    let session = shell.finish()?;
    if let (Some(limit), false) = (args.engine.memory_limit, args.quiet) {
        let peak = peak_rss_bytes().unwrap_or_default();
        eprintln!("peak resident memory {:.0} MB, limit {:.0} MB", mb(peak), mb(limit));
    }
    session::write_trace(&session, &args.engine)
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn source(args: &QueryArgs) -> Result<Source> {
    match (&args.sql, &args.file) {
        (Some(sql), _) => Ok(Source::Text(sql.clone())),
        (None, Some(file)) if file == Path::new("-") => standard_input().map(Source::Text),
        (None, Some(file)) => {
            let name = file.display().to_string();
            let text = std::fs::read_to_string(file).at(&name)?;
            Ok(Source::File { name, text })
        }
        (None, None) if is_typed(args) => Ok(Source::Terminal),
        (None, None) => {
            let text = match io::stdin().is_terminal() {
                true => String::new(),
                false => standard_input()?,
            };
            if !text.trim().is_empty() {
                return Ok(Source::Text(text));
            }
            Cli::command().print_help().at("standard output")?;
            Err(CliError::usage("nothing to run")
                .hint("headrace demo, or headrace -c \"select 1\""))
        }
    }
}

fn standard_input() -> Result<String> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).at("standard input")?;
    Ok(text)
}
