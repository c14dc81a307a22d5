//! The CUDA processor: one generated kernel a pipeline and segment layout.
//!
//! ```text
//! Bound + SegmentLayout ──CudaProgram::compile──► CUDA C++ (no GPU needed)
//!                                                     │ CudaDevice::kernel (NVRTC, cubin cache)
//!                                                     ▼
//! segments on the device ──────────CudaExecution──────────► accumulators, rows
//!    ▲           ▲                                              │
//!    │           └─ ResidentColumns (left by earlier queries)   ▼
//!    └─ the race (a flow::CudaLane with a StreamProgram)    DenseState | RowOutput
//! ```
//!
//! What it takes: filters, computed columns and inner, left, semi and anti probes; aggregation
//! (count, sum, avg, min, max) by dense groups, or by hashed ones whose keys take at most 128
//! bytes, 32 for a text however long, and however many they are (`groups.rs` says how); or rows, of which the
//! host keeps the first where they have an order. Everything else is refused by [`CudaProgram::compile`] with a
//! reason.
//!
//! Order of calls: [`CudaProgram::compile`] tells at planning time whether a pipeline is taken.
//! [`chunked`] deals the segments out to the devices, [`CudaRun::new`] loads the kernels on each and
//! finds which columns are there. A run that [`CudaRun::is_resident`] becomes [`ResidentRuns`]: one
//! launch a device, kept for the next time. Another one goes through a race ([`CudaRun::stream`]),
//! in which devices take chunks from each other. Of a table with more segments than can be planned
//! at once, or of batches that come once, a run has [`Rest`]: chunks that come while the race runs.
//! Those of heap pages become columns on the device first ([`PageDecoding`]), by [`StreamPages`].
//! When it is done, [`RowOutput::finish`] merges the hashed groups that devices left.

mod build_cache;
mod codegen;
mod decode;
mod device;
mod device_state;
mod execution;
mod gather;
mod group_states;
mod groups;
mod hand_over;
mod host_memory;
mod kernels;
mod layout;
mod narrow;
mod page_slots;
mod pages;
mod program;
mod resident;
mod resident_run;
mod room;
mod rows;
mod run;
mod run_feed;
mod stream_chunks;
mod stream_plan;
mod stream_program;
mod tables;
mod upload;

pub use decode::accumulator_state;
pub use device::{CudaDevice, CudaOptions};
pub use execution::{CudaExecution, CudaStats, LAUNCH_ROWS_MAX};
pub use gather::{TEXT_VALUE_BYTES, gather_source, text_lengths};
pub use groups::{DeviceGroups, GroupKeyPart, GroupRoom, GroupTableLayout};
pub use kernels::Kernel;
pub use layout::{ColumnForm, ColumnLayout, SegmentLayout, base_of};
pub use narrow::{Narrowing, narrow_source};
pub use pages::{
    ColumnPlaces, NOT_TAKEN, PAGE_ENTRY_BYTES, PAGE_VERDICT_BYTES, PAGES_KERNEL_NAME, PageColumn,
    PageDecoding, PageOwner, PagePass, page_entry, page_verdict, pages_source,
};
pub use program::{
    BuildPiece, COMPILE_OPTIONS, CudaProgram, DeviceAccumulator, DeviceColumn, DeviceSegment,
    HEADERS, KERNEL_NAME, OutputColumn, Param, Place, SegmentField, Tuning,
};
pub use resident::{ColumnKey, FileId, ResidentColumn, ResidentColumns, ResidentStats};
pub use room::{LaunchShape, RowRoom};
pub use rows::{Downloaded, EmitRows, RowBuffers, RowOutput};
pub use run::{CudaAnswer, CudaRun, ResidentRuns, RunSource};
pub use run_feed::{Rest, StreamPages};
pub use stream_chunks::{ChunkLimits, ChunkSource, Chunker, SegmentFeed, SegmentSource, chunked};
pub use tables::piece_bytes;
