//! The `headrace` command: a thin door over the engine. The program is [`run`]; the Python package runs the same, and
//! shows tables as it does.
//!
//! Standard output carries data only; progress, summaries and errors go to standard error. An error is one line
//! of cause, a blank line, and `hint:` with the remedy. Exit codes: 0 success (also when a reader closes our
//! output early), 1 the query or a file failed, 2 the command line is wrong, 128 plus the number of the signal
//! that ended it (130 for Ctrl-C); `doctor` has its own.
//!
//! It must never know how a query runs: everything goes through `headrace_engine`.
//!
//! A short query mostly waits for pages of the program, so its size determines its start-up time. Therefore
//! libraries are compiled in one codegen unit each (`Cargo.toml`), the parser's walk exists only twice
//! (`engine::sql::walk`), and the program is linked for a fixed address (`build.rs`).

#[macro_use]
mod say;

mod args;
mod bench;
mod beside;
mod blocking;
mod convert;
mod doctor;
mod door;
mod error;
mod gpu;
mod gpu_service;
mod machine;
pub mod manual;
mod memory;
mod model;
mod ooc;
mod output;
mod pg;
mod query;
mod session;
mod settings;
mod shell;
mod signals;
mod sizes;
mod suite;
mod trace;
mod version;

use std::ffi::OsString;
use std::io;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use clap::{CommandFactory, Parser, ValueEnum};
use headrace_io::write::hidden;

use args::{Cli, Command, GenerateArgs, SeededGenerateArgs, SuiteCommand};
use bench::args::BenchCommand;
use blocking::blocking;
use error::{CliError, Context, Result};
use headrace_ooc::sets::SetOperation;
use headrace_suites::Suite;
use ooc::{DEFAULT_SEED, SetArgs};
use output::{Expanded, Format, Layout, Printer, Room};
use signals::Asked;

pub use args::ClusterArgs;
pub use door::ClusterDoor;
pub use sizes::{parse_bytes_or_zero, parse_memory};

/// Stack size of the runtime's threads: expressions may be deeply nested. Untouched pages take no
/// memory.
const STACK_BYTES: usize = 16 << 20;

/// Bytes of a batch or a row group in results.
const RESULT_BATCH_BYTES: usize = 16 << 20;

/// The memory that the runtime needs to start, and a little more.
const OPEN_FILES_MIN: u64 = 16;

/// Time for an interrupted statement to stop by itself: short enough to go unnoticed.
const STATEMENT_PATIENCE: Duration = Duration::from_millis(200);

/// Time for writers to remove their files, or to finish an almost complete one.
const WRITER_PATIENCE: Duration = Duration::from_secs(2);

/// Time to print measurements made before an interruption, and to remove their files.
const MEASUREMENT_PATIENCE: Duration = Duration::from_secs(10);

/// Runs a command line, whose first word is the program; returns the exit code.
pub fn run(words: impl IntoIterator<Item = OsString>) -> i32 {
    run_with(words, None)
}

/// The same in a program that may have a cluster. Without one, `--cluster` is another program's.
pub fn run_with(words: impl IntoIterator<Item = OsString>, door: Option<ClusterDoor>) -> i32 {
    let words: Vec<OsString> = words.into_iter().collect();
    // What helps with a wrong one is printed by the parser, which knows its exit code, too.
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(told) => {
            let _ = told.print();
            return told.exit_code();
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("HEADRACE_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .with_writer(std::io::stderr)
        .init();
    headrace_engine::silence_panics();
    let started = catch_unwind(|| start(cli, &words, door))
        .unwrap_or_else(|panic| Err(CliError::fault(&*panic)));
    started.unwrap_or_else(|error| {
        say!("{error}");
        error.exit_code()
    })
}

/// How long a command may continue after a signal, and whether it then reports its progress, as measurements
/// do.
fn patience(command: Option<&Command>) -> (Duration, bool) {
    match command {
        Some(Command::Doctor(_) | Command::Bench(_)) => (MEASUREMENT_PATIENCE, true),
        Some(
            Command::Pg(_)
            | Command::Intersect(_)
            | Command::Union(_)
            | Command::Difference(_)
            | Command::SymmetricDifference(_)
            | Command::Sort(_)
            | Command::Matvec(_)
            | Command::Spmv(_)
            | Command::Pagerank(_)
            | Command::Bfs(_)
            | Command::Eigen(_)
            | Command::Generate(_)
            | Command::Ssb(SuiteCommand::Generate(_))
            | Command::Tpch(SuiteCommand::Generate(_))
            | Command::Tpcds(SuiteCommand::Generate(_))
            | Command::ClickBench(SuiteCommand::Generate(_))
            | Command::Convert(_),
        ) => (WRITER_PATIENCE, false),
        _ => (STATEMENT_PATIENCE, false),
    }
}

fn start(cli: Cli, words: &[OsString], door: Option<ClusterDoor>) -> Result<i32> {
    if cli.version {
        return output::print(&version::text()).map(|()| 0);
    }
    let files = headrace_io::raise_open_files();
    if files < OPEN_FILES_MIN {
        return Err(CliError::new(format!("this process may have only {files} files open"))
            .hint(format!("raise the limit: ulimit -n {OPEN_FILES_MIN} or more")));
    }
    // It may go on in another process, which no thread of this one would follow.
    match &cli.command {
        Some(Command::GpuService(args)) => return gpu_service::run(args).map(|()| 0),
        Some(Command::Serve(args)) => {
            return beside::become_server("serve", &args.words).map(|()| 0);
        }
        Some(Command::Mcp(args)) => return beside::become_server("mcp", &args.words).map(|()| 0),
        None if cli.query.cluster.cluster.is_some() && door.is_none() => {
            return beside::become_cluster(words.get(1..).unwrap_or_default()).map(|()| 0);
        }
        _ => {}
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().thread_stack_size(STACK_BYTES).build().at("start")?;
    let cancel = Arc::new(AtomicBool::new(false));
    let (patience, tells_how_far) = patience(cli.command.as_ref());
    let asked = signals::listen(Arc::clone(&cancel), patience).at("signals")?;
    let done = runtime.block_on(async {
        let done = {
            let mut work = std::pin::pin!(dispatch(cli, cancel, Arc::clone(&asked), door));
            tokio::select! {
                done = &mut work => Some(done),
                // Others look at `cancel`: they end before patience does, or the process ends then.
                () = asked.to_end(), if patience == STATEMENT_PATIENCE => None,
            }
        };
        if let Some(door) = door {
            (door.ended)().await;
        }
        done
    });
    let Some(code) = asked.code() else {
        // A cancelled race drains its reads in its own threads; give it a moment. A statement that has failed, or taken
        // longer than it may, is waited for as one that a signal has ended: a planner hears nothing of either.
        match &done {
            Some(Err(_)) => {
                runtime.shutdown_timeout(patience);
                let _none_can_be_made = hidden::remove_all();
            }
            _ => runtime.shutdown_timeout(WRITER_PATIENCE),
        }
        return done.unwrap_or(Ok(0));
    };
    match done {
        // The signal came too late: all that was asked for is there.
        Some(Ok(0)) if !tells_how_far => return Ok(0),
        Some(Err(error)) => say!("{error}"),
        _ => {}
    }
    runtime.shutdown_timeout(STATEMENT_PATIENCE);
    signals::leave(code)
}

/// Runs the command; returns the exit code.
async fn dispatch(
    cli: Cli,
    cancel: Arc<AtomicBool>,
    asked: Arc<Asked>,
    door: Option<ClusterDoor>,
) -> Result<i32> {
    let done = match cli.command {
        // Its exit code is its answer.
        Some(Command::Doctor(args)) => {
            return blocking(move || doctor::run(&args, cancel)).await;
        }
        None => query::run(&cli.query, cancel, &asked, door).await,
        Some(Command::Ssb(command)) => seeded(Suite::Ssb, command, cancel).await,
        Some(Command::ClickBench(command)) => seeded(Suite::ClickBench, command, cancel).await,
        Some(Command::Similarity(command)) => seeded(Suite::Similarity, command, cancel).await,
        Some(Command::Tpch(command)) => seedless(Suite::Tpch, command, cancel).await,
        Some(Command::Tpcds(command)) => seedless(Suite::Tpcds, command, cancel).await,
        Some(Command::Demo(args)) if args.join => suite::join::run(&args, cancel).await,
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
        Some(Command::Spmv(args)) => blocking(move || ooc::spmv(&args, cancel)).await,
        Some(Command::Pagerank(args)) => blocking(move || ooc::pagerank(&args, cancel)).await,
        Some(Command::Bfs(args)) => blocking(move || ooc::bfs(&args, cancel)).await,
        Some(Command::Eigen(args)) => blocking(move || ooc::eigen(&args, cancel)).await,
        Some(Command::Generate(args)) => blocking(move || ooc::generate(&args, cancel)).await,
        Some(Command::Convert(args)) => convert::run(&args, cancel).await,
        Some(Command::Pg(args)) => blocking(move || pg::run(&args, &cancel)).await,
        Some(Command::GpuService(_) | Command::Serve(_) | Command::Mcp(_)) => {
            Err(CliError::new("it is begun before any other thread is"))
        }
        Some(Command::Gpu(args)) => blocking(move || gpu::run(&args)).await,
        Some(Command::Model(args)) => blocking(move || model::run(&args)).await,
        Some(Command::Trace(args)) => trace::merge(&args),
        Some(Command::Settings) => settings::run(),
        Some(Command::Functions) => output::print(&headrace_engine::functions::page()),
        Some(Command::Completions(args)) => manual::completions(&args, Cli::command()),
        Some(Command::Man(args)) => manual::pages(&args, Cli::command()),
    };
    done.map(|()| 0)
}

/// A command of a suite with seeded values.
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

/// A command of a suite with fixed values.
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

/// Rows as a table of text, as a terminal of so many columns shows it: at most `rows_max` of them, which are all that the
/// caller says anything about.
///
/// # Errors
/// Values that have no text.
pub fn table_text(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    columns_max: usize,
    rows_max: usize,
) -> io::Result<String> {
    let layout = Layout {
        format: Format::Box,
        expanded: Expanded::Off,
        headers: true,
        batch_bytes_max: usize::MAX,
        terminal: Some(Room { rows_max: usize::MAX, columns_max }),
    };
    let (mut out, mut left) = (Vec::new(), rows_max);
    let mut printer = Printer::new(&layout, Arc::clone(schema), None)?;
    for batch in batches {
        let rows = batch.num_rows().min(left);
        printer.write(&mut out, &batch.slice(0, rows))?;
        left -= rows;
    }
    printer.finish(&mut out, true)?;
    String::from_utf8(out).map_err(io::Error::other)
}

/// Writes a result in a format of the command line, whole or in pieces.
pub struct ResultWriter(Printer);

impl ResultWriter {
    /// For a format by its name: csv, json, arrow, parquet, ..
    ///
    /// # Errors
    /// A format that there is not, or that has no place for the schema's types.
    pub fn new(format: &str, schema: SchemaRef) -> io::Result<Self> {
        let layout = Layout {
            format: Format::from_str(format, true).map_err(io::Error::other)?,
            expanded: Expanded::Off,
            headers: true,
            batch_bytes_max: RESULT_BATCH_BYTES,
            terminal: None,
        };
        Printer::new(&layout, schema, None).map(Self)
    }

    /// The next rows.
    ///
    /// # Errors
    /// Values that the format has not, and those of `out`.
    pub fn write(&mut self, out: &mut dyn io::Write, batch: &RecordBatch) -> io::Result<()> {
        self.0.write(out, batch)
    }

    /// What comes behind the last rows.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(self, out: &mut dyn io::Write) -> io::Result<()> {
        self.0.finish(out, true)
    }
}

/// Raises the limit of open files to what the system lets this process have.
pub fn raise_open_files() {
    headrace_io::raise_open_files();
}
