//! What is to be written, and what was.

use std::sync::Arc;

use headrace_flow::{CancelToken, ChunkSpec};
use headrace_io::write::WriteAt;

use crate::transfer::counters::Watched;
use crate::transfer::record::Latency;
use crate::transfer::stop::StopSignal;
use crate::transfer::{BenchPlan, Progress};

/// The content to write.
pub(crate) struct WriteJob<'a> {
    pub plan: &'a BenchPlan,
    pub sinks: &'a [Arc<dyn WriteAt>],
    /// The layout of the sinks: one extent per chunk.
    pub chunks: &'a [ChunkSpec],
    pub signal: &'a StopSignal,
    pub token: &'a CancelToken,
    pub progress: &'a Progress,
    pub watch: &'a Watched,
}

/// The written data before it is synced.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub bytes: u64,
    /// Chunks whose writes are done, in that order.
    pub chunks: Vec<usize>,
    pub direct_bytes: u64,
    pub buffered_bytes: u64,
    pub direct_refused_bytes: u64,
    pub short_writes: u64,
    pub latency: Latency,
    /// Writes per chunks.
    pub requests: u64,
    /// Name, busy time and bytes of each stage.
    pub stages: Vec<(&'static str, u64, u64)>,
    pub wall_ns: u64,
    pub engines: Vec<String>,
    pub reasons: Vec<String>,
}
