//! The commands of this crate alone, without the planner: `headrace pg` and `headrace doctor --postgres`
//! as the `headrace` program has them, for tests and for whoever wants a small program.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, Subcommand};
use headrace_pg::export::{self, ExportArgs};

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
}

#[derive(Subcommand)]
enum PgCommand {
    /// Write a table or a query's rows as an Arrow file.
    Export(ExportArgs),
}

fn main() {
    let code = match Cli::parse().command {
        Command::Pg(PgCommand::Export(args)) => run_export(&args),
    };
    std::process::exit(code);
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
        Err(error) => {
            eprintln!("error: {error}");
            return error.exit_code();
        }
    }
    0
}
