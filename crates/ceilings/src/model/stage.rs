//! A stage of the model, and why one cannot be computed.

use serde::Serialize;

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

headrace_io::named!(
    ModelStage,
    StorageRead => "storage read",
    SharedUplink => "shared uplink",
    PageCacheCopy => "page-cache copy",
    HostDecode => "host decode",
    HostMemory => "host memory",
    CopyToDevice => "copy to device",
    Kernel => "kernel",
    Cpu => "cpu",
    CopyToHost => "copy to host",
    BoxUplink => "box uplink",
    StorageWrite => "storage write",
    Slots => "slots",
);

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
