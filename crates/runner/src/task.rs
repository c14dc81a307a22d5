//! One pipeline about to run, and what comes of it.

use std::sync::Arc;

use arrow_array::RecordBatch;
use headrace_flow::{CancelToken, ConsumerLimit, RaceReport};
use headrace_format::ChunkTotals;
use headrace_io::MemoryBudget;
use headrace_ir::Pipeline;
use headrace_pipeline::{BuildTable, build::BuildOptions, state::Output};

use crate::report::StepRows;
use crate::runner::Runner;
use crate::settings::Settings;
use crate::table::StreamTable;

/// Takes finished rows while the race still runs; `false`: nobody wants more.
pub type Emit<'a> = &'a (dyn Fn(RecordBatch) -> bool + Send + Sync);

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
    /// Takes rows as they come.
    pub emit: Emit<'a>,
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
