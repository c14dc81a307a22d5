//! Every access path from a path to a processor, tried with real reads.
//!
//! The access paths are those of the benchmark and of queries. First a short piece of the file is
//! read and compared with plain reads, then a longer piece is timed. Paths that bypass the page
//! cache come first, because the others fill it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use headrace_flow::Trace;

use headrace_bench::transfer::{
    Bench, BenchError, BenchPlan, BenchRun, Operation, PathChoice, Pattern, Target,
};

use crate::Options;
use crate::facts::{AccessProbe, Known, Outcome, Way};

/// Bytes that are compared with plain reads.
const CHECKED_BYTES: u64 = 8 << 20;

/// Maximum time for timing one access path, whatever the file's size.
const TIMED: Duration = Duration::from_millis(200);

/// The same for access paths to a GPU, whose ring takes longer to start.
const TIMED_GPU: Duration = Duration::from_millis(500);

/// The best of this many timed runs counts, since a run may be disturbed.
const TIMED_RUNS: usize = 2;

/// Minimum bytes for a meaningful timing.
const TIMED_BYTES_MIN: u64 = 4 << 20;

/// Maximum bytes to time: a moment of the fastest access path.
const TIMED_BYTES_MAX: u64 = 16 << 30;

/// Chunk size of the timed reads; the check uses smaller ones, to have several.
const CHUNK_BYTES: u64 = 8 << 20;
const CHECKED_CHUNK_BYTES: u64 = 1 << 20;

/// Bytes of the write probe.
const WRITTEN_BYTES: u64 = 256 << 20;
const WRITTEN_BYTES_QUICK: u64 = 8 << 20;

/// The parts that `--quick` omits, for the report.
pub(crate) const NOT_MEASURED_QUICK: &str = "--quick measures nothing";

/// Tries access paths on one file.
pub(crate) struct Prober<'a> {
    /// Check only, without timing.
    quick: bool,
    /// Once set, nothing more is begun.
    cancel: &'a Arc<AtomicBool>,
    /// Records the races.
    trace: Option<Trace>,
    /// Keeps expensive state, such as a GPU's context and slots.
    bench: Bench,
}

impl<'a> Prober<'a> {
    pub fn new(options: &'a Options) -> Self {
        let Options { quick, ref cancel, ref trace, .. } = *options;
        Prober { quick, cancel, trace: trace.clone(), bench: Bench::new() }
    }

    /// Every access path to the host and to the GPUs with these ordinals, in measuring order: past
    /// the page cache before through it.
    pub fn try_all(&mut self, file: &Path, gpus: &[usize]) -> Vec<AccessProbe> {
        ways(gpus).into_iter().map(|way| self.try_way(file, way)).collect()
    }

    fn try_way(&mut self, file: &Path, way: Way) -> AccessProbe {
        AccessProbe { way, outcome: self.outcome(file, way) }
    }

    fn outcome(&mut self, file: &Path, way: Way) -> Outcome {
        if self.cancelled() {
            return interrupted();
        }
        let plan = self.check_plan(file, way);
        let checked = match self.bench.run(&plan) {
            Ok(run) => run,
            Err(error) => return refusal(&error),
        };
        if let Some(what) = mismatch(&checked) {
            return Outcome::Wrong { what };
        }
        let (gb_per_s, timed_bytes) = match self.timed(file, way, &checked) {
            Ok(run) => (Known::Value(run.gb_per_s), run.bytes),
            Err(reason) => (Known::unknown(reason), 0),
        };
        Outcome::Works {
            checked_bytes: checked.verification.as_ref().map_or(0, |found| found.bytes),
            taken: taken(&checked),
            reasons: checked.path_reasons.clone(),
            gb_per_s,
            timed_bytes,
            requests_at_once: requests_at_once(&checked),
        }
    }

    /// A timed run, or the reason why there is none.
    fn timed(&mut self, file: &Path, way: Way, checked: &BenchRun) -> Result<BenchRun, String> {
        if self.quick {
            return Err(NOT_MEASURED_QUICK.to_string());
        }
        if checked.bytes == 0 {
            return Err("nothing was read".to_string());
        }
        if self.cancelled() {
            return Err("interrupted".to_string());
        }
        let plan = self.timed_plan(file, way);
        let mut best: Option<BenchRun> = None;
        for _ in 0..TIMED_RUNS {
            let run = self.bench.run(&plan).map_err(|error| error.to_string())?;
            if best.as_ref().is_none_or(|best| run.gb_per_s > best.gb_per_s) {
                best = Some(run);
            }
        }
        match best {
            Some(run) if run.bytes >= TIMED_BYTES_MIN => Ok(run),
            Some(run) => Err(format!("{} bytes are too few to be timed", run.bytes)),
            None => Err("nothing was timed".to_string()),
        }
    }

    fn check_plan(&self, file: &Path, way: Way) -> BenchPlan {
        BenchPlan {
            pattern: Pattern::Sequential { chunk_bytes: CHECKED_CHUNK_BYTES },
            verify: true,
            limit_bytes: Some(CHECKED_BYTES),
            ..self.plan(file, way)
        }
    }

    fn timed_plan(&self, file: &Path, way: Way) -> BenchPlan {
        BenchPlan {
            pattern: Pattern::Sequential { chunk_bytes: CHUNK_BYTES },
            limit_bytes: Some(TIMED_BYTES_MAX),
            time_limit: Some(if way.gpu().is_some() { TIMED_GPU } else { TIMED }),
            ..self.plan(file, way)
        }
    }

    fn plan(&self, file: &Path, way: Way) -> BenchPlan {
        let mut plan = BenchPlan::new(vec![file.to_path_buf()]);
        plan.target = way.gpu().map_or(Target::Host, |gpu| Target::Gpus(vec![gpu]));
        plan.path = choice(way);
        plan.hooks.cancel = Some(self.cancel.clone());
        plan.trace = self.trace.clone();
        plan
    }

    /// Writes a file into `folder`, reads it back and removes it.
    pub fn try_write(&mut self, folder: &Path) -> AccessProbe {
        let mut plan = self.plan(folder, Way::Write);
        let bytes = if self.quick { WRITTEN_BYTES_QUICK } else { WRITTEN_BYTES };
        plan.operation = Operation::Write { bytes, overwrite: false, keep: false };
        plan.verify = true;
        plan.pattern = Pattern::Sequential { chunk_bytes: CHUNK_BYTES };
        let outcome = match self.bench.run(&plan) {
            Err(error) => refusal(&error),
            Ok(run) => match mismatch(&run) {
                Some(what) => Outcome::Wrong { what },
                None => Outcome::Works {
                    checked_bytes: run.verification.as_ref().map_or(0, |found| found.bytes),
                    taken: taken(&run),
                    reasons: run.path_reasons.clone(),
                    gb_per_s: Known::Value(run.gb_per_s),
                    timed_bytes: run.bytes,
                    requests_at_once: requests_at_once(&run),
                },
            },
        };
        AccessProbe { way: Way::Write, outcome }
    }

    fn cancelled(&self) -> bool {
        self.cancel.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// In the order of the tries.
fn ways(gpus: &[usize]) -> Vec<Way> {
    // What a query would take is asked first, while the page cache is as the user left it.
    let mut ways = vec![Way::Automatic, Way::Uring, Way::DirectThreads];
    for &gpu in gpus {
        ways.extend([Way::GpuCuFile(gpu), Way::GpuSlotsDirect(gpu)]);
    }
    ways.extend([Way::Buffered, Way::Mapped]);
    for &gpu in gpus {
        ways.extend([Way::GpuSlotsBuffered(gpu), Way::GpuRegistered(gpu)]);
    }
    ways
}

fn choice(way: Way) -> PathChoice {
    match way {
        Way::Automatic | Way::Write => PathChoice::Auto,
        Way::Mapped => PathChoice::Mmap,
        Way::GpuRegistered(_) => PathChoice::Registered,
        Way::Buffered | Way::GpuSlotsBuffered(_) => PathChoice::Pread,
        Way::Uring | Way::GpuSlotsDirect(_) => PathChoice::Uring,
        Way::DirectThreads => PathChoice::Direct,
        Way::GpuCuFile(_) => PathChoice::Cufile,
    }
}

fn interrupted() -> Outcome {
    Outcome::NotTried { reason: "interrupted".to_string() }
}

/// The cause without its hint, and the hint.
fn refusal(error: &BenchError) -> Outcome {
    if matches!(error, BenchError::Interrupted) {
        return interrupted();
    }
    let text = error.to_string();
    let (reason, hint) = match text.split_once("\nhint: ") {
        Some((reason, hint)) => (reason.to_string(), Some(hint.to_string())),
        None => (text, None),
    };
    // The benchmark's own remedy speaks of its options; a hint of a lower crate says more.
    let remedy = hint.or_else(|| match error {
        BenchError::Race(headrace_flow::RaceError::PathUnavailable { .. }) => None,
        other => other.remedy(),
    });
    Outcome::Refused { reason, remedy }
}

fn mismatch(run: &BenchRun) -> Option<String> {
    let found = run.verification.as_ref()?;
    let first = found.mismatches.first()?;
    Some(format!(
        "{} of {} chunks differ from what plain reads give; the first is {} bytes at offset {} of {}",
        found.mismatch_count, found.chunks, first.bytes, first.offset, first.file
    ))
}

/// io_uring is one thread with many requests; the others are many threads with one request each.
fn requests_at_once(run: &BenchRun) -> u32 {
    if run.path == PathChoice::Uring.name() {
        run.depth
    } else {
        u32::try_from(run.threads).unwrap_or(u32::MAX)
    }
}

/// What really happened: bytes by access path where they differ from the request, and the readers.
fn taken(run: &BenchRun) -> String {
    let moved = &run.bytes_by_path;
    let paths = [
        ("mapped", moved.mapped),
        ("page cache", moved.buffered),
        ("O_DIRECT", moved.direct),
        ("registered mapping", moved.registered),
        ("cuFile", moved.cufile),
        ("host cache", moved.cached),
    ];
    let mut parts: Vec<String> =
        paths.iter().filter(|(_, bytes)| *bytes > 0).map(|(name, _)| name.to_string()).collect();
    parts.extend(run.engines.iter().cloned());
    parts.join(", ")
}
