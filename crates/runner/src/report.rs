//! What a run did.

use std::fmt;

use headrace_flow::RaceReport;
use headrace_ir::{Pipeline, Program, Sink};
use serde::{Deserialize, Serialize};

/// Why no device makes window functions.
pub const WINDOWS_ON_CORES: &str =
    "window functions are sorted and computed on the cores, wherever their rows are found";

/// Where the result of a stage lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// Nothing was kept: it was passed on while the stage ran.
    #[default]
    Streamed,
    /// In the memory of a GPU, where the stage that read it ran.
    Device,
    /// In host memory.
    Host,
    /// At least in part in temporary files.
    Disk,
    /// Left out: it did not fit in memory, and all its probes are optional.
    Nowhere,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Streamed => "streamed",
            Self::Device => "device memory",
            Self::Host => "host memory",
            Self::Disk => "disk",
            Self::Nowhere => "nowhere",
        })
    }
}

/// How many rows a step left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRows {
    /// The step, by its place in the stage.
    pub step: usize,
    /// Rows, where they were counted: a step that ran together with a later one has none of its own.
    pub rows: Option<u64>,
}

/// What one stage did. Times are milliseconds of wall clock, bytes are wanted bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StageReport {
    /// The table that it read, or that its input came from.
    pub table: String,
    /// What ran it: "cpu", "cuda", or "planner" if it was handed back.
    pub processor: String,
    /// Why it did not run on the wanted processor.
    pub processor_why_not: Option<String>,
    /// Whether an earlier run made its result.
    pub is_cached: bool,
    /// Where its result lies.
    pub place: Place,
    /// The result in words, where one is kept.
    pub result: String,
    /// Bytes of it.
    pub result_bytes: u64,
    /// Rows of the chunks that the race was given: all that were not pruned, unless it ended early.
    pub rows_in: u64,
    /// Rows that it put out, those included that were no longer wanted.
    pub rows_out: u64,
    /// Its steps in the order in which they ran.
    pub steps: Vec<StepRows>,
    /// Until its last row.
    pub wall_ms: f64,
    /// Record batches that statistics ruled out.
    pub pruned_batches: u64,
    /// Rows in them.
    pub pruned_rows: u64,
    /// Lowering and compiling.
    pub bind_ms: f64,
    /// Merging states and making the result.
    pub finish_ms: f64,
    /// Bytes that went to temporary files.
    pub spilled_bytes: u64,
    /// Hashed groups that came from GPUs.
    #[serde(default)]
    pub groups_brought: u64,
    /// What each of several GPUs had of the columns.
    #[serde(default)]
    pub gpus: Vec<GpuBytes>,
    /// The race.
    pub race: RaceReport,
}

/// The bytes of columns that one of several GPUs worked on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuBytes {
    /// The GPU.
    pub gpu: usize,
    /// Bytes that came to it.
    pub came_bytes: u64,
    /// Bytes that were there.
    pub resident_bytes: u64,
}

impl StageReport {
    /// One report of the stages that rows come from in the first place, one after the other: that of the one which read the
    /// most, with the rows and the races of all.
    pub(crate) fn of_origins<'r>(origins: impl Iterator<Item = &'r Self> + Clone) -> Self {
        let bytes = |report: &Self| report.race.bytes_by_path.total();
        let largest = origins.clone().enumerate().max_by_key(|(_, report)| bytes(report));
        let Some((largest, report)) = largest else { return Self::default() };
        let mut all = report.clone();
        for (_, other) in origins.enumerate().filter(|(at, _)| *at != largest) {
            all.rows_in += other.rows_in;
            all.pruned_batches += other.pruned_batches;
            all.pruned_rows += other.pruned_rows;
            all.race = all.race.then(&other.race);
            for more in &other.gpus {
                match all.gpus.iter_mut().find(|gpu| gpu.gpu == more.gpu) {
                    Some(gpu) => {
                        gpu.came_bytes += more.came_bytes;
                        gpu.resident_bytes += more.resident_bytes;
                    }
                    None => all.gpus.push(*more),
                }
            }
        }
        all
    }
}

/// The process that owns the GPUs, as it ran a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// Its number.
    pub pid: u32,
    /// The GPU, if one ran it.
    pub device: Option<String>,
    /// How long the program waited for its turn.
    pub queued_ms: f64,
}

/// What one run did. Times are milliseconds of wall clock, bytes are wanted bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunReport {
    /// The stage that streams the largest input: the last one, or what its rows come from. Its rows out
    /// are the answer's; spilled bytes and the time of merging are of all stages that its rows went
    /// through.
    #[serde(flatten)]
    pub streamed: StageReport,
    /// Whether a GPU lacked nothing but its start, which [`Runner::rehearse`](crate::Runner::rehearse) makes.
    #[serde(skip)]
    pub wants_rehearsal: bool,
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
    /// The process that ran it for this one.
    #[serde(default)]
    pub served: Option<Served>,
    /// Why none did, where one was asked or was to be asked.
    #[serde(default)]
    pub served_why_not: Option<String>,
    /// The program as it ran: lowered, and with joins by partitions where a build did not fit memory.
    pub program: Option<Program>,
    /// All stages of that program, by number; `None`: it did not have to run.
    pub stages: Vec<Option<StageReport>>,
}

impl RunReport {
    /// The stages that ran, with their reports.
    pub fn ran(&self) -> impl Iterator<Item = (&Pipeline, &StageReport)> {
        let stages = self.program.iter().flat_map(Program::all).zip(&self.stages);
        stages.filter_map(|(stage, report)| Some((stage, report.as_ref()?)))
    }

    /// The stages that a processor is chosen for: those that stream a table or batches to rows, groups
    /// or partitions, and those of window functions. A run that was handed back to the planner has one report, which says so.
    pub fn placed(&self) -> Vec<&StageReport> {
        let is_placed = |stage: &Pipeline| match stage.sink {
            Sink::Windows(_) => true,
            Sink::Build { .. } => false,
            _ => stage.source.input.table().is_some(),
        };
        match self.program {
            None => vec![&self.streamed],
            Some(_) => {
                self.ran().filter(|(stage, _)| is_placed(stage)).map(|(_, report)| report).collect()
            }
        }
    }
}
