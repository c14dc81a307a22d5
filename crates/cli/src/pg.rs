//! `headrace pg`: a thin door over `headrace_pg`.

use std::io::IsTerminal;
use std::sync::atomic::AtomicBool;

use clap::Subcommand;
use headrace_pg::PgError;
use headrace_pg::export::{self, ExportArgs, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::error::{CliError, Result};
use crate::output::Format;

/// `pg`.
#[derive(Debug, Subcommand)]
pub enum PgCommand {
    /// Write a table, or the rows of a query, as an Arrow file that Headrace streams.
    Export(ExportArgs),
}

/// Runs the subcommand.
pub fn run(command: &PgCommand, cancel: &AtomicBool) -> Result<()> {
    match command {
        PgCommand::Export(args) => export(args, cancel),
    }
}

fn export(args: &ExportArgs, cancel: &AtomicBool) -> Result<()> {
    Format::check_arrow_name(&args.out)?;
    let bar = if args.quiet || !std::io::stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(0).with_style(style(args))
    };
    let show = |progress: Progress| {
        bar.set_length(progress.server_bytes_total);
        bar.set_position(progress.server_bytes);
        bar.set_message(format!("{} rows", progress.rows));
    };
    let done = export::run(args, cancel, &show);
    bar.finish_and_clear();
    let summary = done.map_err(failure)?;
    if !args.quiet {
        say!("{}", summary.text());
    }
    Ok(())
}

/// The crate's errors in this command line's form.
pub fn failure(error: PgError) -> CliError {
    let failed = match error.exit_code() {
        2 => CliError::usage(&error.cause),
        _ => CliError::new(&error.cause),
    };
    match error.remedy.as_str() {
        "" => failed,
        remedy => failed.hint(remedy),
    }
}

/// The number of rows of a query is unknown.
fn style(args: &ExportArgs) -> ProgressStyle {
    let template = match args.query {
        Some(_) => "exporting {msg}, {elapsed}",
        None => {
            "exporting {bar:40} {percent}% of {decimal_total_bytes}, {decimal_bytes_per_sec}, {msg}, {eta} left"
        }
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
