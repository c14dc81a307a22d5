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

/// Longest single read: what storage and io_uring like, and small enough that several reads of
/// one chunk are under way at once.
const SEGMENT_BYTES: usize = 1 << 20;

/// What a race gave.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub report: RaceReport,
    /// Bytes that arrived.
    pub bytes: u64,
    pub early: Option<Early>,
    /// Checksum of each chunk that arrived, if asked for.
    pub sums: Vec<(usize, Checksum)>,
    /// Time that each chunk took its consumer, if that is the latency of a read.
    pub times_ns: Vec<u64>,
    pub notes: Vec<String>,
    /// What the machine counted meanwhile.
    pub counted: Counted,
    /// What a ring cost that was made for this run.
    pub ring: Option<RingRecord>,
}

/// The race's options for a plan.
pub(crate) fn race_options(plan: &BenchPlan) -> RaceOptions {
    let (access, direct_engine) = plan.path.access();
    RaceOptions {
        access,
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

/// A race that had to be cancelled leaves no report; what was counted meanwhile is still true.
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
