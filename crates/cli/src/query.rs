//! Running SQL from the command line.

use std::io::{self, Read};
use std::path::Path;
use std::process::exit;

use datafusion::common::DataFusionError;
use futures::StreamExt;
use headrace_engine::{QueryReport, Session};

use crate::args::{EngineArgs, Format, QueryArgs};
use crate::error::{CliError, Context, Result};
use crate::memory::peak_rss_bytes;
use crate::output::Printer;
use crate::session;

/// Runs every statement; stops at the first that fails.
pub async fn run(args: &QueryArgs) -> Result<()> {
    let text = text(args)?;
    let session = session::new(&args.engine)?;
    for path in &args.data {
        session::register(&session, path)?;
    }
    for statement in session::statements(&text)? {
        let report = run_one(&session, &statement, args.format)
            .await
            .map_err(|error| error.into_cli(&session))?;
        if !args.quiet {
            eprintln!("{}", summary(&report, &args.engine));
        }
    }
    if let (Some(limit), false) = (args.engine.memory_limit, args.quiet) {
        let peak = peak_rss_bytes().unwrap_or_default();
        eprintln!("peak resident memory {:.0} MB, limit {:.0} MB", mb(peak), mb(limit));
    }
    session::write_trace(&session, &args.engine)
}

/// What may fail while a statement runs.
enum Failure {
    Engine(DataFusionError),
    Output(io::Error),
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        Self::Engine(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Failure {
    fn into_cli(self, session: &Session) -> CliError {
        match self {
            // Whoever reads our output has seen enough.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => exit(0),
            Self::Output(error) => CliError::new(format!("standard output: {error}")),
            Self::Engine(error) => session::query_failure(session, &error),
        }
    }
}

/// Streams the result out as it comes, so that a result larger than memory passes through.
async fn run_one(
    session: &Session,
    sql: &str,
    format: Format,
) -> std::result::Result<QueryReport, Failure> {
    let query = session.sql(sql).await?;
    let mut stream = query.stream()?;
    let mut printer = Printer::new(format, query.schema());
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        printer.write(&mut io::stdout().lock(), batch)?;
    }
    printer.finish(&mut io::stdout().lock())?;
    Ok(query.report(rows))
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn text(args: &QueryArgs) -> Result<String> {
    match (&args.sql, &args.file) {
        (Some(sql), _) => Ok(sql.clone()),
        (None, Some(file)) if file == Path::new("-") => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).at("standard input")?;
            Ok(text)
        }
        (None, Some(file)) => std::fs::read_to_string(file).at(file.display()),
        (None, None) => Err(CliError::usage("nothing to run")
            .hint("headrace -c \"select 1\", headrace demo, or headrace --help")),
    }
}

/// Rows, time, bytes, speed, who did it and what was the limit.
fn summary(report: &QueryReport, args: &EngineArgs) -> String {
    let mut text = format!("{} rows, {:.3} s", report.rows, report.wall_ms / 1e3);
    if report.bytes_read > 0 {
        let gb = report.bytes_read as f64 / 1e9;
        text += &format!(", {gb:.3} GB, {:.2} GB/s", gb / (report.wall_ms / 1e3));
    }
    text += &format!(", {}", report.processor);
    if let Some(bottleneck) = &report.bottleneck {
        text += &format!(", {bottleneck}");
    }
    // Why not on the GPU is news only where a GPU was asked for; EXPLAIN always tells.
    let elsewhere: Vec<&String> =
        report.pipelines.iter().filter_map(|p| p.processor_why_not.as_ref()).collect();
    let asked_for_cuda = args.processor == "cuda";
    for reason in report.why_not.iter().filter(|r| !elsewhere.contains(r)) {
        text += &format!("\nleft to the planner: {reason}");
    }
    for note in &report.notes {
        text += &format!("\n{note}");
    }
    for reason in elsewhere.into_iter().filter(|_| asked_for_cuda) {
        text += &format!("\nnot on the GPU: {reason}");
    }
    text
}
