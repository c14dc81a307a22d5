//! The results: plain data, as in the JSON record.

use headrace_ooc::Processor;
use serde::Serialize;

use super::operator::{Answer, Limits};
use super::stages::{ChunkTimes, StageTimes};
use crate::transfer::{CacheRecord, CacheState};

/// The benchmark.
#[derive(Debug, Clone, Serialize)]
pub struct OocRecord {
    /// The command.
    pub command: String,
    /// The hardware and software.
    pub versions: Versions,
    /// The folder of the files.
    pub folder: String,
    /// Peak space of files.
    pub max_bytes: u64,
    /// Runs of each point.
    pub runs: usize,
    /// The memory limits of this machine.
    pub limits: Limits,
    /// The reason why nothing ran on a GPU, if so.
    pub no_gpu: Option<String>,
    /// The operators, in plan order.
    pub operators: Vec<OperatorRecord>,
    /// The reason for an early end, if so.
    pub partial: Option<&'static str>,
}

/// The hardware and software.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Versions {
    /// This program.
    pub headrace: &'static str,
    /// The driver's CUDA version, or the reason why there is none.
    pub driver: String,
    /// The run-time compiler, or the reason why there is none.
    pub nvrtc: String,
}

/// An operator.
#[derive(Debug, Clone, Serialize)]
pub struct OperatorRecord {
    /// Its name.
    pub operator: &'static str,
    /// The items of its input.
    pub records_name: &'static str,
    /// Sizes of inputs.
    pub sizes_bytes: Vec<u64>,
    /// The size at which everything else is varied.
    pub detail_bytes: u64,
    /// Whether its inputs have a varying share of common keys.
    pub has_selectivities: bool,
    /// Plain reads of its inputs, and plain writes of the size of its output.
    pub plain: Vec<PlainRead>,
    /// The measured points.
    pub points: Vec<Point>,
    /// The missing points.
    pub missing: Vec<Missing>,
}

/// The comparison that a point belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Variants over sizes.
    Throughput,
    /// Variants over shares of common keys.
    Selectivity,
    /// Access paths over chunk sizes, cold and hot, with and without overlap.
    Methods,
    /// Plain reads and writes.
    Plain,
}

/// A transfer without any work: the roofline of a run.
#[derive(Debug, Clone, Serialize)]
pub struct PlainRead {
    /// "read" or "write".
    pub operation: &'static str,
    /// Bytes of the input.
    pub input_bytes: u64,
    /// "host" or "gpu:0".
    pub target: String,
    /// "pinned" or "pageable" on the path to a GPU.
    pub memory: Option<&'static str>,
    /// The page cache before it.
    pub cache: CacheState,
    /// The access path.
    pub way: &'static str,
    /// Its rate.
    pub gb_per_s: f64,
    /// Why the page cache was not in the requested state.
    pub notes: Vec<String>,
}

/// A measured point.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// Its comparison.
    pub figure: Figure,
    /// The variant, or the access path.
    pub variant: String,
    /// "cpu" or "cuda".
    #[serde(serialize_with = "shown")]
    pub processor: Processor,
    /// The device in words.
    pub ran_on: String,
    /// The requested access path; `None` for inputs in memory.
    pub way: Option<&'static str>,
    /// Bytes of the input.
    pub input_bytes: u64,
    /// Its number of keys, records or values.
    pub records: u64,
    /// Share of common keys, if applicable.
    pub selectivity: Option<f64>,
    /// Bytes of a chunk, if requested.
    pub chunk_bytes: Option<u64>,
    /// Chunks in flight, if requested.
    pub slots: Option<usize>,
    /// The page cache before the last run; `None` for inputs in memory.
    pub cache: Option<CacheRecord>,
    /// Times of the runs, in order.
    pub runs_s: Vec<f64>,
    /// The shortest.
    pub best_s: f64,
    /// The middle one (of two, the longer).
    pub median_s: f64,
    /// Bytes of the input in the median time.
    pub gb_per_s: f64,
    /// Records of the input in the median time.
    pub records_per_s: f64,
    /// The result.
    pub answer: Answer,
    /// Bytes of output that were written.
    pub output_bytes: u64,
    /// Bytes of temporary files that were written.
    pub temporary_bytes: u64,
    /// Stage times of the best run.
    pub stages: StageTimes,
    /// Times of its chunks in each stage.
    pub chunk_times: Vec<ChunkTimes>,
    /// The operator's peak host memory reservation.
    pub host_peak_bytes: u64,
    /// Peak resident memory of the process, including inputs in memory and mapped files.
    pub resident_peak_bytes: Option<u64>,
    /// Peak device memory.
    pub device_peak_bytes: u64,
    /// The bottleneck of its longest race.
    pub limited_by: Option<String>,
    /// The best plain read of the same bytes, and the share of it that was reached.
    pub roofline: Option<Roofline>,
    /// The model's prediction.
    pub predicted: Option<Predicted>,
    /// Other notes.
    pub notes: Vec<String>,
}

/// A run compared with the best plain read of the same files to the same processor, with the same
/// page cache state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Roofline {
    /// The plain read.
    pub gb_per_s: f64,
    /// Its access path.
    pub way: &'static str,
    /// The median run's rate as a share of it, 0 to 1 (or above, if it was faster).
    pub share: f64,
}

/// The model's prediction for a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Predicted {
    /// Time.
    pub seconds: f64,
    /// Bytes of the input in that time.
    pub gb_per_s: f64,
    /// The predicted bottleneck.
    pub bottleneck: String,
}

/// A point that was not measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Missing {
    /// Its comparison.
    pub figure: Figure,
    /// The variant, or the access path, and its settings.
    pub variant: String,
    /// Bytes of the input; `None`: for all sizes.
    pub input_bytes: Option<u64>,
    /// The reason.
    pub reason: String,
    /// Whether it should have worked.
    pub is_failure: bool,
}

impl OocRecord {
    /// Points that should have worked and did not.
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

    /// The missing points of a comparison.
    pub fn missing_of(&self, figure: Figure) -> impl Iterator<Item = &Missing> {
        self.missing.iter().filter(move |missing| missing.figure == figure)
    }
}

fn shown<S: serde::Serializer>(value: &Processor, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
