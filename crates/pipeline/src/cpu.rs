//! The CPU processor: vectorised over batches that fit a core's caches.
//!
//! ```text
//! segment ──batches of rows──► steps ──► sink state of the worker ──finish──► output
//!            scan    the first steps, over the bytes of the segment where they allow it
//!            load    only the columns that a step asks for
//!            eval    expressions, a column at a time
//!            select  from truth to the rows that are kept
//!            probe   from keys to rows of a build
//!            aggregate, group_table, sink
//! ```
//!
//! One [`CpuWorker`] belongs to one thread; workers share nothing but counters. A column is
//! read for the whole batch while most rows are alive, and gathered for the rows that are
//! left once few are (see `context`).

pub(crate) mod aggregate;
mod any_match;
mod aside;
pub(crate) mod check;
pub(crate) mod context;
pub(crate) mod eval;
pub(crate) mod group_table;
pub(crate) mod hash_sink;
pub(crate) mod hash_state;
mod key_order;
mod narrow;
pub(crate) mod options;
mod pairs;
mod probe;
mod rows;
mod run;
mod scan;
mod sink;
pub(crate) mod sorted;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::RecordBatch;
use headrace_columns::load::SourceColumns;
use headrace_columns::memory::{Hold, reserve};
use headrace_columns::segment::SegmentView;
use headrace_flow::Verdict;
use headrace_io::Reservation;

use crate::bound::{Bound, BoundSink, RegisterInfo};
use crate::build::BuildOptions;
use crate::cpu::rows::last_batch;
use crate::cpu::run::Runner;
use crate::cpu::scan::Scan;
use crate::cpu::sink::SinkState;
use crate::partial::PartialSchema;
use crate::partial::merge::Outlet;
use crate::state::{Output, finish_dense};
use crate::{ExecError, WhyNot};

pub use options::{Emit, WorkerOptions};
pub use sorted::SortedRows;

/// A pipeline that this processor takes. Any number of executions may share it.
#[derive(Debug)]
pub struct CpuProgram {
    bound: Arc<Bound>,
}

impl CpuProgram {
    /// Checks that everything in the pipeline is supported.
    pub fn compile(bound: Arc<Bound>) -> Result<Arc<Self>, WhyNot> {
        check::supported(&bound)?;
        Ok(Arc::new(Self { bound }))
    }

    /// The lowered pipeline.
    pub fn bound(&self) -> &Arc<Bound> {
        &self.bound
    }

    /// A worker for one thread.
    pub fn worker(self: &Arc<Self>, options: &WorkerOptions) -> Result<CpuWorker, ExecError> {
        let sink = SinkState::new(&self.bound, options)?;
        let (memory, options) = (reserve(&options.memory), options.clone());
        let (program, left) = (Arc::clone(self), vec![0; self.bound.steps.len()]);
        let mut worker = CpuWorker { program, sink, memory, options, rows: 0, left };
        account(&worker.sink, &mut worker.memory, &worker.program.bound)?;
        Ok(worker)
    }

    /// Merges what the workers of one execution gathered, all of it in memory. See
    /// [`Self::finish_each`].
    ///
    /// # Errors
    /// Those of [`Self::finish_each`].
    pub fn finish(
        &self,
        workers: Vec<CpuWorker>,
        build_options: BuildOptions,
    ) -> Result<Output, ExecError> {
        let batches = Mutex::new(Vec::new());
        let emit = |batch| {
            batches.lock().map(|mut batches: MutexGuard<'_, Vec<_>>| batches.push(batch)).is_ok()
        };
        let output = self.finish_each(workers, build_options, &emit)?;
        let gathered = batches.into_inner();
        match (output, gathered) {
            (Output::Batches(_), Ok(batches)) => Ok(Output::Batches(batches)),
            (build, _) => Ok(build),
        }
    }

    /// Merges what the workers of one execution gathered. Batches go to `emit` as soon as they
    /// are finished, in no particular order, and none are left in the output.
    /// `build_options.source_rows` is filled in for a build if it is not known.
    ///
    /// # Errors
    /// Totals that overflow; memory; a temporary file; [`ExecError::Cancelled`].
    pub fn finish_each(
        &self,
        workers: Vec<CpuWorker>,
        mut build_options: BuildOptions,
        emit: Emit<'_>,
    ) -> Result<Output, ExecError> {
        let rows: u64 = workers.iter().map(|worker| worker.rows).sum();
        build_options.source_rows.get_or_insert(rows);
        let options = match workers.first() {
            Some(worker) => worker.options.clone(),
            None => WorkerOptions::new(u64::MAX),
        };
        build_options.threads = options.workers;
        // What the states take is held until they are merged.
        let (states, mut memory): (Vec<_>, Vec<_>) =
            workers.into_iter().map(|worker| (worker.sink, worker.memory)).unzip();
        if let Some(SinkState::Hash(_)) = states.first() {
            self.finish_hash(states, &options, emit)?;
            return Ok(Output::Batches(Vec::new()));
        }
        if let BoundSink::Build { keys, payload } = &self.bound.sink {
            let name = &self.bound.table;
            // The build takes about as much again, beside the columns that it is made from.
            let held: u64 = memory.iter().map(Reservation::bytes).sum();
            if let Some(memory) = memory.first_mut() {
                let more = memory.bytes().saturating_add(held);
                memory.hold(more, &format!("the build {name}"))?;
            }
            let columns = states.into_iter().map(|state| match state {
                SinkState::Build { columns } => Ok(columns),
                _ => Err(ExecError::Internal("workers of different sinks".into())),
            });
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let build = sink::finish_build(name, &columns, keys, payload, build_options)?;
            return Ok(Output::Build(build));
        }
        let merged = self.merged(states, &options)?;
        self.rows_of(merged)?.into_iter().all(emit);
        Ok(Output::Batches(Vec::new()))
    }

    fn finish_hash(
        &self,
        states: Vec<SinkState>,
        options: &WorkerOptions,
        emit: Emit<'_>,
    ) -> Result<(), ExecError> {
        let sinks = states.into_iter().map(|state| match state {
            SinkState::Hash(groups) => Ok(*groups),
            _ => Err(ExecError::Internal("workers of different sinks".into())),
        });
        let sinks = sinks.collect::<Result<Vec<_>, _>>()?;
        let threads = options.workers.max(sinks.len());
        let partial = PartialSchema::of_output(&self.bound)?;
        Outlet::new(&self.bound, partial, &options.cancel, emit).finish(sinks, threads)
    }

    fn merged(
        &self,
        states: Vec<SinkState>,
        options: &WorkerOptions,
    ) -> Result<SinkState, ExecError> {
        let mut states = states.into_iter();
        let mut merged = match states.next() {
            Some(first) => first,
            None => SinkState::new(&self.bound, options)?,
        };
        states.try_for_each(|state| merged.merge(state, &self.bound.sink))?;
        Ok(merged)
    }

    fn rows_of(&self, merged: SinkState) -> Result<Vec<RecordBatch>, ExecError> {
        match (merged, &self.bound.sink) {
            (SinkState::Dense(state), _) => Ok(vec![finish_dense(&self.bound, &state)?]),
            (
                SinkState::Rows { mut columns, mut batches },
                BoundSink::Rows { columns: outputs, .. },
            ) => {
                batches.extend(last_batch(&mut columns, outputs)?);
                Ok(batches)
            }
            (SinkState::Sorted(rows), BoundSink::Sorted { columns, order, limit }) => {
                rows.finish(columns, order, *limit)
            }
            // No worker, no groups.
            (SinkState::Hash(_), _) => Ok(Vec::new()),
            _ => Err(ExecError::Internal("workers of another sink".into())),
        }
    }
}

/// The state of one thread.
pub struct CpuWorker {
    program: Arc<CpuProgram>,
    sink: SinkState,
    memory: Reservation,
    options: WorkerOptions,
    rows: u64,
    left: Vec<u64>,
}

impl CpuWorker {
    /// Folds a segment into the worker's state; output rows stay there. After an error the worker's
    /// state is of no use.
    ///
    /// # Errors
    /// The failure of a row; memory.
    pub fn execute(&mut self, segment: &SegmentView<'_>) -> Result<Verdict, ExecError> {
        self.fold(segment, None)
    }

    /// As [`Self::execute`]; output rows go to `emit` as soon as a batch of them is full, so that a
    /// worker never holds many.
    ///
    /// # Errors
    /// As there.
    pub fn execute_each(
        &mut self,
        segment: &SegmentView<'_>,
        emit: Emit<'_>,
    ) -> Result<Verdict, ExecError> {
        self.fold(segment, Some(emit))
    }

    fn fold(
        &mut self,
        segment: &SegmentView<'_>,
        emit: Option<Emit<'_>>,
    ) -> Result<Verdict, ExecError> {
        let program = Arc::clone(&self.program);
        let bound = &*program.bound;
        if segment.columns.len() != bound.source_registers {
            return Err(ExecError::Internal(format!(
                "a segment of {} columns for {} source registers",
                segment.columns.len(),
                bound.source_registers
            )));
        }
        let source =
            SourceColumns::new(segment, bound.registers.iter().map(RegisterInfo::planned))?;
        let mut scan = Scan::new(bound, &source, &self.options);
        let batch_rows = self.options.batch_rows.max(1);
        for start in (0..segment.rows).step_by(batch_rows) {
            if self.is_enough() {
                return Ok(Verdict::Enough);
            }
            let rows = batch_rows.min(segment.rows - start);
            scan.batch(start, rows, &mut self.left);
            while let Some(portion) = scan.portion(start + rows == segment.rows) {
                let (options, memory) = (&self.options, &mut self.memory);
                let mut between = |sink: &mut SinkState| {
                    if options.cancel.is_cancelled() {
                        return Err(ExecError::Cancelled);
                    }
                    settle(sink, memory, bound, options, emit)
                };
                let (sink, left) = (&mut self.sink, &mut self.left[..]);
                let between_portions = &mut between;
                let mut runner = Runner {
                    bound,
                    sink,
                    options,
                    left,
                    between: between_portions,
                    is_over: false,
                };
                runner.portion(&source, &scan, portion)?;
                if runner.is_over || between(&mut self.sink)? == Verdict::Enough {
                    return Ok(Verdict::Enough);
                }
            }
        }
        self.rows += segment.rows as u64;
        Ok(if self.is_enough() { Verdict::Enough } else { Verdict::Continue })
    }

    /// Rows that each of the bound steps left; of a step that was run together with a later one, 0.
    pub fn rows_left(&self) -> &[u64] {
        &self.left
    }

    fn is_enough(&self) -> bool {
        is_enough(&self.program.bound, &self.options)
    }
}

/// Whether a limit of rows is reached.
fn is_enough(bound: &Bound, options: &WorkerOptions) -> bool {
    match &bound.sink {
        BoundSink::Rows { limit: Some(limit), .. } => {
            options.emitted_rows.load(Ordering::Relaxed) >= *limit
        }
        _ => false,
    }
}

/// Accounts for what a sink holds, and hands over the batches that are full; whether more rows are wanted.
fn settle(
    sink: &mut SinkState,
    memory: &mut Reservation,
    bound: &Bound,
    options: &WorkerOptions,
    emit: Option<Emit<'_>>,
) -> Result<Verdict, ExecError> {
    match account(sink, memory, bound) {
        // Where memory is short, rows do not wait for a full batch.
        Err(_) if emit.is_some() && sink.cut_rows(&bound.sink)? => {}
        accounted => accounted?,
    }
    let full = match (&mut *sink, emit) {
        (SinkState::Rows { batches, .. }, Some(_)) => std::mem::take(batches),
        _ => Vec::new(),
    };
    let mut is_wanted = true;
    if let Some(emit) = emit.filter(|_| !full.is_empty()) {
        // Giving back does not fail.
        let _ = account(sink, memory, bound);
        is_wanted = full.into_iter().all(emit);
    }
    Ok(if is_wanted && !is_enough(bound, options) { Verdict::Continue } else { Verdict::Enough })
}

/// Brings the shared account up to date and checks the limit.
fn account(sink: &SinkState, memory: &mut Reservation, bound: &Bound) -> Result<(), ExecError> {
    let bytes = sink.bytes();
    if bytes == memory.bytes() {
        return Ok(());
    }
    let build;
    let what = match sink {
        SinkState::Dense(_) | SinkState::Hash(_) => "groups",
        SinkState::Rows { .. } => "output rows",
        SinkState::Sorted(_) => "rows that are sorted",
        SinkState::Build { .. } => {
            build = format!("the build {}", bound.table);
            &build
        }
    };
    Ok(memory.hold(bytes, what)?)
}
