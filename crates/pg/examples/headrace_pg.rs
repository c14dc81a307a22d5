//! The commands of this crate alone, without the planner: `headrace pg` and `headrace doctor --postgres`
//! as the `headrace` program has them, for tests and for whoever wants a small program.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, Subcommand};
use headrace_pg::export::{self, ExportArgs};
use headrace_pg::{PgError, doctor};

/// A client of PostgreSQL servers.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Work with tables of a server.
    #[command(subcommand)]
    Pg(PgCommand),
    /// Why queries of a server's tables are not faster.
    Doctor(DoctorArgs),
}

#[derive(clap::Args)]
struct DoctorArgs {
    /// The server: a URI, or key=value pairs.
    #[arg(long, value_name = "DSN", num_args = 0..=1, default_missing_value = "")]
    postgres: String,
    /// Look at small tables too.
    #[arg(long)]
    all: bool,
    /// Every fact and finding as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum PgCommand {
    /// Write a table or a query's rows as an Arrow file.
    Export(ExportArgs),
}

fn main() {
    let code = match Cli::parse().command {
        Command::Pg(PgCommand::Export(args)) => run_export(&args),
        Command::Doctor(args) => run_doctor(&args),
    };
    std::process::exit(code);
}

fn run_doctor(args: &DoctorArgs) -> i32 {
    let report = match doctor::examine(&args.postgres, args.all, &interruptible()) {
        Ok(report) => report,
        Err(error) => return failed(&error),
    };
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&report).expect("plain data")),
        false => print!("{}", doctor::render(&report)),
    }
    report.exit_code
}

fn failed(error: &PgError) -> i32 {
    eprintln!("error: {error}");
    error.exit_code()
}

/// Becomes true with Ctrl-C.
fn interruptible() -> Arc<AtomicBool> {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancel);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if runtime.is_ok_and(|runtime| runtime.block_on(tokio::signal::ctrl_c()).is_ok()) {
            flag.store(true, Ordering::Relaxed);
        }
    });
    cancel
}

fn run_export(args: &ExportArgs) -> i32 {
    let cancel = interruptible();
    let shows = std::io::stderr().is_terminal() && !args.quiet;
    let done = export::run(args, &cancel, &|progress| {
        if shows {
            eprint!("\r{} rows", progress.rows);
        }
    });
    match done {
        Ok(summary) if args.quiet => drop(summary),
        Ok(summary) => eprintln!("{}", summary.text()),
        Err(error) => return failed(&error),
    }
    0
}
