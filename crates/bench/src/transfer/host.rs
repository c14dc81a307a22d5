//! Reading to host memory.

use std::sync::Arc;
use std::time::Instant;

use headrace_flow::{CancelToken, ChunkSpec, Race, RaceError, RaceOptions, RaceReport};
use headrace_io::ReadAt;

use super::consumer::{Reader, Shared};
use super::counters::{Counted, Watched};
use super::record::RingRecord;
use super::stop::{Early, StopSignal, watched};
use super::{BenchError, BenchPlan, Checksum, PathChoice, Pattern, Progress};

/// Longest single read: suited to storage and io_uring, and small enough for several parallel reads
/// of one chunk.
const SEGMENT_BYTES: usize = 1 << 20;

/// The results of a race.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub report: RaceReport,
    /// Bytes received.
    pub bytes: u64,
    pub early: Option<Early>,
    /// Checksum of each received chunk, if requested.
    pub sums: Vec<(usize, Checksum)>,
    /// Consumer time of each chunk, if that is the latency of a read.
    pub times_ns: Vec<u64>,
    pub notes: Vec<String>,
    /// The machine's counters meanwhile.
    pub counted: Counted,
    /// The cost of a ring created for this run.
    pub ring: Option<RingRecord>,
}

/// The race's options for a plan.
pub(crate) fn race_options(plan: &BenchPlan) -> RaceOptions {
    let (access, direct_engine) = plan.path.access();
    RaceOptions {
        access,
        forbids_other_paths: plan.forbids_other_paths,
        direct_engine,
        slots: plan.slot_count(),
        readers: plan.threads,
        queue_depth: plan.depth,
        segment_bytes: SEGMENT_BYTES,
        trace: plan.trace.clone(),
        inject_uring: plan.hooks.inject_uring,
        ..RaceOptions::default()
    }
}

/// Streams the chunks to consumers on the host.
pub(crate) fn run(
    plan: &BenchPlan,
    files: &[Arc<dyn ReadAt>],
    chunks: &[ChunkSpec],
    progress: &Progress,
    watch: &Watched,
) -> Result<Outcome, BenchError> {
    let token = CancelToken::new();
    let signal = StopSignal::default();
    let race = Race::new(files.to_vec(), chunks.to_vec(), race_options(plan), token.clone())?;
    let random = matches!(plan.pattern, Pattern::Random { .. });
    let shared = Shared {
        chunks,
        signal: &signal,
        progress,
        verify: plan.verify,
        time_chunks: random && plan.path == PathChoice::Mmap,
    };
    let counters = watch.start();
    let start = Instant::now();
    let result = watched(plan.hooks.cancel.as_ref(), plan.time_limit, &signal, &token, || {
        race.run_host((0..plan.threads).map(|_| Reader::new(&shared)).collect())
    });
    let counted = counters.finish(start.elapsed().as_nanos() as u64);
    let early = signal.asked();
    match result {
        Ok((readers, report)) => {
            let mut outcome = Outcome {
                bytes: report.bytes_by_path.total(),
                early: early.filter(|_| report.ended_early),
                report,
                counted,
                ..Outcome::default()
            };
            for reader in readers {
                outcome.sums.extend(reader.sums);
                outcome.times_ns.extend(reader.times_ns);
            }
            Ok(outcome)
        }
        Err(error) => Ok(Outcome { counted, ..broken_off(error, early, start, progress)? }),
    }
}

/// A cancelled race leaves no report; the counters are still valid.
pub(crate) fn broken_off(
    error: RaceError,
    early: Option<Early>,
    start: Instant,
    progress: &Progress,
) -> Result<Outcome, BenchError> {
    let (RaceError::Cancelled, Some(early)) = (&error, early) else {
        return Err(error.into());
    };
    let bytes = progress.done_bytes();
    if bytes == 0 && early == Early::Interrupted {
        return Err(BenchError::Interrupted);
    }
    let wall_ns = start.elapsed().as_nanos() as u64;
    Ok(Outcome {
        report: RaceReport { wall_ns, ..RaceReport::default() },
        bytes,
        early: Some(early),
        notes: vec![
            "reads were still under way after the end and were broken off: only bytes and time \
             are known"
                .to_string(),
        ],
        ..Outcome::default()
    })
}
