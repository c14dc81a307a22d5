//! Tables of Arrow files, sorted by columns into one file: stable, in one pass if they fit in memory, otherwise
//! in two.
//!
//! ```text
//! batches ─► keys: bytes that compare as the rows do, their first eight as a number
//!    │         └─► sample ─► splitters
//!    │                          │
//!    ├─ in memory ──────────────┴─► rows by bucket ──────────────────────► sort ─► gather ─► write
//!    │   batch 0 │ b0 │ b1 │ b2 │    (numbers of rows: they stay)          b0 of all batches; then b1
//!    │   batch 1 │ b0 │ b1 │ b2 │                                            ▲
//!    └─ too large ──────────────┴─► blocks of rows ─► temporary file ─► read ┘  too large: divided again
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `columns` | codes in place of dictionaries, and back |
//! | `keys` | what rows are ordered by |
//! | `splitters` | which bucket a key belongs to |
//! | `source` | batches or blocks, a unit at a time; the sample |
//! | `batches` | batches of another producer, in and out as they come: the sort of queries |
//! | `one_pass`, `two_passes` | the two ways |
//! | `leaf` | rows sorted, gathered and written |
//! | `turns` | memory and output in the order of the rows, work on all cores |
//! | `sizes` | how memory is shared out |
//!
//! # Order
//!
//! By the first column, then the next. Numbers, dates and timestamps by value; NaN above all other floats, -0 equal to
//! 0; text and binary by bytes, with or without a dictionary; `false` before `true`. NULLs come last in ascending and
//! first in descending order, as in SQL and PostgreSQL, unless a [`SortKey`] says otherwise. Equal rows keep the order
//! of the input: files by path, batches and rows by position.
//!
//! # Memory and disk
//!
//! All growing memory is reserved from the limit before it is used, including mapped files. Record batches of the
//! input are read whole: the limit must have room for the largest, twice. Temporary files have no names, so the
//! process leaves nothing behind however it ends; their bytes have checksums. [`plan_table_sort`] predicts their
//! size.

mod batches;
mod columns;
mod keys;
mod leaf;
mod one_pass;
mod sizes;
mod source;
mod splitters;
mod turns;
mod two_passes;
mod work;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use headrace_format::arrow::{ArrowTable, ArrowWriter, WriterOptions};
use headrace_io::{MemoryUse, decimal_bytes};
use headrace_spill::SpillFolder;
use serde::Serialize;

use crate::files::temporary_folder;
use crate::room::on_threads;
use crate::{OocError, Options, Processor, Report, Result, Room};
pub use batches::{BatchSort, BatchSortOptions, BatchSortReport};
use columns::Columns;
use keys::KeyMaker;
pub use keys::SortKey;
use leaf::Output;
use sizes::Sizes;
use source::{Source, Unit};
use turns::Turns;
use two_passes::Divided;
pub use work::Stage;
use work::Work;

/// The sort to run.
#[derive(Debug, Clone)]
pub struct TableSortJob {
    /// An Arrow IPC file, or a folder of such files that form one table.
    pub input: PathBuf,
    /// The sorted output file. It may be the input, which is replaced at the end.
    pub output: PathBuf,
    /// The sort columns, most significant first.
    pub by: Vec<SortKey>,
    /// Folder of temporary files, if memory is too small; `None`: beside the output.
    pub temporary_folder: Option<PathBuf>,
    /// Their limit in bytes; `None`: the free space.
    pub temporary_limit_bytes: Option<u64>,
    /// Rows of a record batch of the output; `None`: 2^20. Fewer if memory is small.
    pub rows_per_batch: Option<usize>,
}

/// The predicted cost of a sort.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableSortPlan {
    /// Rows of the table.
    pub rows: u64,
    /// Maximum bytes in memory.
    pub bytes: u64,
    /// Usable host memory.
    pub host_limit_bytes: u64,
    /// 1: it fits in memory. 2: through temporary files.
    pub passes: u32,
    /// Approximate maximum of temporary files: they are compressed, and exceed the table only if buckets must be
    /// partitioned again (keys that a sample missed, or very little memory).
    pub temporary_bytes: u64,
}

/// The report of a sort.
#[derive(Debug, Clone, Serialize)]
pub struct TableSortReport {
    /// The common report of operators; there are no races.
    pub report: Report,
    /// The prediction.
    pub plan: TableSortPlan,
    /// Record batches that were written.
    pub batches: u64,
    /// The stages, in their order.
    pub stages: Vec<Stage>,
}

impl TableSortReport {
    /// The human-readable lines.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{} rows in {} record batches", self.plan.rows, self.batches)];
        lines.extend(self.report.lines());
        let seconds = |stage: &Stage| format!("{} {:.3} s", stage.name, stage.wall_ns as f64 / 1e9);
        lines.push(self.stages.iter().map(seconds).collect::<Vec<_>>().join(", "));
        lines
    }
}

/// A table and its sort plan.
struct Prepared {
    room: Room,
    table: ArrowTable,
    columns: Columns,
    maker: KeyMaker,
    units: Vec<Unit>,
    sizes: Sizes,
    plan: TableSortPlan,
}

impl Prepared {
    fn new(job: &TableSortJob, options: &Options) -> Result<Prepared> {
        if options.processor == Processor::Cuda {
            let remedy = "ask for the cores, or let the operator choose";
            return Err(OocError::usage("tables are sorted on the cores only", remedy));
        }
        let room = Room::new(options, Some("tables are sorted on the cores"))?;
        let table = ArrowTable::open(std::slice::from_ref(&job.input))?;
        let columns = Columns::of(&table)?;
        let maker = KeyMaker::new(&columns, &keys::named(&columns, &job.by)?)?;
        let limit_bytes = room.memory.limit_bytes();
        let sizes_of = |bytes: u64| {
            let row_bytes = bytes.div_ceil(table.rows().max(1)).max(1);
            let key_bytes = maker.fixed_row_bytes();
            Sizes::new(limit_bytes, room.threads, job.rows_per_batch, row_bytes, key_bytes)
        };
        let units = source::units(&table, sizes_of(1).unit_bytes)?;
        let bytes = units.iter().map(|unit| unit.bytes).sum();
        let sizes = sizes_of(bytes);
        // Keys of text are longer than it.
        let texts =
            maker.columns.iter().filter(|i| !columns.plain.field(**i).data_type().is_primitive());
        let texts_bytes: u64 = texts.map(|i| 2 * table.column_stats(*i).bytes).sum();
        let held_bytes = bytes + table.rows() * (maker.fixed_row_bytes() + 4) + texts_bytes;
        let is_one_pass = sizes.one_pass_bytes(held_bytes) <= limit_bytes;
        let plan = TableSortPlan {
            rows: table.rows(),
            bytes,
            host_limit_bytes: limit_bytes,
            passes: if is_one_pass { 1 } else { 2 },
            temporary_bytes: if is_one_pass { 0 } else { bytes },
        };
        Ok(Prepared { room, table, columns, maker, units, sizes, plan })
    }
}

/// Predicts the cost of a sort from the files' metadata.
///
/// # Errors
/// Those of [`sort_table`] before it reads rows.
pub fn plan_table_sort(job: &TableSortJob, options: &Options) -> Result<TableSortPlan> {
    Ok(Prepared::new(job, options)?.plan)
}

/// Sorts a table by columns into one file. Values of all columns are preserved.
///
/// # Errors
/// [`OocError::Usage`] for columns that are missing or have no order; [`OocError::Budget`] if the memory limit is too
/// small for the largest record batch; [`OocError::Format`] for files, and if temporary files would exceed their
/// limit. None leaves an output or a temporary file.
pub fn sort_table(job: &TableSortJob, options: &Options) -> Result<TableSortReport> {
    let started = Instant::now();
    let prepared = Prepared::new(job, options)?;
    let Prepared { room, table, columns, maker, units, sizes, plan } = &prepared;
    let work = Work {
        columns,
        maker,
        turns: Turns {
            threads: room.threads,
            memory: room.memory.clone(),
            token: options.token.clone(),
        },
        sizes: *sizes,
        releases_mapped: options.memory_limit_bytes.is_some(),
        stages: Default::default(),
        temporary_bytes: Default::default(),
    };
    work.turns.check()?;
    let plan_ns = started.elapsed().as_nanos() as u64;
    let reserved = sizes.output_bytes() + (units.len() * size_of::<Unit>()) as u64;
    let _reserved = room.memory.reserve(MemoryUse::Operators, reserved)?;
    let stored = table.narrow_schema();
    let begin = || -> Result<Output> {
        let rows_per_batch = sizes.batch_rows;
        let options = WriterOptions { rows_per_batch, ..WriterOptions::default() };
        let writer = ArrowWriter::create(&job.output, &stored, options)?;
        Ok(Output::new(writer, sizes.batch_bytes))
    };
    let mut output = begin()?;
    let mut notes = Vec::new();
    let mut passes = if units.is_empty() { 0 } else { plan.passes };
    let source = Source::Table(table, units);
    if passes == 1 {
        match one_pass::sort(&work, &source, |batches| output.write(batches)) {
            Err(OocError::Budget(_)) => {
                (passes, output) = (2, begin()?);
                notes.push("in two passes: the keys did not fit the memory".to_string());
            }
            outcome => outcome?,
        }
    }
    if passes == 2 {
        let folder = temporary_folder(job.temporary_folder.as_deref(), &job.output);
        let limit_bytes = job.temporary_limit_bytes.unwrap_or(u64::MAX);
        let lever = "raise the limit of temporary files, or that of memory";
        let spills = SpillFolder::new(&folder, limit_bytes, lever);
        let divided = work.staged("divide", || Divided::all(&work, &source, &spills))?;
        two_passes::sort(&work, divided, &spills, |batches| output.write(batches))?;
        let of = decimal_bytes(work.temporary_bytes.load(Ordering::Relaxed));
        notes.push(format!("temporary files of {of} in {}", folder.display()));
    }
    let rows = output.writer.rows();
    assert!(rows == plan.rows, "{rows} rows of {} were written", plan.rows);
    table.check_unchanged()?;
    work.turns.check()?;
    let summary = work.staged("finish", || Ok(output.writer.finish()?))?;
    let report = Report {
        ran_on: on_threads(room.threads),
        input_bytes: table.files().iter().map(|file| file.identity().size_bytes).sum(),
        output_bytes: summary.bytes,
        wall_ns: started.elapsed().as_nanos() as u64,
        plan_ns,
        temporary_bytes: work.temporary_bytes.into_inner(),
        notes,
        ..room.report(Vec::new())
    };
    let plan = plan.clone();
    Ok(TableSortReport { report, plan, batches: summary.batches, stages: work.stages.into_inner() })
}
