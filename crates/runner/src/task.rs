//! One pipeline about to run, and what comes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_array::RecordBatch;
use headrace_cuda::{GroupsLeft, TakeGroups};
use headrace_flow::{CancelToken, ConsumerLimit, RaceReport};
use headrace_format::ChunkTotals;
use headrace_io::MemoryBudget;
use headrace_ir::Pipeline;
use headrace_pipeline::{BuildTable, WhyNot, build::BuildOptions, state::Output};

use crate::error::RunError;
use crate::report::{GpuBytes, StepRows};
use crate::runner::Runner;
use crate::settings::Settings;
use crate::table::StreamTable;

/// Takes finished rows while the race still runs; `false`: nobody wants more.
pub type Emit<'a> = &'a (dyn Fn(RecordBatch) -> bool + Send + Sync);

/// What came of a pipeline over groups on a GPU, or why it does not run there.
pub type OnDevice<T> = Result<Result<T, WhyNot>, RunError>;

/// Groups where a GPU left them, or why it did not.
pub type TakenGroups<'a, 'g> = Result<&'a GroupsLeft<'g>, WhyNot>;

/// How many groups there are.
pub fn groups_of(lefts: &[&GroupsLeft<'_>]) -> u64 {
    lefts.iter().map(|left| left.rows()).sum()
}

/// Where the output of a pipeline goes while it runs.
#[derive(Clone, Copy)]
pub struct Outlet<'a> {
    /// Takes rows.
    pub emit: Emit<'a>,
    /// Takes groups where a GPU left them; `None`: the reader takes rows only.
    pub take: Option<TakeGroups<'a>>,
}

impl<'a> From<Emit<'a>> for Outlet<'a> {
    fn from(emit: Emit<'a>) -> Self {
        Self { emit, take: None }
    }
}

impl<'a> Outlet<'a> {
    /// The same, which says whether anything went there.
    pub fn watched(self) -> Watched<'a> {
        Watched { outlet: self, rows: AtomicU64::new(0), is_taken: AtomicBool::new(false) }
    }
}

/// An outlet, and what went there.
pub struct Watched<'a> {
    outlet: Outlet<'a>,
    /// Rows or groups.
    rows: AtomicU64,
    is_taken: AtomicBool,
}

impl Watched<'_> {
    /// As [`Outlet::emit`].
    fn emit(&self, batch: RecordBatch) -> bool {
        self.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        (self.outlet.emit)(batch)
    }

    /// As [`Outlet::take`].
    fn take(&self, groups: TakenGroups<'_, '_>) -> bool {
        let rows = groups.as_ref().map_or(0, |groups| groups.rows());
        let is_taken = self.outlet.take.is_some_and(|take| take(groups));
        if is_taken {
            self.rows.store(rows, Ordering::Relaxed);
            self.is_taken.store(true, Ordering::Relaxed);
        }
        is_taken
    }

    /// Does something that puts out what is watched.
    pub fn through<T>(&self, run: impl FnOnce(Outlet<'_>) -> T) -> T {
        let emit = |batch| self.emit(batch);
        let take = |groups: TakenGroups<'_, '_>| self.take(groups);
        run(Outlet { emit: &emit, take: self.outlet.take.is_some().then_some(&take) })
    }

    /// Rows or groups that went there.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Whether groups were taken.
    pub fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }

    /// Whether anything went there.
    pub fn has_left(&self) -> bool {
        self.rows() > 0 || self.is_taken()
    }
}

/// A pipeline with everything that it runs on.
pub struct Task<'a> {
    /// The pipeline.
    pub pipeline: &'a Pipeline,
    /// The streamed table.
    pub table: &'a StreamTable,
    /// What it probes.
    pub builds: &'a [Arc<BuildTable>],
    /// How its own build is made, if it ends in one.
    pub build_options: BuildOptions,
    /// Settings.
    pub settings: &'a Settings,
    /// Caches and devices.
    pub runner: &'a Runner,
    /// What pays for its groups.
    pub groups: &'a Arc<MemoryBudget>,
    /// Threads that may execute it.
    pub threads: usize,
    /// How many of them may at a time.
    pub limit: Option<&'a Arc<dyn ConsumerLimit>>,
    /// Ends it early.
    pub token: &'a CancelToken,
    /// Takes its output as it comes.
    pub outlet: Outlet<'a>,
}

/// How much of a table a task looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Rows of the chunks.
    pub rows: u64,
    /// Record batches that statistics ruled out.
    pub pruned_batches: u64,
    /// Rows in them.
    pub pruned_rows: u64,
}

impl Scope {
    /// That of the chunks that were given.
    pub fn of(totals: &ChunkTotals) -> Self {
        let &ChunkTotals { rows, pruned_batches, pruned_rows, .. } = totals;
        Self { rows, pruned_batches, pruned_rows }
    }
}

/// What a task brought.
pub struct Done {
    /// Its output, rows that went to `emit` aside.
    pub output: Output,
    /// What was read, and what was not.
    pub scope: Scope,
    /// The race.
    pub race: RaceReport,
    /// Lowering and compiling, in milliseconds.
    pub bind_ms: f64,
    /// Merging states, in milliseconds.
    pub finish_ms: f64,
    /// Bytes of groups that went to temporary files.
    pub spilled_bytes: u64,
    /// Hashed groups that came from GPUs.
    pub groups_brought: u64,
    /// What each of several GPUs had of the columns.
    pub gpus: Vec<GpuBytes>,
    /// Its steps in the order in which they ran.
    pub steps: Vec<StepRows>,
}

impl Done {
    /// The steps of a pipeline in the order in which they ran, with the rows that each left.
    pub fn steps(places: &[usize], left: impl Fn(usize) -> Option<u64>) -> Vec<StepRows> {
        let places = places.iter().enumerate();
        places.map(|(at, &step)| StepRows { step, rows: left(at) }).collect()
    }
}
