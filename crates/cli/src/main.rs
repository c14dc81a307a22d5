//! The `headrace` command: a thin door over the engine.
//!
//! Standard output carries data only; progress, summaries and errors go to standard error.
//! An error is one line of cause, a blank line, and `hint:` with the remedy. Exit codes: 0 done
//! (a reader that closes our output early is no error), 1 the query or a file failed, 2 the
//! command line is wrong, 130 interrupted; `doctor` has its own.
//!
//! It must never know how a query runs: everything goes through `headrace_engine`.

mod args;
mod bench;
mod convert;
mod doctor;
mod error;
mod gpu;
mod machine;
mod memory;
mod model;
mod ooc;
mod output;
mod pg;
mod query;
mod session;
mod settings;
mod shell;
mod sizes;
mod suite;
mod trace;
mod version;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::SignalKind;

use args::{Cli, Command, DEFAULT_SEED, GenerateArgs, SeededGenerateArgs, SuiteCommand};
use bench::args::BenchCommand;
use error::{CliError, Context, Result};
use headrace_ooc::sets::SetOperation;
use headrace_suites::Suite;
use ooc::SetArgs;

const INTERRUPTED: i32 = 130;

/// Of the runtime's threads: expressions have many levels. Pages that they do not reach take no memory.
const STACK_BYTES: usize = 16 << 20;

/// What the runtime needs to start, and a little more.
const OPEN_FILES_MIN: u64 = 16;

/// Time for what was measured before an interruption to be printed, and for files that were made for
/// it to be removed.
const PARTIAL_RESULT_WAIT: Duration = Duration::from_secs(10);

fn main() {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("HEADRACE_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .with_writer(std::io::stderr)
        .init();
    let code = match start(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            error.exit_code()
        }
    };
    std::process::exit(code);
}

fn start(cli: Cli) -> Result<i32> {
    if cli.version {
        print!("{}", version::text());
        return Ok(0);
    }
    let files = headrace_io::raise_open_files();
    if files < OPEN_FILES_MIN {
        return Err(CliError::new(format!("this process may have only {files} files open"))
            .hint(format!("raise the limit: ulimit -n {OPEN_FILES_MIN} or more")));
    }
    // It may go on in another process, which no thread of this one would follow.
    if let Some(Command::GpuService(options)) = &cli.command {
        return headrace_service::server::run(options).map(|()| 0).map_err(CliError::new);
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().thread_stack_size(STACK_BYTES).build().at("start")?;
    let cancel = Arc::new(AtomicBool::new(false));
    // An export, an operator and a generator take what they have written away again.
    let tells_how_far = matches!(
        cli.command,
        Some(
            Command::Doctor(_)
                | Command::Bench(_)
                | Command::Pg(_)
                | Command::Intersect(_)
                | Command::Union(_)
                | Command::Difference(_)
                | Command::SymmetricDifference(_)
                | Command::Sort(_)
                | Command::Matvec(_)
                | Command::Generate(_)
                | Command::Ssb(SuiteCommand::Generate(_))
                | Command::Tpch(SuiteCommand::Generate(_))
                | Command::Tpcds(SuiteCommand::Generate(_))
                | Command::ClickBench(SuiteCommand::Generate(_))
                | Command::Convert(_)
        )
    );
    // There Ctrl-C ends a statement, not the program.
    let is_typed = cli.command.is_none() && query::is_typed(&cli.query);
    let code = runtime.block_on(async {
        let mut work = std::pin::pin!(dispatch(cli, cancel.clone()));
        tokio::select! {
            result = &mut work => return result,
            _ = tokio::signal::ctrl_c(), if !is_typed => {}
            // What it has begun to write must go with it then, too.
            _ = terminated() => {}
        }
        cancel.store(true, Ordering::Relaxed);
        eprintln!("interrupted");
        if tells_how_far {
            // A measurement that was broken off still says what it saw; a second Ctrl-C ends it.
            tokio::select! {
                done = &mut work => {
                    if let Err(error) = done {
                        eprintln!("{error}");
                    }
                }
                _ = tokio::time::sleep(PARTIAL_RESULT_WAIT) => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Ok(INTERRUPTED)
    });
    // A cancelled race drains its reads in its own threads; give it a moment.
    runtime.shutdown_timeout(Duration::from_secs(2));
    code
}

/// Waits for somebody to ask the process to end, otherwise than by Ctrl-C.
async fn terminated() {
    match tokio::signal::unix::signal(SignalKind::terminate()) {
        Ok(mut signal) => drop(signal.recv().await),
        // The signal ends the process, as it does by itself.
        Err(_) => std::future::pending().await,
    }
}

/// Does what was asked for; the exit code.
async fn dispatch(cli: Cli, cancel: Arc<AtomicBool>) -> Result<i32> {
    let done = match cli.command {
        // Its exit code is its answer.
        Some(Command::Doctor(args)) => {
            return blocking(move || doctor::run(&args, cancel)).await;
        }
        None => query::run(&cli.query, cancel).await,
        Some(Command::Ssb(command)) => seeded(Suite::Ssb, command, cancel).await,
        Some(Command::ClickBench(command)) => seeded(Suite::ClickBench, command, cancel).await,
        Some(Command::Tpch(command)) => seedless(Suite::Tpch, command, cancel).await,
        Some(Command::Tpcds(command)) => seedless(Suite::Tpcds, command, cancel).await,
        Some(Command::Demo(args)) => suite::demo::run(&args, cancel).await,
        Some(Command::Bench(BenchCommand::Io(args))) => {
            blocking(move || bench::io(&args, cancel)).await
        }
        Some(Command::Bench(BenchCommand::Ooc(args))) => {
            blocking(move || bench::ooc::run(&args, cancel)).await
        }
        Some(Command::Intersect(args)) => set(args, SetOperation::Intersection, cancel).await,
        Some(Command::Union(args)) => set(args, SetOperation::Union, cancel).await,
        Some(Command::Difference(args)) => set(args, SetOperation::Difference, cancel).await,
        Some(Command::SymmetricDifference(args)) => {
            set(args, SetOperation::SymmetricDifference, cancel).await
        }
        Some(Command::Fences(args)) => blocking(move || ooc::fences(&args, cancel)).await,
        Some(Command::Sort(args)) => blocking(move || ooc::sort(&args, cancel)).await,
        Some(Command::Matvec(args)) => blocking(move || ooc::matvec(&args, cancel)).await,
        Some(Command::Generate(args)) => blocking(move || ooc::generate(&args, cancel)).await,
        Some(Command::Convert(args)) => convert::run(&args, cancel).await,
        Some(Command::Pg(args)) => blocking(move || pg::run(&args, &cancel)).await,
        Some(Command::GpuService(_)) => {
            Err(CliError::new("it is begun before any other thread is"))
        }
        Some(Command::Gpu(args)) => blocking(move || gpu::run(&args)).await,
        Some(Command::Model(args)) => blocking(move || model::run(&args)).await,
        Some(Command::Trace(args)) => trace::merge(&args),
        Some(Command::Settings) => settings::run(),
        Some(Command::Functions) => output::print(&headrace_engine::functions::page()),
    };
    done.map(|()| 0)
}

/// A command of a suite whose values depend on a seed.
async fn seeded(
    suite: Suite,
    command: SuiteCommand<SeededGenerateArgs>,
    cancel: Arc<AtomicBool>,
) -> Result<()> {
    match command {
        SuiteCommand::Generate(args) => {
            let work = move || suite::generate::run(suite, &args.tables, args.seed, &cancel);
            blocking(work).await
        }
        SuiteCommand::Run(args) => suite::run::run(suite, &args).await,
        SuiteCommand::Queries => suite::run::print_queries(suite),
    }
}

/// A command of a suite that has one set of values.
async fn seedless(
    suite: Suite,
    command: SuiteCommand<GenerateArgs>,
    cancel: Arc<AtomicBool>,
) -> Result<()> {
    match command {
        SuiteCommand::Generate(args) => {
            let work = move || suite::generate::run(suite, &args, DEFAULT_SEED, &cancel);
            blocking(work).await
        }
        SuiteCommand::Run(args) => suite::run::run(suite, &args).await,
        SuiteCommand::Queries => suite::run::print_queries(suite),
    }
}

async fn set(args: Box<SetArgs>, operation: SetOperation, cancel: Arc<AtomicBool>) -> Result<()> {
    blocking(move || ooc::set(&args, operation, cancel)).await
}

/// Work that blocks, off the async threads, so that Ctrl-C is heard.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.at("worker")?
}
