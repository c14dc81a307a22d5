//! The CUDA processor: one generated kernel a pipeline and segment layout.
//!
//! ```text
//! Bound + SegmentLayout ──CudaProgram::compile──► CUDA C++ (no GPU needed)
//!                                                     │ CudaDevice::kernel (NVRTC, cubin cache)
//!                                                     ▼
//! segments on the device ──CudaExecution::run / CudaLane──► accumulators, rows
//!    ▲           ▲                                              │ finish
//!    │           └─ ResidentColumns (left by earlier queries)   ▼
//!    └─ the race (flow::Race::run_device drives CudaLane)   DenseState | RecordBatches
//! ```
//!
//! What it takes: filters, computed columns and inner, left, semi and anti probes; aggregation
//! (count, sum, avg, min, max) by dense groups, or by hashed ones whose keys take at most 16
//! bytes; or rows. Everything else, plain text above all, is refused by [`CudaProgram::compile`]
//! with a reason.
//!
//! Order of calls: [`CudaProgram::compile`] tells at planning time whether a pipeline is taken.
//! [`CudaExecution::new`] loads its kernels, [`StreamPlan::new`] finds which columns are on the
//! device. A plan that [`StreamPlan::is_resident`] runs with [`run_resident`] in one launch;
//! another one goes through [`CudaLane`] and a race over [`StreamPlan::chunk_specs`].

mod codegen;
mod device;
mod execution;
mod groups;
mod lane;
mod layout;
mod narrow;
mod program;
mod resident;
mod stream_plan;
mod tables;

pub use device::{CudaDevice, CudaOptions, Kernel};
pub use execution::{
    CudaExecution, CudaStats, LAUNCH_ROWS_MAX, RowBuffers, accumulator_state, rows_batch,
};
pub use groups::{GroupKeyPart, GroupTableLayout, hashed_batch};
pub use lane::{CudaAnswer, CudaLane, run_resident};
pub use layout::{ColumnForm, ColumnLayout, SegmentLayout};
pub use narrow::{Narrowing, narrow_source};
pub use program::{
    BuildPiece, COMPILE_OPTIONS, CudaProgram, DeviceAccumulator, DeviceColumn, DeviceSegment,
    HEADERS, KERNEL_NAME, OutputColumn, Param, Place, SegmentField, Tuning,
};
pub use resident::{ColumnKey, ResidentColumn, ResidentColumns, ResidentStats};
pub use stream_plan::{SegmentSource, StreamPlan};
pub use tables::piece_bytes;
