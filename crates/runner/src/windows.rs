//! A stage of window functions: its rows are sorted as they come, by way of temporary files where memory is too small, and
//! get the results of the calls as they leave the sort.
//!
//! ```text
//! pipeline ─► rows, on all cores or from a GPU ─► ooc::sort ─► pipeline::windows ─► whoever reads the stage
//! ```

use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use headrace_columns::ColumnError;
use headrace_columns::column::arrow_field;
use headrace_flow::RaceError;
use headrace_io::{MemoryBudget, MemoryUse, Reservation};
use headrace_ir::{NamedExpr, Windows};
use headrace_ooc::OocError;
use headrace_ooc::sort::table::{BatchSort, BatchSortOptions, BatchSortReport};
use headrace_pipeline::state::Output;
use headrace_pipeline::windows::{FirstRows, WindowScan};
use headrace_pipeline::{ExecError, WhyNot};
use headrace_spill::batch_bytes;
use parking_lot::Mutex;

use crate::error::RunError;
use crate::run::{Run, Streamed, ms_since};
use crate::settings::Settings;
use crate::task::{Emit, Outlet};

/// What rows take while they get their results, in multiples of their own bytes: copies of keys and arguments, running
/// values, results.
const SCAN_SHARE: u64 = 4;

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

impl Run<'_> {
    /// Puts out the rows of a stage with the results of window functions. `stream` runs its pipeline.
    pub(crate) fn with_windows(
        &self,
        windows: &Windows,
        settings: &Settings,
        outlet: Outlet<'_>,
        stream: impl FnOnce(Outlet<'_>) -> Result<Streamed, RunError>,
    ) -> Result<Streamed, RunError> {
        let sort = self.sort_of(windows, settings)?;
        let first =
            First { windows, memory: self.runner.operator_memory(), idle: Mutex::default() };
        let sorting = Mutex::new((sort, None));
        let push = |batch: RecordBatch| {
            let kept = first.keep(batch);
            let (sort, failed) = &mut *sorting.lock();
            match kept.and_then(|batch| sort.push(&batch).map_err(error_of)) {
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
        let (sort, failed) = sorting.into_inner();
        // What stopped the pipeline is the better explanation of its end.
        failed.map_or(Ok(()), Err)?;
        let mut streamed = streamed?;
        let started = Instant::now();
        let memory = self.runner.operator_memory();
        let mut scanning = Scanning {
            scan: WindowScan::new(windows)?,
            memory: memory.reserve_nothing(MemoryUse::Operators),
            emit: outlet.emit,
            failed: None,
        };
        let sorted = sort.finish(|batch| scanning.push(batch));
        streamed.done.spilled_bytes += scanning.finish(sorted)?;
        streamed.done.finish_ms += ms_since(started);
        if streamed.processor != "cpu" {
            let why_not = "its rows are found on the GPU, and sorted on the cores for the windows";
            streamed.why_not = Some(WhyNot::new(why_not));
            streamed.processor = "cpu";
        }
        Ok(streamed)
    }

    fn sort_of(&self, windows: &Windows, settings: &Settings) -> Result<BatchSort, RunError> {
        let options = BatchSortOptions {
            threads: settings.threads.max(1),
            memory: self.runner.operator_memory(),
            spills: Arc::clone(self.runner.spill_folder()),
            token: self.request.token.clone(),
        };
        let sort = BatchSort::new(&schema_of(windows), &windows.sort_order(), options);
        sort.map_err(error_of)
    }
}

/// Drops rows that nobody wants, in as many places as threads are at it.
struct First<'a> {
    windows: &'a Windows,
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
        memory.resize(first.bytes())?;
        self.idle.lock().push((first, memory));
        Ok(kept)
    }
}

/// Sorted rows on their way out.
struct Scanning<'a> {
    scan: WindowScan,
    /// For those that wait.
    memory: Reservation,
    emit: Emit<'a>,
    /// Why rows did not get their results.
    failed: Option<RunError>,
}

impl Scanning<'_> {
    /// Whether more rows are wanted.
    fn push(&mut self, batch: RecordBatch) -> bool {
        match self.pushed(batch) {
            Ok(is_wanted) => is_wanted,
            Err(error) => {
                self.failed = Some(error);
                false
            }
        }
    }

    fn pushed(&mut self, batch: RecordBatch) -> Result<bool, RunError> {
        let held_bytes: u64 = self.scan.waiting().map(batch_bytes).sum();
        self.memory.resize(SCAN_SHARE * (held_bytes + batch_bytes(&batch)))?;
        let ready = self.scan.push(batch)?;
        Ok(ready.into_iter().all(self.emit))
    }

    /// After the sort: puts out what is left. Returns the bytes of its temporary files.
    fn finish(self, sorted: Result<BatchSortReport, OocError>) -> Result<u64, RunError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let report = match sorted {
            Ok(report) => report,
            // No more rows are wanted.
            Err(OocError::Cancelled) => return Ok(0),
            Err(error) => return Err(error_of(error)),
        };
        let _ = self.scan.finish()?.into_iter().all(self.emit);
        Ok(report.temporary_bytes)
    }
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
