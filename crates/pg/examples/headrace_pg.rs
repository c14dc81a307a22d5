//! The commands of this crate alone, without the planner: `headrace pg` and `headrace doctor --postgres`
//! as the `headrace` program has them, for tests and for whoever wants a small program.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, Subcommand};
use headrace_pg::export::{self, ExportArgs};
use headrace_pg::{Result, doctor};

/// A client of PostgreSQL servers.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Tables of a server.
    #[command(subcommand)]
    Pg(PgCommand),
    /// Why queries of a server's tables are not faster.
    Doctor(DoctorArgs),
}

#[derive(Subcommand)]
enum PgCommand {
    /// Write a table, or the rows of a query, as an Arrow file.
    Export(ExportArgs),
}

#[derive(clap::Args)]
struct DoctorArgs {
    /// The server: a URI, or key=value pairs.
    #[arg(long, value_name = "DSN", num_args = 0..=1, default_missing_value = "")]
    postgres: String,
    /// Look at small tables, too.
    #[arg(long)]
    all: bool,
    /// Every fact and finding as JSON.
    #[arg(long)]
    json: bool,
}

fn main() {
    let cli = Cli::parse();
    let cancel = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime.expect("a runtime").block_on(async {
        let flag = Arc::clone(&cancel);
        let mut work = tokio::task::spawn_blocking(move || dispatch(&cli.command, &flag));
        tokio::select! {
            done = &mut work => done,
            _ = tokio::signal::ctrl_c() => {
                cancel.store(true, Ordering::Relaxed);
                work.await
            }
        }
    });
    std::process::exit(done.expect("no panic").unwrap_or_else(|error| {
        eprintln!("error: {error}");
        error.exit_code()
    }));
}

fn dispatch(command: &Command, cancel: &AtomicBool) -> Result<i32> {
    match command {
        Command::Pg(PgCommand::Export(args)) => run_export(args, cancel).map(|()| 0),
        Command::Doctor(args) => run_doctor(args, cancel),
    }
}

fn run_export(args: &ExportArgs, cancel: &AtomicBool) -> Result<()> {
    let shows = std::io::stderr().is_terminal() && !args.quiet;
    let summary = export::run(args, cancel, &|progress| {
        if shows {
            eprint!("\r{} rows", progress.rows);
        }
    })?;
    if !args.quiet {
        eprintln!("{}", summary.text());
    }
    Ok(())
}

fn run_doctor(args: &DoctorArgs, cancel: &AtomicBool) -> Result<i32> {
    let report = doctor::examine(&args.postgres, args.all, cancel)?;
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&report).expect("plain data")),
        false => print!("{}", doctor::render(&report)),
    }
    Ok(report.exit_code)
}
