//! The CUDA processor of the pipeline IR: one generated kernel for each pipeline and segment layout.
//!
//! # The data that flows through
//!
//! ```text
//! Bound + SegmentLayout ──CudaProgram::compile──► CUDA C++ (no GPU needed)
//!                                                     │ CudaDevice::kernel (NVRTC, cubin cache)
//!                                                     ▼
//! segments on the device ──────────CudaExecution──────────► accumulators, groups, rows
//!    ▲           ▲                                              │
//!    │           └─ ResidentColumns (left by earlier queries)   ▼
//!    └─ the race (a flow::CudaLane with a StreamProgram)    DenseState | RowOutput
//! ```
//!
//! 1. [`CudaProgram::compile`] turns a bound pipeline into the text of a kernel. It runs at planning time and needs
//!    no GPU. It refuses what the processor does not take, and says why.
//! 2. [`chunked`] deals the segments out to the devices. [`CudaRun::new`] loads the kernel on each device and finds
//!    out which columns are there already. A kernel that is new is compiled in haste; the full one follows in the
//!    background ([`settle`] waits for it).
//! 3. A run whose columns are all there ([`CudaRun::is_resident`]) becomes [`ResidentRuns`]: one launch for each
//!    device. The runner keeps it for the next query.
//! 4. Any other run goes through a race ([`CudaRun::stream`]), in which devices take chunks from each other. Some
//!    chunks are made while the race runs: those of a table with more segments than can be planned at once, and
//!    those of batches that come once ([`Rest`]). Heap pages become columns on the device first ([`StreamPages`]).
//! 5. A pipeline that reads the groups of another finds them on the device ([`GroupsLeft`]), if all of them are in one
//!    table. Otherwise [`RowOutput::finish`] merges the hashed groups that the devices left. Dense groups come back
//!    as the state that both processors share.
//!
//! # What it takes
//!
//! The processor takes filters, computed columns, and inner, left, semi and anti probes. It aggregates (count, sum,
//! avg, min, max) by dense groups or by hashed ones. The keys of hashed groups and of builds take at most 160 bytes; a
//! text counts as 32, however long it is. There may be any number of groups (`groups.rs` says how). Rows come back one by one,
//! or the host keeps the first of them where they have an order.
//!
//! # What this crate must never know
//!
//! It knows neither SQL nor DataFusion nor PostgreSQL, neither files nor their formats. It does not choose: its
//! callers decide whether a pipeline runs here. It decides nothing that both processors must agree on: this is the
//! work of `headrace_pipeline::bind`. It never calls the driver itself: this is the work of `headrace_gpu`.

mod accumulator;
mod behind;
mod build_cache;
mod build_pieces;
mod codegen;
mod decode;
mod device;
mod device_state;
mod error;
mod execution;
mod fields;
mod first_groups;
mod fixed;
mod gather;
mod group_columns;
mod groups;
mod groups_left;
mod hand_over;
mod hash_tables;
mod headers;
mod held;
mod host_memory;
mod kernels;
mod keys;
mod layout;
mod narrow;
mod page_slots;
mod pages;
pub mod parts;
mod pinned;
mod place;
mod program;
mod progress;
mod resident;
mod resident_run;
mod room;
mod rows;
mod run;
mod run_feed;
mod stats;
mod status;
mod stream_chunks;
mod stream_plan;
mod stream_program;
mod table_function;
mod tables;
mod text_values;
mod tuning;
mod upload;
mod words;

pub use behind::{RunUnderWay, begin_behind, settle};
pub use codegen::{check_function, check_table_function};
pub use device::{CudaDevice, CudaOptions};
pub use error::CudaError;
pub use execution::StepsLeft;
pub use fixed::compile_fixed;
pub use groups_left::{GroupsLeft, info_of};
pub use held::HoldError;
pub use layout::SegmentLayout;
pub use pages::PageOwner;
pub use program::CudaProgram;
pub use resident::ResidentColumn;
pub use rows::RowOutput;
pub use run::{CudaAnswer, CudaRun, DeviceBytes, ResidentRuns, RunSource, TakeGroups, run_over};
pub use run_feed::{Rest, StreamPages};
pub use stream_chunks::{ChunkLimits, ChunkSource, Chunker, SegmentSource, chunked};
pub use table_function::{CalledTable, call_table};
pub use tuning::Tuning;
