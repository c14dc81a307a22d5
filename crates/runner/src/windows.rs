//! A stage of window functions: its rows are sorted partition by partition where memory holds them, by way of temporary files
//! where it does not, and get the results of the calls as they leave the sort.
//!
//! ```text
//! pipeline ─► rows, on all cores or from a GPU ─┬─► held: pipeline::windows, a part of the partitions a thread ─┬─► reader
//!                                               └─► too many: ooc::sort ─► pipeline::windows, one thread ───────┘
//! ```

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use headrace_columns::ColumnError;
use headrace_columns::column::arrow_field;
use headrace_flow::{CancelToken, RaceError};
use headrace_io::{MemoryBudget, MemoryUse, OutOfBudget, Reservation};
use headrace_ir::{NamedExpr, Windows};
use headrace_ooc::OocError;
use headrace_ooc::sort::table::{BatchSort, BatchSortOptions};
use headrace_pipeline::state::Output;
use headrace_pipeline::windows::{FirstRows, Guard, HeldRows, Portion, WindowScan, waiting_bytes};
use headrace_pipeline::{ExecError, WhyNot};
use headrace_spill::batch_bytes;
use parking_lot::Mutex;

use crate::error::RunError;
use crate::report::WINDOWS_ON_CORES;
use crate::run::{Run, Streamed, ms_since};
use crate::settings::{Processor, Settings};
use crate::task::{Emit, Outlet};

/// Whether a stage can make windows, or why not.
///
/// # Errors
/// The reason.
pub fn check_windows(windows: &Windows) -> Result<(), WhyNot> {
    WindowScan::new(windows)?;
    let schema = schema_of(windows);
    let sorts = BatchSort::check(&schema, &windows.sort_order());
    sorts.map_err(|error| WhyNot::new(first_line(&error)))
}

fn schema_of(windows: &Windows) -> SchemaRef {
    let fields = windows.columns.iter().map(NamedExpr::field);
    Arc::new(Schema::new(fields.map(|field| arrow_field(&field)).collect::<Vec<_>>()))
}

fn first_line(error: &OocError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}

/// Of fewer rows one thread takes less time than several.
const ROWS_PER_THREAD_MIN: u64 = 16 << 10;

/// Rows of one partition from which on several threads sort it sooner.
const ONE_PARTITION_ROWS_MAX: u64 = 256 << 10;

/// Parts for each thread: some are larger than others.
const PARTS_A_THREAD: usize = 4;

/// Of an operator's memory, what rows may take that are held.
const HELD_SHARE: u64 = 2;

/// Of an operator's memory, in eighths, what the sort may take; the rest is for rows that wait behind it.
const SORT_EIGHTHS: u64 = 5;

/// Of an operator's memory, what dropping rows early may take.
const FIRST_SHARE: u64 = 8;

/// Sorted rows get their results in portions of so small a part of an operator's memory, and of so many rows at least.
const CHUNKS: u64 = 64;
const CHUNK_ROWS_MIN: usize = 64;

impl Run<'_> {
    /// Puts out the rows of a stage with the results of window functions. `stream` runs its pipeline.
    pub(crate) fn with_windows(
        &self,
        windows: &Windows,
        settings: &Settings,
        outlet: Outlet<'_>,
        stream: impl FnOnce(Outlet<'_>) -> Result<Streamed, RunError>,
    ) -> Result<Streamed, RunError> {
        if settings.is_gpu_or_nothing() {
            return Err(WhyNot::new(WINDOWS_ON_CORES).into());
        }
        let making = Making {
            run: self,
            windows,
            threads: settings.threads.max(1),
            memory: self.runner.operator_memory(),
            emit: outlet.emit,
        };
        let first = First {
            windows,
            bytes_max: making.memory.limit_bytes() / FIRST_SHARE / making.threads as u64,
            memory: Arc::clone(&making.memory),
            idle: Mutex::default(),
        };
        let gathered = Mutex::new((Gathered::new(&making.memory), None));
        let push = |batch: RecordBatch| {
            let kept = first.keep(batch);
            let (gathered, failed) = &mut *gathered.lock();
            match kept.and_then(|batch| gathered.push(&making, batch)) {
                Ok(()) => true,
                Err(error) => {
                    failed.get_or_insert(error);
                    false
                }
            }
        };
        let mut streamed = stream(Outlet::from(&push as Emit<'_>));
        if let Ok(streamed) = &mut streamed
            && let Output::Batches(rest) = &mut streamed.done.output
        {
            let _ = std::mem::take(rest).into_iter().all(push);
        }
        let (gathered, failed) = gathered.into_inner();
        drop(first);
        // What stopped the pipeline is the better explanation of its end.
        failed.map_or(Ok(()), Err)?;
        let mut streamed = streamed?;
        let started = Instant::now();
        streamed.done.spilled_bytes += making.finish(gathered)?;
        streamed.done.finish_ms += ms_since(started);
        streamed.processor = "cpu";
        if matches!(self.request.settings.processor, Processor::Auto | Processor::Cuda) {
            streamed.why_not = Some(WhyNot::new(WINDOWS_ON_CORES));
        }
        Ok(streamed)
    }
}

/// Rows that have come.
enum Gathered {
    /// They fit.
    Held { batches: Vec<RecordBatch>, rows: u64, bytes: u64, memory: Reservation },
    /// They do not.
    Sorting(Box<BatchSort>),
}

impl Gathered {
    fn new(memory: &Arc<MemoryBudget>) -> Self {
        let memory = memory.reserve_nothing(MemoryUse::Operators);
        Self::Held { batches: Vec::new(), rows: 0, bytes: 0, memory }
    }

    fn push(&mut self, making: &Making<'_>, batch: RecordBatch) -> Result<(), RunError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if let Self::Held { batches, rows, bytes, memory } = self {
            *rows += batch.num_rows() as u64;
            *bytes += batch_bytes(&batch);
            let needed = HeldRows::needs_bytes(*rows, *bytes);
            // All may be of one partition.
            let with_waiting = needed + waiting_bytes(making.windows, *rows, *bytes);
            let fits = with_waiting <= making.memory.limit_bytes() / HELD_SHARE;
            if fits && memory.resize(needed).is_ok() {
                batches.push(batch);
                return Ok(());
            }
        }
        self.sorting(making)?.push(&batch).map_err(error_of)
    }

    /// The sort of all rows, which goes through temporary files.
    fn sorting(&mut self, making: &Making<'_>) -> Result<&mut BatchSort, RunError> {
        if let Self::Held { batches, memory, .. } = self {
            let batches = std::mem::take(batches);
            // The sort reserves what it holds.
            memory.resize(0)?;
            let mut sort = making.sort()?;
            for batch in batches {
                sort.push(&batch).map_err(error_of)?;
            }
            *self = Self::Sorting(Box::new(sort));
        }
        match self {
            Self::Sorting(sort) => Ok(sort),
            Self::Held { .. } => Err(ExecError::Internal("rows that are not sorted".into()).into()),
        }
    }
}

/// Window functions in the making.
struct Making<'a> {
    run: &'a Run<'a>,
    windows: &'a Windows,
    threads: usize,
    memory: Arc<MemoryBudget>,
    emit: Emit<'a>,
}

impl Making<'_> {
    fn sort(&self) -> Result<BatchSort, RunError> {
        let options = BatchSortOptions {
            threads: self.threads,
            memory: MemoryBudget::within(
                &self.memory,
                MemoryUse::Operators,
                self.memory.limit_bytes() / 8 * SORT_EIGHTHS,
            ),
            spills: Arc::clone(self.run.runner.spill_folder()),
            token: self.run.request.token.clone(),
        };
        let sort = BatchSort::new(&schema_of(self.windows), &self.windows.sort_order(), options);
        sort.map_err(error_of)
    }

    /// Puts out all rows. Returns the bytes of temporary files.
    fn finish(&self, mut gathered: Gathered) -> Result<u64, RunError> {
        if let Gathered::Held { rows, .. } = &gathered
            && *rows > ONE_PARTITION_ROWS_MAX
            && self.threads > 1
            && self.windows.partition.is_empty()
        {
            gathered.sorting(self)?;
        }
        match gathered {
            // Its memory is held until all are put out.
            Gathered::Held { batches, rows, memory: _held, .. } => {
                self.finish_held(batches, rows).map(|()| 0)
            }
            Gathered::Sorting(sort) => self.finish_sorted(*sort),
        }
    }

    fn finish_held(&self, batches: Vec<RecordBatch>, rows: u64) -> Result<(), RunError> {
        // Others may be at work, too.
        let share = self.run.limit.as_ref().map_or(self.threads, |limit| limit.consumers());
        let threads = self.threads.min(share).max(1) as u64;
        let threads = (rows / ROWS_PER_THREAD_MIN).clamp(1, threads) as usize;
        let parts = if threads > 1 { threads * PARTS_A_THREAD } else { 1 };
        let held = HeldRows::new(self.windows, parts);
        let portions: Vec<OnceLock<Portion>> = batches.iter().map(|_| OnceLock::new()).collect();
        self.each(threads, batches.len(), |number| {
            let portion = held.portion(batches[number].clone())?;
            let _ = portions[number].set(portion);
            Ok(true)
        })?;
        drop(batches);
        let portions: Vec<Portion> =
            portions.into_iter().filter_map(OnceLock::into_inner).collect();
        self.each(threads.min(held.parts()), held.parts(), |part| {
            let memory = self.memory.reserve_nothing(MemoryUse::Operators);
            let mut watch = Watch { memory, token: self.run.request.token };
            Ok(held.run(&portions, part, &mut watch, self.emit)?)
        })
    }

    /// Does something with each number below `count`, on threads; until one says `false`.
    fn each(
        &self,
        threads: usize,
        count: usize,
        work: impl Fn(usize) -> Result<bool, RunError> + Sync,
    ) -> Result<(), RunError> {
        let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let run = || -> Result<(), RunError> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count || is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let worked = match self.run.request.token.is_cancelled() {
                    true => Err(RaceError::Cancelled.into()),
                    false => work(number),
                };
                if !matches!(worked, Ok(true)) {
                    is_over.store(true, Ordering::Relaxed);
                }
                worked?;
            }
        };
        let panicked = |_| Err(RunError::Thread("computing windows panicked".into()));
        // All are waited for, whatever the first says.
        let mut ended = headrace_io::on_threads(threads, run).into_iter();
        ended.try_for_each(|ended| ended.unwrap_or_else(panicked))
    }

    /// Puts out rows as they leave the sort.
    fn finish_sorted(&self, sort: BatchSort) -> Result<u64, RunError> {
        let mut scanning = Scanning {
            scan: WindowScan::new(self.windows)?,
            chunk_bytes: self.memory.limit_bytes() / CHUNKS,
            memory: self.memory.reserve_nothing(MemoryUse::Operators),
            emit: self.emit,
            ended: Ok(true),
        };
        let spilled_bytes = sort.temporary_bytes();
        let sorted = sort.finish(|batch| {
            scanning.ended = scanning.pushed(batch);
            matches!(scanning.ended, Ok(true))
        });
        let report = match (scanning.ended, sorted) {
            (Err(error), _) => return Err(error),
            // No more rows are wanted.
            (Ok(false), _) => return Ok(spilled_bytes),
            (Ok(true), sorted) => sorted.map_err(error_of)?,
        };
        let _ = scanning.scan.finish()?.into_iter().all(self.emit);
        Ok(report.temporary_bytes)
    }
}

/// Drops rows that nobody wants, in as many places as threads are at it.
struct First<'a> {
    windows: &'a Windows,
    /// What one may take.
    bytes_max: u64,
    memory: Arc<MemoryBudget>,
    /// Those that no thread uses now, each with the memory that it takes.
    idle: Mutex<Vec<(FirstRows, Reservation)>>,
}

impl First<'_> {
    fn keep(&self, batch: RecordBatch) -> Result<RecordBatch, RunError> {
        let idle = self.idle.lock().pop();
        let (mut first, mut memory) = match idle {
            Some(idle) => idle,
            None => match FirstRows::of(self.windows)? {
                Some(first) => (first, self.memory.reserve_nothing(MemoryUse::Operators)),
                None => return Ok(batch),
            },
        };
        let kept = first.keep(batch)?;
        // It helps where there is memory for it, and only then.
        if first.bytes() > self.bytes_max || memory.resize(first.bytes()).is_err() {
            first.give_up();
            memory.resize(0)?;
        }
        self.idle.lock().push((first, memory));
        Ok(kept)
    }
}

/// Sorted rows on their way out.
struct Scanning<'a> {
    scan: WindowScan,
    /// So much of a batch gets its results at a time, where no row waits.
    chunk_bytes: u64,
    /// For those that wait.
    memory: Reservation,
    emit: Emit<'a>,
    /// Whether more rows are wanted, or why rows did not get their results.
    ended: Result<bool, RunError>,
}

impl Scanning<'_> {
    fn pushed(&mut self, batch: RecordBatch) -> Result<bool, RunError> {
        let (rows, bytes) = (batch.num_rows(), batch_bytes(&batch));
        let chunk_rows = self.chunk_bytes * rows as u64 / bytes.max(1);
        let chunk_rows = (chunk_rows as usize).max(CHUNK_ROWS_MIN);
        for first in (0..rows).step_by(chunk_rows) {
            let chunk = batch.slice(first, chunk_rows.min(rows - first));
            self.memory.resize(self.scan.needs_bytes(&chunk)).map_err(out_of_memory)?;
            if !self.scan.push(chunk)?.into_iter().all(self.emit) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Watches over a part in the making.
struct Watch<'a> {
    memory: Reservation,
    token: &'a CancelToken,
}

impl Guard for Watch<'_> {
    fn check(&self) -> Result<(), ExecError> {
        if self.token.is_cancelled() { Err(ExecError::Cancelled) } else { Ok(()) }
    }

    fn hold(&mut self, bytes: u64) -> Result<(), ExecError> {
        self.memory.resize(bytes).map_err(out_of_memory)
    }
}

fn out_of_memory(refused: OutOfBudget) -> ExecError {
    ColumnError::out_of_memory(&refused, "rows that wait for the end of their partition").into()
}

fn error_of(error: OocError) -> RunError {
    match error {
        OocError::Budget(refused) => refused.into(),
        OocError::Memory { what, memory, wanted_bytes, limit_bytes, .. } => {
            let (tier, needed_bytes) = (memory, wanted_bytes);
            ExecError::from(ColumnError::Memory { tier, what, needed_bytes, limit_bytes }).into()
        }
        OocError::Spill(error) => error.into(),
        OocError::Format(error) => error.into(),
        OocError::Race(error) => error.into(),
        OocError::Cancelled => RaceError::Cancelled.into(),
        usage @ OocError::Usage { .. } => WhyNot::new(first_line(&usage)).into(),
        other => ExecError::Internal(other.to_string()).into(),
    }
}
