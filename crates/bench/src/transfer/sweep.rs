//! A grid of runs: access paths × numbers of paths and GPUs × host memory × threads × chunk sizes.
//!
//! The grid is walked in a fixed shuffled order, so that a sweep that runs out of time has samples
//! of everything. Points without time are counted, never guessed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use headrace_flow::RaceError;
use headrace_gpu::GpuError;
use headrace_io::IoError;
use headrace_io::random::Random;
use headrace_io::system::{GpuFor, Taker};
use serde::Serialize;

use super::input::Inputs;
use super::{
    Bench, BenchError, BenchPlan, BenchRun, HostMemory, Operation, PathChoice, Pattern, Target,
};

/// Shortest time for a point: below this, starting threads and touching the ring's memory show.
const POINT_MIN: Duration = Duration::from_millis(300);

/// The values of each dimension. An empty list leaves the plan's own value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grid {
    /// Access paths.
    pub paths: Vec<PathChoice>,
    /// Chunk (block) sizes in bytes.
    pub chunk_bytes: Vec<u64>,
    /// Threads. Access paths without threads are measured with the last value only.
    pub threads: Vec<usize>,
    /// Host memory, when the target is a GPU.
    pub memory: Vec<HostMemory>,
    /// How many of the plan's paths are read in parallel: the first n.
    pub path_counts: Vec<usize>,
    /// How many of the plan's GPUs are fed in parallel: the first n.
    pub gpu_counts: Vec<usize>,
}

/// A grid and its time.
#[derive(Debug, Clone)]
pub struct SweepPlan {
    /// The common settings of all points.
    pub base: BenchPlan,
    /// The varying settings.
    pub grid: Grid,
    /// Time for all of them together.
    pub time: Duration,
}

/// The coordinates of a point in the grid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Access path.
    pub path: PathChoice,
    /// Paths read in parallel.
    pub paths: usize,
    /// "host", or "gpu:0,1".
    pub target: String,
    /// Host memory, when the target is a GPU.
    pub memory: Option<HostMemory>,
    /// Threads.
    pub threads: usize,
    /// Chunk (block) size.
    pub chunk_bytes: u64,
}

/// An examined point.
#[derive(Debug, Clone)]
pub struct SweepPoint {
    /// Its coordinates.
    pub setting: Setting,
    /// The run, or why it is impossible here.
    pub outcome: Result<BenchRun, String>,
}

/// The result of a sweep.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// In grid order.
    pub points: Vec<SweepPoint>,
    /// Points without time.
    pub left_out: usize,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

impl Sweep {
    /// The fastest run (most IOPS, when random) of those that found the cache as it was asked for, as an index into the points.
    pub fn best(&self) -> Option<usize> {
        let speed = |point: &SweepPoint| {
            let run = point.outcome.as_ref().ok().filter(|run| run.cache.is_as_asked)?;
            Some(run.iops.unwrap_or(run.gb_per_s))
        };
        let fast = self.points.iter().enumerate().filter_map(|(i, p)| Some((i, speed(p)?)));
        fast.filter(|(_, speed)| *speed > 0.0)
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(index, _)| index)
    }

    /// The runs.
    pub fn runs(&self) -> impl Iterator<Item = &BenchRun> {
        self.points.iter().filter_map(|point| point.outcome.as_ref().ok())
    }
}

/// Measures the points of a grid, as far as time allows; reports each.
///
/// # Errors
/// Those of a run, except unavailable access paths, which are a point's outcome.
pub fn sweep(
    bench: &mut Bench,
    plan: &SweepPlan,
    mut on_point: impl FnMut(&SweepPoint),
) -> Result<Sweep, BenchError> {
    let plans = points(plan)?;
    let share = plan.time / u32::try_from(plans.len().max(1)).unwrap_or(u32::MAX);
    let point_time = share.max(POINT_MIN);
    let mut found: Vec<Option<SweepPoint>> = vec![None; plans.len()];
    let start = Instant::now();
    let mut interrupted = false;
    for (done, index) in shuffled(plans.len()).into_iter().enumerate() {
        // The first point is measured however short the time.
        if done > 0 && start.elapsed() >= plan.time {
            break;
        }
        let (setting, point) = &plans[index];
        let limit = point.time_limit.map_or(point_time, |limit| limit.min(point_time));
        let run = bench.run(&BenchPlan { time_limit: Some(limit), ..point.clone() });
        let outcome = match run {
            Ok(run) if run.bytes == 0 && run.partial.is_some() => {
                Err(format!("no chunk arrived within {:.2} s", limit.as_secs_f64()))
            }
            Ok(run) => Ok(run),
            Err(BenchError::Interrupted) if done > 0 => {
                interrupted = true;
                break;
            }
            Err(error) => Err(unavailable(error)?),
        };
        let point = SweepPoint { setting: setting.clone(), outcome };
        on_point(&point);
        found[index] = Some(point);
        let cancel = &plan.base.hooks.cancel;
        if cancel.as_ref().is_some_and(|flag| flag.load(std::sync::atomic::Ordering::Relaxed)) {
            interrupted = true;
            break;
        }
    }
    let left_out = found.iter().filter(|point| point.is_none()).count();
    Ok(Sweep { points: found.into_iter().flatten().collect(), left_out, interrupted })
}

/// The reason, if the error says that an access path is unavailable; else the error.
fn unavailable(error: BenchError) -> Result<String, BenchError> {
    match &error {
        BenchError::Race(RaceError::PathUnavailable { reason, .. }) => Ok(reason.clone()),
        BenchError::Race(RaceError::StartUp(IoError::Memory { .. }))
        | BenchError::Gpu(GpuError::OutOfMemory { .. }) => Ok(error.to_string()),
        _ => Err(error),
    }
}

/// All points of the grid, in order.
fn points(plan: &SweepPlan) -> Result<Vec<(Setting, BenchPlan)>, BenchError> {
    let (base, grid) = (&plan.base, &plan.grid);
    let gpus = match &base.target {
        Target::Host => Vec::new(),
        Target::Gpus(ordinals) => ordinals.clone(),
    };
    check_counts("paths", &grid.path_counts, base.paths.len())?;
    check_counts("GPUs", &grid.gpu_counts, gpus.len())?;
    let chunk_sizes = or_own(&distinct_chunks(base, &grid.chunk_bytes)?, base.pattern.bytes());
    let mut points = Vec::new();
    for path in or_own(&grid.paths, base.path) {
        for path_count in or_own(&grid.path_counts, base.paths.len()) {
            for gpu_count in or_own(&grid.gpu_counts, gpus.len()) {
                for memory in or_own(&grid.memory, base.memory) {
                    for threads in threads_of(path, or_own(&grid.threads, base.threads)) {
                        for &chunk_bytes in &chunk_sizes {
                            let target = match base.target {
                                Target::Host => Target::Host,
                                Target::Gpus(_) => Target::Gpus(gpus[..gpu_count].to_vec()),
                            };
                            let paths = base.paths[..path_count].to_vec();
                            let point = BenchPlan {
                                path,
                                memory,
                                threads,
                                pattern: with_bytes(base.pattern, chunk_bytes),
                                gpu_for: forced(base, &target),
                                target,
                                paths,
                                ..base.clone()
                            };
                            points.push((setting_of(&point), point));
                        }
                    }
                }
            }
        }
    }
    Ok(points)
}

fn setting_of(plan: &BenchPlan) -> Setting {
    Setting {
        path: plan.path,
        paths: plan.paths.len(),
        target: plan.target.to_string(),
        memory: matches!(plan.target, Target::Gpus(_)).then_some(plan.memory),
        threads: plan.threads,
        chunk_bytes: plan.pattern.bytes(),
    }
}

/// A path that is forced to a GPU outside of this point is assigned freely.
fn forced(base: &BenchPlan, target: &Target) -> GpuFor {
    let Target::Gpus(ordinals) = target else { return GpuFor::default() };
    let named = |(_, taker): &&(PathBuf, Taker)| match taker {
        Taker::Gpu(gpu) => ordinals.contains(gpu),
        Taker::All => true,
    };
    GpuFor(base.gpu_for.0.iter().filter(named).cloned().collect())
}

fn with_bytes(pattern: Pattern, bytes: u64) -> Pattern {
    match pattern {
        Pattern::Sequential { .. } => Pattern::Sequential { chunk_bytes: bytes },
        Pattern::Random { .. } => Pattern::Random { block_bytes: bytes },
    }
}

fn threads_of(path: PathChoice, threads: Vec<usize>) -> Vec<usize> {
    match path {
        PathChoice::Uring => threads.last().copied().into_iter().collect(),
        _ => threads,
    }
}

fn or_own<T: Clone>(list: &[T], own: T) -> Vec<T> {
    if list.is_empty() { vec![own] } else { list.to_vec() }
}

fn check_counts(what: &str, counts: &[usize], available: usize) -> Result<(), BenchError> {
    match counts.iter().find(|count| **count == 0 || **count > available) {
        Some(count) => Err(BenchError::plan(
            format!("{count} {what} cannot take part, {available} were named"),
            format!("choose 1 to {available}, or name more"),
        )),
        None => Ok(()),
    }
}

/// Chunks larger than every file are equivalent: one of them is enough.
fn distinct_chunks(base: &BenchPlan, chunk_bytes: &[u64]) -> Result<Vec<u64>, BenchError> {
    if base.operation != Operation::Read {
        return Ok(chunk_bytes.to_vec());
    }
    let sizes_bytes = Inputs::open(&base.paths)?.sizes_bytes();
    let largest_bytes = sizes_bytes.into_iter().max().unwrap_or(0);
    let mut sorted = chunk_bytes.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let whole = sorted.iter().position(|&bytes| bytes >= largest_bytes);
    sorted.truncate(whole.map_or(sorted.len(), |at| at + 1));
    Ok(sorted)
}

/// The numbers below `count` in a fixed shuffled order (Fisher and Yates).
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut dice = Random(7);
    for last in (1..count).rev() {
        order.swap(last, dice.below(last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_shuffled_order_has_every_number_once() {
        for count in [0, 1, 2, 100] {
            let mut order = shuffled(count);
            assert!(count < 100 || order.windows(2).any(|pair| pair[0] > pair[1]));
            order.sort_unstable();
            assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn dimensions_that_do_not_matter_are_not_walked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![0u8; 100_000]).unwrap();
        let plan = SweepPlan {
            base: BenchPlan::new(vec![path.clone(), path]),
            grid: Grid {
                paths: vec![PathChoice::Uring, PathChoice::Pread],
                chunk_bytes: vec![1 << 20, 4096, 1 << 17, 1 << 16],
                threads: vec![1, 2],
                path_counts: vec![1, 2],
                ..Grid::default()
            },
            time: Duration::from_secs(1),
        };
        let points = points(&plan).unwrap();
        // Three chunk sizes differ for a file of 100,000 bytes; io_uring has no threads.
        assert_eq!(points.len(), (1 + 2) * 3 * 2);
        assert!(points.iter().all(|(setting, _)| setting.chunk_bytes <= 1 << 17));
        assert!(points.iter().any(|(setting, point)| setting.paths == 1 && point.paths.len() == 1));
        let wrong = Grid { path_counts: vec![3], ..Grid::default() };
        assert!(super::points(&SweepPlan { grid: wrong, ..plan }).unwrap_err().is_usage());
    }
}
