//! What to measure, in how much space.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headrace_ooc::Options;

use super::OocBenchError;

/// An operator that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Benchmark {
    /// The intersection of two sorted lists of unique int64.
    Intersect,
    /// The sort of int64 in any order.
    Sort,
    /// The product of a dense binary32 matrix with a vector.
    Matvec,
}

headrace_io::named!(
    Benchmark, "operator", Intersect => "intersect", Sort => "sort", Matvec => "matvec",
);

/// Largest input for comparing access paths, chunk sizes and selectivities: their differences do
/// not change with size.
const DETAIL_BYTES_MAX: u64 = 2 << 30;

/// Smallest input of a curve: below it the work ends before all stages run.
const INPUT_BYTES_MIN: u64 = 16 << 20;

/// Maximum sizes of a curve, each half of the next.
const SIZES_MAX: usize = 8;

/// Maximum input of a quick run.
const QUICK_BYTES_MAX: u64 = 64 << 20;

/// Chunk sizes to compare.
const CHUNK_BYTES: [u64; 6] = [1 << 20, 4 << 20, 8 << 20, 16 << 20, 35 << 20, 70 << 20];

/// Those of a quick run.
const QUICK_CHUNK_BYTES: [u64; 2] = [1 << 20, 8 << 20];

/// One benchmark.
#[derive(Debug, Clone)]
pub struct OocPlan {
    /// What to measure.
    pub benchmarks: Vec<Benchmark>,
    /// Folder of the files, which are removed again.
    pub folder: PathBuf,
    /// Maximum space at a time: inputs, outputs and temporary files.
    pub max_bytes: u64,
    /// One small size, and few chunk sizes and shares.
    pub is_quick: bool,
    /// Runs of each point.
    pub runs: usize,
    /// The command, for the record.
    pub command: String,
    /// Once set, the benchmark ends soon with its results so far.
    pub cancel: Arc<AtomicBool>,
}

impl OocPlan {
    /// Default runs of each point.
    pub fn usual_runs(is_quick: bool) -> usize {
        if is_quick { 1 } else { 3 }
    }

    /// # Errors
    /// [`OocBenchError::Plan`] if there is nothing to do.
    pub(super) fn check(&self) -> Result<(), OocBenchError> {
        if self.benchmarks.is_empty() {
            return Err(OocBenchError::plan("there is nothing to measure", "name an operator"));
        }
        if self.runs == 0 {
            return Err(OocBenchError::plan("no run has no time", "raise --runs"));
        }
        if self.max_bytes < 1 << 20 {
            let what = format!("{} bytes are no room for a measurement", self.max_bytes);
            return Err(OocBenchError::plan(what, "raise --max: 10 GB show a curve"));
        }
        Ok(())
    }

    /// # Errors
    /// [`OocBenchError::Interrupted`] after cancellation.
    pub(super) fn check_cancelled(&self) -> Result<(), OocBenchError> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(OocBenchError::Interrupted),
            false => Ok(()),
        }
    }

    /// The options of an operator that are common to all variants.
    pub(super) fn options(&self) -> Options {
        Options { token: self.cancel.clone().into(), ..Options::default() }
    }

    /// Sizes of inputs, ascending; the largest leaves room for the operator.
    pub(super) fn sizes_bytes(&self, input_bytes_max: u64) -> Vec<u64> {
        if self.is_quick {
            return vec![input_bytes_max.min(QUICK_BYTES_MAX)];
        }
        let halves = (0..SIZES_MAX as u32).map(|power| input_bytes_max >> power);
        let mut sizes: Vec<u64> = halves
            .enumerate()
            .filter(|(at, b)| *at == 0 || *b >= INPUT_BYTES_MIN)
            .map(|(_, b)| b)
            .collect();
        sizes.reverse();
        sizes
    }

    /// The size at which everything else is varied.
    pub(super) fn detail_bytes(&self, sizes_bytes: &[u64]) -> u64 {
        let fitting = sizes_bytes.iter().copied().filter(|bytes| *bytes <= DETAIL_BYTES_MAX).max();
        fitting.unwrap_or(sizes_bytes[0])
    }

    /// Chunk sizes to compare on an input.
    pub(super) fn chunks_bytes(&self, input_bytes: u64) -> Vec<u64> {
        let all: &[u64] = if self.is_quick { &QUICK_CHUNK_BYTES } else { &CHUNK_BYTES };
        let fits = |bytes: &u64| *bytes <= input_bytes.max(all[0]);
        all.iter().copied().filter(fits).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(is_quick: bool) -> OocPlan {
        OocPlan {
            benchmarks: vec![Benchmark::Intersect],
            folder: PathBuf::new(),
            max_bytes: 1 << 30,
            is_quick,
            runs: OocPlan::usual_runs(is_quick),
            command: String::new(),
            cancel: Arc::default(),
        }
    }

    #[test]
    fn sizes_double_up_to_the_largest() {
        let sizes = plan(false).sizes_bytes(100 << 30);
        assert_eq!((sizes.len(), sizes[7]), (8, 100 << 30));
        assert!(sizes.windows(2).all(|pair| pair[0] * 2 == pair[1]), "{sizes:?}");
        assert_eq!(plan(false).detail_bytes(&sizes), sizes[1]);
        assert_eq!(plan(false).sizes_bytes(64 << 20), [16 << 20, 32 << 20, 64 << 20]);
        assert_eq!(plan(false).sizes_bytes(3 << 20), [3 << 20]);
        assert_eq!(plan(true).sizes_bytes(100 << 30), [64 << 20]);
        assert_eq!(plan(false).detail_bytes(&[20 << 30]), 20 << 30);
    }

    #[test]
    fn chunks_are_no_larger_than_the_input() {
        assert_eq!(plan(false).chunks_bytes(10 << 20), [1 << 20, 4 << 20, 8 << 20]);
        assert_eq!(plan(false).chunks_bytes(1 << 30).len(), 6);
        assert_eq!(plan(true).chunks_bytes(100), [1 << 20]);
    }

    #[test]
    fn plans_without_room_or_work_are_refused() {
        assert!(plan(false).check().is_ok());
        assert!(OocPlan { max_bytes: 10, ..plan(true) }.check().is_err_and(|e| e.is_usage()));
        assert!(OocPlan { runs: 0, ..plan(true) }.check().is_err_and(|e| e.is_usage()));
        assert!(OocPlan { benchmarks: Vec::new(), ..plan(true) }.check().is_err());
        assert_eq!("intersect".parse(), Ok(Benchmark::Intersect));
        assert!("join".parse::<Benchmark>().is_err_and(|told| told.contains("intersect")));
    }
}
