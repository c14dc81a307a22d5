//! `headrace doctor`: a thin door over `headrace_doctor`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use headrace_doctor::{Gds, Met, Options};
use headrace_flow::Trace;

use crate::error::Result;
use crate::output;
use crate::pg;
use crate::trace::{self, TraceFileParser};

/// `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headrace doctor
  headrace doctor /data/tables --write
  headrace doctor /mnt/nfs/fact.arrow --json
  headrace doctor /data/tables --gds
  headrace doctor --postgres 'host=/var/run/postgresql dbname=shop'

Exit codes: 0 all well, 1 works but slower than it could, 2 broken. With --gds: 0 if a way is open, else 1.")]
pub struct DoctorArgs {
    /// Files, folders (the largest file in them stands for them) or block devices to try.
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Why queries of a PostgreSQL server's tables are not faster, instead of paths. What the DSN (a
    /// URI or key=value pairs) leaves open comes from PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE.
    #[arg(
        long,
        value_name = "DSN",
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with_all = ["paths", "quick", "write", "trace"]
    )]
    pub postgres: Option<String>,
    /// Look at the server's small tables, too.
    #[arg(long, requires = "postgres")]
    pub all: bool,
    /// A table instead: what is here of GPUDirect Storage, by the ways that bypass host memory, and which of them cuFile took.
    #[arg(long, conflicts_with = "postgres")]
    pub gds: bool,
    /// Every fact and finding as JSON.
    #[arg(long)]
    pub json: bool,
    /// Try everything, time nothing.
    #[arg(long)]
    pub quick: bool,
    /// Also write a file to each path (beside it, if it is a file), read it back and remove it.
    #[arg(long)]
    pub write: bool,
    /// Do not add what was measured to the record of this machine's ceilings.
    #[arg(long)]
    pub no_record: bool,
    /// Record the races that try the ways, as Chrome/Perfetto JSON.
    #[arg(long, value_name = "FILE", value_parser = TraceFileParser)]
    pub trace: Option<PathBuf>,
    /// Do not say what is being looked at.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Examines, prints, and returns the severity as its exit code.
pub fn run(args: &DoctorArgs, cancel: Arc<AtomicBool>) -> Result<i32> {
    if let Some(dsn) = &args.postgres {
        return examine_server(args, dsn, &cancel);
    }
    let options = options(args, cancel);
    let report = headrace_doctor::examine(&args.paths, &options);
    clear_progress(args);
    if let (Some(file), Some(recorded)) = (&args.trace, &options.trace) {
        trace::write(file, recorded)?;
    }
    let gds = args.gds.then(|| headrace_doctor::gds(&report.facts));
    match (&gds, args.json) {
        (Some(gds), true) => output::print_json(gds)?,
        (Some(gds), false) => output::print(&headrace_doctor::render_gds(gds))?,
        (None, true) => output::print_json(&report)?,
        (None, false) => output::print(&headrace_doctor::render(&report))?,
    }
    // Of the table: whether a way is open.
    let is_open = |gds: &Gds| gds.ways.iter().any(|(_, met)| *met == Met::Yes);
    Ok(gds.map_or(report.exit_code, |gds| i32::from(!is_open(&gds))))
}

fn examine_server(args: &DoctorArgs, dsn: &str, cancel: &AtomicBool) -> Result<i32> {
    let report = headrace_pg::doctor::examine(dsn, args.all, cancel).map_err(pg::failure)?;
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&headrace_pg::doctor::render(&report))?;
    }
    Ok(report.exit_code)
}

fn options(args: &DoctorArgs, cancel: Arc<AtomicBool>) -> Options {
    let mut options = Options {
        quick: args.quick,
        write: args.write,
        forget: args.no_record,
        cancel,
        progress: None,
        trace: args.trace.as_ref().map(|_| Trace::new("headrace doctor", trace::SPANS_MAX)),
    };
    if shows_progress(args) {
        options.progress = Some(Arc::new(|what: &str| eprint!("\r\x1b[2Klooking at {what} …")));
    }
    options
}

fn shows_progress(args: &DoctorArgs) -> bool {
    !args.quiet && std::io::stderr().is_terminal()
}

fn clear_progress(args: &DoctorArgs) {
    if shows_progress(args) {
        eprint!("\r\x1b[2K");
    }
}
