//! The prediction; its formulae are in the documentation of the [module](super).

use serde::Serialize;

use super::path::{Ring, Station, race_s, ring_s};
use super::stage::{BYTES_PER_GB, ModelError, ModelStage, StagePrediction};
use super::stages::Stages;
use super::{Machine, Scan};

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
