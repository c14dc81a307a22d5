//! The CPU processor: vectorised over batches that fit a core's caches.
//!
//! ```text
//! segment ──batches of rows──► steps ──► sink state of the worker ──finish──► output
//!            load    only the columns that a step asks for
//!            eval    expressions, a column at a time
//!            select  from truth to the rows that are kept
//!            probe   from keys to rows of a build
//!            aggregate, hash_aggregate, sink
//! ```
//!
//! One [`CpuWorker`] belongs to one thread; workers share nothing but counters. A column is
//! read for the whole batch while most rows are alive, and gathered for the rows that are
//! left once few are (see [`context`]).

mod aggregate;
mod any_match;
mod arithmetic;
mod cast;
pub(crate) mod check;
mod compare;
pub mod context;
pub(crate) mod decimal;
pub(crate) mod eval;
mod hash_aggregate;
mod in_list;
mod like;
mod load;
mod logic;
pub(crate) mod payload;
mod probe;
mod run;
mod select;
mod simd;
mod sink;
pub(crate) mod vector;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;

use crate::bound::{Bound, BoundSink};
use crate::build::BuildOptions;
use crate::cpu::load::SourceColumns;
use crate::cpu::run::Runner;
use crate::cpu::sink::SinkState;
use crate::segment::SegmentView;
use crate::state::{Output, finish_dense};
use crate::{ExecError, WhyNot};

pub use cast::is_supported as is_cast_supported;

/// Rows of a batch: the columns of a batch stay in a core's L1 and L2 caches.
pub const BATCH_ROWS: usize = 4096;

/// What all workers of one execution share. Clone it for each worker.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Host bytes that the states of all workers together may take.
    pub memory_limit_bytes: u64,
    /// Rows of a batch; [`BATCH_ROWS`] but for tests.
    pub batch_rows: usize,
    /// Host bytes that they take.
    pub memory_used_bytes: Arc<AtomicU64>,
    /// Rows that reached a row sink with a limit.
    pub emitted_rows: Arc<AtomicU64>,
}

impl WorkerOptions {
    /// Options of one execution.
    pub fn new(memory_limit_bytes: u64) -> Self {
        Self {
            memory_limit_bytes,
            batch_rows: BATCH_ROWS,
            memory_used_bytes: Arc::default(),
            emitted_rows: Arc::default(),
        }
    }
}

/// Whether more segments are of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    More,
    /// The limit is reached: further rows would be thrown away.
    Enough,
}

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
        let sink = SinkState::new(&self.bound.sink)?;
        let options = options.clone();
        let mut worker =
            CpuWorker { program: Arc::clone(self), sink, options, rows: 0, accounted_bytes: 0 };
        worker.account()?;
        Ok(worker)
    }

    /// Merges what the workers of one execution gathered. `build_options.source_rows` is
    /// filled in for a build if it is not known.
    pub fn finish(
        &self,
        workers: Vec<CpuWorker>,
        mut build_options: BuildOptions,
    ) -> Result<Output, ExecError> {
        let sink = &self.bound.sink;
        let rows: u64 = workers.iter().map(|worker| worker.rows).sum();
        build_options.source_rows.get_or_insert(rows);
        let mut states = workers.into_iter().map(CpuWorker::into_state);
        let mut merged = match states.next() {
            Some(first) => first,
            None => SinkState::new(sink)?,
        };
        states.try_for_each(|state| merged.merge(state, sink))?;
        match (merged, sink) {
            (SinkState::Dense(state), _) => {
                Ok(Output::Batches(vec![finish_dense(&self.bound, &state)?]))
            }
            (SinkState::Hash { table, states }, BoundSink::Aggregate { keys, .. }) => {
                Ok(Output::Batches(vec![sink::finish_hash(&table, &states, keys, sink)?]))
            }
            (
                SinkState::Rows { mut columns, mut batches },
                BoundSink::Rows { columns: outputs, .. },
            ) => {
                batches.extend(sink::last_batch(&mut columns, outputs)?);
                Ok(Output::Batches(batches))
            }
            (SinkState::Build { columns }, BoundSink::Build { keys, payload }) => {
                let name = &self.bound.table;
                sink::finish_build(name, &columns, keys, payload, build_options).map(Output::Build)
            }
            _ => Err(ExecError::Internal("workers of another sink".into())),
        }
    }
}

/// The state of one thread.
pub struct CpuWorker {
    program: Arc<CpuProgram>,
    sink: SinkState,
    options: WorkerOptions,
    rows: u64,
    accounted_bytes: u64,
}

impl CpuWorker {
    /// Folds a segment into the worker's state. After an error the worker's state is of no use.
    pub fn execute(&mut self, segment: &SegmentView<'_>) -> Result<Verdict, ExecError> {
        let program = Arc::clone(&self.program);
        let bound = &*program.bound;
        if segment.columns.len() != bound.source_registers {
            return Err(ExecError::Internal(format!(
                "a segment of {} columns for {} source registers",
                segment.columns.len(),
                bound.source_registers
            )));
        }
        let source = SourceColumns::new(segment, &bound.registers)?;
        let batch_rows = self.options.batch_rows.max(1);
        for start in (0..segment.rows).step_by(batch_rows) {
            if self.is_enough() {
                return Ok(Verdict::Enough);
            }
            let rows = batch_rows.min(segment.rows - start);
            Runner { bound, sink: &mut self.sink, options: &self.options }
                .batch(&source, start, rows)?;
            self.account()?;
        }
        self.rows += segment.rows as u64;
        Ok(if self.is_enough() { Verdict::Enough } else { Verdict::More })
    }

    /// Output rows that are ready, in batches of the sink's columns.
    pub fn take_batches(&mut self) -> Vec<RecordBatch> {
        match &mut self.sink {
            SinkState::Rows { batches, .. } => std::mem::take(batches),
            _ => Vec::new(),
        }
    }

    /// Rows that were streamed through this worker.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    fn is_enough(&self) -> bool {
        match &self.program.bound.sink {
            BoundSink::Rows { limit: Some(limit), .. } => {
                self.options.emitted_rows.load(Ordering::Relaxed) >= *limit
            }
            _ => false,
        }
    }

    /// Brings the shared account up to date and checks the limit.
    fn account(&mut self) -> Result<(), ExecError> {
        let bytes = self.sink.bytes();
        let change = bytes.wrapping_sub(self.accounted_bytes);
        self.accounted_bytes = bytes;
        let before = self.options.memory_used_bytes.fetch_add(change, Ordering::Relaxed);
        let used = before.wrapping_add(change);
        if used <= self.options.memory_limit_bytes {
            return Ok(());
        }
        Err(ExecError::Memory {
            tier: "host memory",
            what: match self.sink {
                SinkState::Dense(_) | SinkState::Hash { .. } => "groups".into(),
                SinkState::Rows { .. } => "output rows".into(),
                SinkState::Build { .. } => format!("the build {}", self.program.bound.table),
            },
            needed_bytes: used,
            limit_bytes: self.options.memory_limit_bytes,
        })
    }

    fn into_state(self) -> SinkState {
        self.sink
    }
}
