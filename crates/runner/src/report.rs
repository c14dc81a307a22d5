//! What a run did.

use headrace_flow::RaceReport;
use serde::{Deserialize, Serialize};

/// What one run did. Times are milliseconds of wall clock, bytes are wanted bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunReport {
    /// The streamed table.
    pub table: String,
    /// What ran it: "cpu", "cuda", or "planner" if it was handed back.
    pub processor: String,
    /// Why it did not run on the wanted processor.
    pub processor_why_not: Option<String>,
    /// Rows of the chunks that the race was given: all that were not pruned, unless it ended early.
    pub rows_in: u64,
    /// Rows that it put out, those included that nobody wanted any more.
    pub rows_out: u64,
    /// From the first build to the last row.
    pub wall_ms: f64,
    /// Making the builds that were not cached.
    pub build_ms: f64,
    /// Builds made.
    pub builds_made: usize,
    /// Builds found in the cache.
    pub builds_cached: usize,
    /// Each build in words: its rows, how keys are found, its size.
    pub builds: Vec<String>,
    /// Bytes that builds read.
    pub build_bytes: u64,
    /// Record batches that statistics ruled out.
    pub pruned_batches: u64,
    /// Rows in them.
    pub pruned_rows: u64,
    /// Lowering and compiling.
    pub bind_ms: f64,
    /// Merging states and making the result.
    pub finish_ms: f64,
    /// Bytes of groups that went to temporary files.
    pub spilled_bytes: u64,
    /// The race.
    pub race: RaceReport,
}
