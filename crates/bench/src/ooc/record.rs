//! What came out: plain data, as it stands in the JSON record.

use headrace_ooc::Processor;
use serde::Serialize;

use super::Answer;
use super::stages::{ChunkTimes, StageTimes};
use crate::transfer::{CacheRecord, CacheState};

/// The benchmark.
#[derive(Debug, Clone, Serialize)]
pub struct OocRecord {
    /// The command that led to it.
    pub command: String,
    /// What took part.
    pub versions: Versions,
    /// The folder that was written to and read from.
    pub folder: String,
    /// Bytes that files took at most.
    pub max_bytes: u64,
    /// Runs of each point.
    pub runs: usize,
    /// What the memories of this machine allow.
    pub limits: Limits,
    /// Why nothing ran on a GPU, if so.
    pub no_gpu: Option<String>,
    /// The operators, in the order of the plan.
    pub operators: Vec<OperatorRecord>,
    /// Why it ended before all was measured, if so.
    pub partial: Option<&'static str>,
}

/// What took part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Versions {
    /// This program.
    pub headrace: &'static str,
    /// The CUDA version that the driver supports, or why there is none.
    pub driver: String,
    /// The run-time compiler, or why there is none.
    pub nvrtc: String,
}

/// Memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Limits {
    /// Host memory that an operator may take: half of what is free.
    pub host_bytes: u64,
    /// Device memory that an operator may take, if there is a device.
    pub device_bytes: Option<u64>,
}

/// An operator.
#[derive(Debug, Clone, Serialize)]
pub struct OperatorRecord {
    /// Its name.
    pub operator: &'static str,
    /// What its input consists of.
    pub records_name: &'static str,
    /// Sizes of inputs.
    pub sizes_bytes: Vec<u64>,
    /// The size at which everything but the size is varied.
    pub detail_bytes: u64,
    /// Whether its inputs have a share of common keys that is varied.
    pub has_selectivities: bool,
    /// Plain reads of its inputs, and plain writes of as much as its output.
    pub plain: Vec<PlainRead>,
    /// What was measured.
    pub points: Vec<Point>,
    /// What was not.
    pub missing: Vec<Missing>,
}

/// Which comparison a point belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Variants over sizes.
    Throughput,
    /// Variants over shares of common keys.
    Selectivity,
    /// Ways of reading over chunk sizes, cold and hot, with and without overlap.
    Methods,
    /// Plain reads and writes.
    Plain,
}

/// A transfer without any work on it: the roof that a run cannot break through.
#[derive(Debug, Clone, Serialize)]
pub struct PlainRead {
    /// "read" or "write".
    pub operation: &'static str,
    /// Bytes of the input.
    pub input_bytes: u64,
    /// "host" or "gpu:0".
    pub target: String,
    /// "pinned" or "pageable" on the way to a GPU.
    pub memory: Option<&'static str>,
    /// The page cache before it.
    pub cache: CacheState,
    /// The way.
    pub way: &'static str,
    /// Its speed.
    pub gb_per_s: f64,
    /// What the page cache was not.
    pub notes: Vec<String>,
}

/// A measured point.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// The comparison that it belongs to.
    pub figure: Figure,
    /// The variant, or the way of reading.
    pub variant: String,
    /// "cpu" or "cuda".
    #[serde(serialize_with = "shown")]
    pub processor: Processor,
    /// What ran it, in words.
    pub ran_on: String,
    /// The way of reading that was asked for; `None` for inputs in memory.
    pub way: Option<&'static str>,
    /// Bytes of the input.
    pub input_bytes: u64,
    /// Its keys, records or values.
    pub records: u64,
    /// Share of common keys, where there is such a thing.
    pub selectivity: Option<f64>,
    /// Bytes of a chunk, if that was asked for.
    pub chunk_bytes: Option<u64>,
    /// Chunks under way, if that was asked for.
    pub slots: Option<usize>,
    /// The page cache before the last run; `None` for inputs in memory.
    pub cache: Option<CacheRecord>,
    /// Times of the runs, in their order.
    pub runs_s: Vec<f64>,
    /// The shortest.
    pub best_s: f64,
    /// The middle one (of two, the longer).
    pub median_s: f64,
    /// Bytes of the input in the median time.
    pub gb_per_s: f64,
    /// Records of the input in the median time.
    pub records_per_s: f64,
    /// What was found.
    pub answer: Answer,
    /// Bytes of output that were written.
    pub output_bytes: u64,
    /// Bytes of temporary files that were written.
    pub temporary_bytes: u64,
    /// Times of the best run's stages.
    pub stages: StageTimes,
    /// Times of its chunks in each stage.
    pub chunk_times: Vec<ChunkTimes>,
    /// Host memory that the operator reserved at most.
    pub host_peak_bytes: u64,
    /// Resident memory of the process at most: inputs in memory and mapped files count.
    pub resident_peak_bytes: Option<u64>,
    /// Device memory that was in use at most.
    pub device_peak_bytes: u64,
    /// What limited its longest race.
    pub limited_by: Option<String>,
    /// The best plain read of the same bytes, and what of it was reached.
    pub roofline: Option<Roofline>,
    /// What the model says.
    pub predicted: Option<Predicted>,
    /// What else should be known.
    pub notes: Vec<String>,
}

/// A run beside the best plain read of the same files to the same processor, the page cache as it
/// was.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Roofline {
    /// The plain read.
    pub gb_per_s: f64,
    /// Its way.
    pub way: &'static str,
    /// The median run's rate as a share of it, 0 to 1 (and above, where it was outdone).
    pub share: f64,
}

/// The model's word on a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Predicted {
    /// Time.
    pub seconds: f64,
    /// Bytes of the input in that time.
    pub gb_per_s: f64,
    /// The stage that should be the limit.
    pub bottleneck: String,
}

/// A point that was not measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Missing {
    /// The comparison that it belongs to.
    pub figure: Figure,
    /// The variant, or the way of reading, and what it was to run with.
    pub variant: String,
    /// Bytes of the input; `None`: of no size.
    pub input_bytes: Option<u64>,
    /// Why not.
    pub reason: String,
    /// Whether it should have worked.
    pub is_failure: bool,
}

impl OocRecord {
    /// What should have worked and did not.
    pub fn failures(&self) -> impl Iterator<Item = &Missing> {
        let missing = self.operators.iter().flat_map(|operator| &operator.missing);
        missing.filter(|missing| missing.is_failure)
    }
}

impl OperatorRecord {
    /// The points of a comparison.
    pub fn of(&self, figure: Figure) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |point| point.figure == figure)
    }

    /// What a comparison lacks.
    pub fn missing_of(&self, figure: Figure) -> impl Iterator<Item = &Missing> {
        self.missing.iter().filter(move |missing| missing.figure == figure)
    }
}

fn shown<S: serde::Serializer>(value: &Processor, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
