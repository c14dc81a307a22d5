//! A table or the rows of a query, as Arrow files that Headrace streams.
//!
//! ```text
//! leader: transaction, snapshot, locks, parts ──────────────────────────────┐
//! readers, one connection each: claim a part, COPY it, decode ──► Order ────┴─► Output ─► file or folder
//! ```
//!
//! All connections share one snapshot: the file is the table at one moment, whatever is written
//! meanwhile. Rows come in the order of the table's blocks, so the file is the same for any number of
//! connections. Files appear under their names when all data is on disk, or not at all.

mod columns;
mod decode;
mod numeric;
mod order;
mod output;
mod relation;
mod source;
mod values;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use futures::TryStreamExt;
use headrace_ceilings::model::parse_bytes;
use headrace_format::arrow::WriterSummary;

pub use columns::NumericAs;

use crate::dsn::{self, Server};
use crate::error::{PgError, Result};
use crate::session::Session;
use columns::Column;
use decode::Decoder;
use order::{Order, Taken};
use output::{Output, Target};
use source::Source;

/// Unit of a reader's deliveries.
const PIECE_BYTES: usize = 8 << 20;
const PIECE_ROWS: usize = 1 << 18;

/// Data waiting to be written, per reader.
const WAITING_BYTES: usize = 64 << 20;

/// Default number of connections.
const JOBS_MAX: usize = 16;

/// Minimum size of files.
const FILE_BYTES_MIN: u64 = 1_000_000;

/// `pg export`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  headrace pg export --table sales -o tables/
  headrace pg export --dsn postgresql://ann@db/shop --table shop.sales -o sales.arrow --dictionary shop,state
  headrace pg export --table shop.sales -o tables/ --file-size 1GB   # tables/sales/part-00000.arrow, …
  headrace pg export --dsn 'host=/tmp dbname=shop' --query 'select day, amount from sales' -o part.arrow

What the DSN leaves open comes from PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE and ~/.pgpass.")]
pub struct ExportArgs {
    /// The server: a URI, or key=value pairs.
    #[arg(long, value_name = "DSN", default_value = "")]
    pub dsn: String,
    /// Table, with its partitions and children; also a view.
    #[arg(
        long,
        value_name = "[SCHEMA.]NAME",
        required_unless_present = "query",
        conflicts_with = "query"
    )]
    pub table: Option<String>,
    /// Rows of a query, read by one connection.
    #[arg(long, value_name = "SQL")]
    pub query: Option<String>,
    /// Arrow file to write, or a folder that is there to write TABLE.arrow to.
    #[arg(short, long, value_name = "FILE|FOLDER")]
    pub out: PathBuf,
    /// Write a folder of files of about this size, such as 1GB, in place of one file.
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    pub file_size: Option<u64>,
    /// Connections that read at once (default: the machine's cores, at most 16).
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: Option<u32>,
    /// Write repeated text as a dictionary (text with few distinct values streams fastest so).
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub dictionary: Vec<String>,
    /// numeric without declared digits: measured (by a query of its own), digits such as 18,4, text, float8.
    #[arg(long, value_name = "HOW", default_value = "measured")]
    pub numeric: NumericAs,
    /// Replace an existing file, or a folder of Arrow files.
    #[arg(long)]
    pub force: bool,
    /// No progress, no summary.
    #[arg(short, long)]
    pub quiet: bool,
}

/// The progress.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Server bytes of the written rows.
    pub server_bytes: u64,
    /// Their total; 0 if unknown.
    pub server_bytes_total: u64,
    /// Rows written.
    pub rows: u64,
    /// Bytes of the file so far.
    pub file_bytes: u64,
}

/// The result.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The file, or the folder of files.
    pub path: PathBuf,
    /// How many files.
    pub files: u64,
    /// Their rows, record batches and bytes.
    pub written: WriterSummary,
    /// From the first connection to the rename.
    pub elapsed: Duration,
    /// Connections that read.
    pub jobs: usize,
    /// Notes, a sentence each.
    pub notes: Vec<String>,
}

impl Summary {
    /// One line, and one for each note.
    pub fn text(&self) -> String {
        let seconds = self.elapsed.as_secs_f64();
        let gb = self.written.bytes as f64 / 1e9;
        let (rows, batches) = (self.written.rows, self.written.batches);
        let files = if self.files > 1 { format!("{} files, ", self.files) } else { String::new() };
        let mut text = format!(
            "{}: {files}{rows} rows, {batches} record batches, {gb:.3} GB in {seconds:.2} s, {:.3} GB/s, {} jobs",
            self.path.display(),
            gb / seconds.max(1e-9),
            self.jobs
        );
        for note in &self.notes {
            text += &format!("\n  {note}");
        }
        text
    }
}

/// Exports. `progress` is called in this thread; once `cancel` is set it ends soon and leaves nothing.
///
/// # Errors
/// An error of the server, a value that Arrow does not have, a file that cannot be written.
pub fn run(args: &ExportArgs, cancel: &AtomicBool, progress: &dyn Fn(Progress)) -> Result<Summary> {
    let start = Instant::now();
    let server = dsn::resolve(&args.dsn, &|name| std::env::var(name).ok())?;
    let leader = Session::connect(&server, cancel)?;
    leader.execute(cancel, "begin isolation level repeatable read read only")?;
    let snapshot = leader.query(cancel, "select pg_catalog.pg_export_snapshot()", &[])?;
    let snapshot: String = snapshot.first().map(|row| row.get(0)).unwrap_or_default();
    let mut source = match (&args.table, &args.query) {
        (Some(table), _) => Source::table(&leader, table, args.numeric, cancel)?,
        (None, Some(query)) => Source::query(&leader, query, args.numeric, cancel)?,
        (None, None) => {
            return Err(PgError::usage("nothing to export").remedy("--table NAME, or --query SQL"));
        }
    };
    source.check_names()?;
    source.make_dictionaries(&args.dictionary)?;
    let target = Target::new(&args.out, &source.own_name, args.file_size, args.force)?;
    // Before anything is measured: a folder that cannot be written is told at once.
    drop(target.begin(columns::schema(&source.columns))?);
    let measuring = Instant::now();
    let measured = source.measure_numerics(&leader, cancel)?;
    let notes = notes(&source, &measured, measuring.elapsed());
    let output = target.begin(columns::schema(&source.columns))?;
    let jobs = jobs(args).min(source.parts.len()).max(1);
    let export = Export {
        server: &server,
        snapshot: &snapshot,
        source: &source,
        order: Order::new(source.parts.len(), jobs * WAITING_BYTES, cancel),
    };
    let (written, files) = export.run(jobs, output, progress)?;
    let (path, elapsed) = (target.path, start.elapsed());
    Ok(Summary { path, files, written, elapsed, jobs, notes })
}

struct Export<'a> {
    server: &'a Server,
    snapshot: &'a str,
    source: &'a Source,
    order: Order<'a>,
}

impl Export<'_> {
    fn run(
        &self,
        jobs: usize,
        output: Output<'_>,
        progress: &dyn Fn(Progress),
    ) -> Result<(WriterSummary, u64)> {
        let written = std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    if let Err(error) = self.read_parts() {
                        self.order.fail(error);
                    }
                });
            }
            let written = self.write(output, progress);
            if let Err(error) = &written {
                self.order.fail(error.clone());
            }
            written
        });
        // What failed first is the cause; a file that has its name is there.
        written.map_err(|error| self.order.failure().unwrap_or(error))
    }

    /// A reader: reads parts until none is left.
    fn read_parts(&self) -> Result<()> {
        let stop = self.order.stop_flag();
        let session = Session::connect(self.server, stop)?;
        session.execute(
            stop,
            &format!(
                "begin isolation level repeatable read read only; set transaction snapshot '{}'",
                self.snapshot
            ),
        )?;
        if self.source.parts.len() > 1 {
            // Each range is small beside its table, but statistics may not say so.
            session.execute(
                stop,
                "set enable_seqscan = off; set max_parallel_workers_per_gather = 0",
            )?;
        }
        while let Some(part) = self.order.claim() {
            self.read_part(&session, part)?;
            self.order.end(part);
        }
        Ok(())
    }

    fn read_part(&self, session: &Session, number: usize) -> Result<()> {
        let part = &self.source.parts[number];
        let schema = columns::schema(&self.source.columns);
        let mut decoder = Decoder::new(&self.source.columns, schema, &part.place);
        // A line of its own: the query may end in a comment.
        let sql = format!("copy (\n{}\n) to stdout (format binary)", part.sql);
        let said = |error: tokio_postgres::Error| PgError::server(&part.place, &error);
        session.drive(self.order.stop_flag(), async {
            let mut rows = std::pin::pin!(session.client().copy_out(&sql).await.map_err(said)?);
            while let Some(data) = rows.try_next().await.map_err(said)? {
                decoder.push(&data)?;
                let (rows, bytes) = decoder.pending();
                if rows >= PIECE_ROWS || bytes >= PIECE_BYTES {
                    self.order.put(number, decoder.take()?)?;
                }
            }
            decoder.end()?;
            match decoder.pending() {
                (0, _) => Ok(()),
                _ => self.order.put(number, decoder.take()?),
            }
        })
    }

    /// The writer: writes the readers' batches in order.
    fn write(
        &self,
        mut output: Output<'_>,
        progress: &dyn Fn(Progress),
    ) -> Result<(WriterSummary, u64)> {
        let server_bytes_total = self.source.bytes();
        let (mut server_bytes, mut part) = (0, 0);
        while let Some(taken) = self.order.take() {
            match taken {
                Taken::Batch(batch) => output.write(&batch)?,
                Taken::PartEnded => {
                    server_bytes += self.source.parts[part].bytes;
                    part += 1;
                }
            }
            progress(Progress {
                server_bytes,
                server_bytes_total,
                rows: output.rows(),
                file_bytes: output.bytes(),
            });
        }
        match self.order.failure() {
            Some(failure) => Err(failure),
            None => output.finish(),
        }
    }
}

fn file_size(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    match bytes >= FILE_BYTES_MIN {
        true => Ok(bytes),
        false => Err(format!("files of {bytes} bytes would be too many; at least 1MB")),
    }
}

fn jobs(args: &ExportArgs) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from).min(JOBS_MAX);
    args.jobs.map_or_else(cores, |jobs| jobs as usize)
}

fn notes(source: &Source, measured: &[String], took: Duration) -> Vec<String> {
    let mut notes = Vec::new();
    let cast: Vec<String> = source
        .columns
        .iter()
        .filter(|column| column.cast == Some("text"))
        .map(|column| format!("{} ({})", column.name, column.server_type))
        .collect();
    if !cast.is_empty() {
        notes.push(format!("as text: {}", cast.join(", ")));
    }
    if !measured.is_empty() {
        notes.push(format!(
            "numeric whose digits were measured in {:.2} s: {} (--numeric 18,4 spares it)",
            took.as_secs_f64(),
            measured_types(&source.columns, measured)
        ));
    }
    if let Some(reason) = source.whole_because {
        notes.push(format!("read by one connection: {reason}"));
    }
    if !source.could_be_dictionaries.is_empty() {
        notes.push(format!(
            "texts of few values stream faster with --dictionary {}",
            source.could_be_dictionaries.join(",")
        ));
    }
    notes
}

fn measured_types(columns: &[Column], names: &[String]) -> String {
    let of = |name: &String| {
        let column = columns.iter().find(|column| column.name == *name);
        column.map(|column| format!("{name} {}", column.arrow())).unwrap_or_default()
    };
    names.iter().map(of).collect::<Vec<_>>().join(", ")
}
