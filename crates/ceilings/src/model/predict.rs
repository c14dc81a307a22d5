//! The prediction; its formulae are in the documentation of the [module](super).

use std::fmt;

use serde::Serialize;

use super::path::{Ring, Station, race_s, ring_s};
use super::stages::Stages;
use super::{Machine, Scan};

pub(super) const BYTES_PER_GB: f64 = 1e9;

/// Why a prediction is impossible.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A required stage has no rate.
    #[error("no ceiling is known for the stage '{stage}'\nhint: {remedy}")]
    MissingCeiling {
        /// The stage.
        stage: ModelStage,
        /// How to provide one.
        remedy: &'static str,
    },
    /// An invalid number.
    #[error("the {what} is {value}; it must be {wanted}")]
    Input {
        /// Its name.
        what: &'static str,
        /// Its value.
        value: f64,
        /// The expected range.
        wanted: &'static str,
    },
}

/// A stage of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelStage {
    /// Storage devices.
    StorageRead,
    /// Their shared resource on the way to memory.
    SharedUplink,
    /// Copies out of the page cache.
    PageCacheCopy,
    /// Decompression by the CPU.
    HostDecode,
    /// Memory controllers of the host.
    HostMemory,
    /// Links to the devices.
    CopyToDevice,
    /// Kernels, bound by device memory.
    Kernel,
    /// CPU cores.
    Cpu,
    /// Links from the devices.
    CopyToHost,
    /// Output of independent boxes.
    BoxUplink,
    /// Storage devices, written.
    StorageWrite,
    /// The ring: too few slots to keep the stages busy in parallel.
    Slots,
}

impl fmt::Display for ModelStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ModelStage::StorageRead => "storage read",
            ModelStage::SharedUplink => "shared uplink",
            ModelStage::PageCacheCopy => "page-cache copy",
            ModelStage::HostDecode => "host decode",
            ModelStage::HostMemory => "host memory",
            ModelStage::CopyToDevice => "copy to device",
            ModelStage::Kernel => "kernel",
            ModelStage::Cpu => "cpu",
            ModelStage::CopyToHost => "copy to host",
            ModelStage::BoxUplink => "box uplink",
            ModelStage::StorageWrite => "storage write",
            ModelStage::Slots => "slots",
        })
    }
}

/// The time of one stage alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StagePrediction {
    /// The stage.
    pub stage: ModelStage,
    /// Bytes through it.
    pub bytes: f64,
    /// Its ceiling, GB/s.
    pub gb_per_s: f64,
    /// Time of the stage alone, including per-chunk overheads.
    pub seconds: f64,
    /// The source of the ceiling.
    pub limit: String,
}

/// The prediction for a scan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The stages in path order; [`ModelStage::Slots`] last, if there is a ring.
    pub stages: Vec<StagePrediction>,
    /// The stage with the largest time.
    pub bottleneck: ModelStage,
    /// Chunks that are streamed.
    pub chunks: u64,
    /// Time of the bottleneck.
    pub steady_s: f64,
    /// Additional time for filling and draining the stages.
    pub fill_and_drain_s: f64,
    /// Start-up time.
    pub startup_s: f64,
    /// Sum of the three.
    pub total_s: f64,
    /// Needed bytes, uncompressed and before pruning, per second: 10^9 bytes.
    pub table_gb_per_s: f64,
    /// Stored bytes that are moved, per second: 10^9 bytes.
    pub wire_gb_per_s: f64,
    /// Speed-up with twice the bottleneck's rate (or twice the slots).
    pub speedup_if_doubled: f64,
    /// Stages without a known ceiling, assumed to cost nothing.
    pub not_modelled: Vec<ModelStage>,
}

impl Prediction {
    /// The time of one stage, if it is involved.
    pub fn stage(&self, stage: ModelStage) -> Option<&StagePrediction> {
        self.stages.iter().find(|found| found.stage == stage)
    }
}

/// Predicts the time and the bottleneck of a scan.
///
/// # Errors
/// [`ModelError`]: invalid numbers, or no rate for a decisive stage.
pub fn predict(scan: &Scan, machine: &Machine) -> Result<Prediction, ModelError> {
    scan.check()?;
    machine.check()?;
    let stages = Stages::of(scan, machine)?;
    Ok(conclude(scan, stages))
}

fn conclude(scan: &Scan, stages: Stages) -> Prediction {
    let Stages { mut stages, stations, ring, not_modelled } = stages;
    if let Some(slots) = ring.slots {
        stages.push(slots_stage(scan, slots, ring_s(&stations, &ring)));
    }
    let slowest = stages
        .iter()
        .enumerate()
        .max_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds))
        .map(|(index, stage)| (index, stage.stage, stage.seconds));
    // Where no rate at all is known, the kernel is what remains of a scan.
    let (index, bottleneck, steady_s) = slowest.unwrap_or((0, ModelStage::Kernel, 0.0));
    let race_s_now = race_s(&stations, &ring);
    let total_s = scan.startup_s + race_s_now;
    let doubled_s = scan.startup_s + race_s_doubled(stations, ring, index);
    let per_s = |bytes: f64| if total_s > 0.0 { bytes / BYTES_PER_GB / total_s } else { 0.0 };
    Prediction {
        bottleneck,
        chunks: ring.chunks as u64,
        steady_s,
        fill_and_drain_s: race_s_now - steady_s,
        startup_s: scan.startup_s,
        total_s,
        table_gb_per_s: per_s(scan.needed_bytes()),
        wire_gb_per_s: per_s(scan.wire_bytes()),
        speedup_if_doubled: if doubled_s > 0.0 { total_s / doubled_s } else { 1.0 },
        not_modelled,
        stages,
    }
}

fn slots_stage(scan: &Scan, slots: f64, seconds: f64) -> StagePrediction {
    let bytes = scan.wire_bytes() * (1.0 - scan.device_share);
    StagePrediction {
        stage: ModelStage::Slots,
        bytes,
        gb_per_s: if seconds > 0.0 { bytes / BYTES_PER_GB / seconds } else { 0.0 },
        seconds,
        limit: format!("{slots} slots of {}", headrace_io::binary_bytes(scan.chunk_bytes)),
    }
}

/// The race with a station of double rate; an index past the stations doubles the slots.
fn race_s_doubled(mut stations: Vec<Station>, mut ring: Ring, index: usize) -> f64 {
    match stations.get_mut(index) {
        Some(station) => station.seconds /= 2.0,
        None => ring.slots = ring.slots.map(|slots| slots * 2.0),
    }
    race_s(&stations, &ring)
}
