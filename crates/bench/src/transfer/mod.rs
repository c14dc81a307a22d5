//! The transfer benchmark: how fast storage feeds a processor, by which access path, and its
//! limits.
//!
//! ```text
//!  PATH… ──► input (files, folders, devices) ──► cut into chunks ──► flow::Race ──► host | GPUs
//!                │                                                      │  ▲
//!                ├─ cache: dropped (cold), read once (hot), or as it is │  └ consumers: read every
//!                │                                                      │    cache line, or sum
//!                └─ verify: the same chunks again, by plain reads ──────┤
//!                                                                       ▼
//!  device counters, CPU times, measured ceilings, model ──────────► BenchRun ──► text | JSON
//! ```
//!
//! * A [`BenchPlan`] says what to do, [`Bench::run`] does it once, a [`BenchRun`] is the result:
//!   plain data that [`render`] turns into text and JSON. [`sweep`] runs a grid of plans.
//! * The measured race is the one of queries: there is no second reader. Only writes from host
//!   memory have their own ring, because they read nothing.
//! * Facts are counted, not assumed: bytes by access path, readers used, reasons against a better
//!   path, bytes of the block devices meanwhile, the share of the files in the page cache before.
//! * A run that ends early (time, interruption) is a result, and says that it is partial.
//!
//! This module must never know: SQL, tables, formats, terminals.

pub(crate) mod against_ceilings;
pub(crate) mod cache_state;
mod checksum;
pub(crate) mod chunks;
mod consumer;
mod counters;
mod error;
mod gpu;
mod host;
pub(crate) mod input;
mod plain;
mod plan;
mod progress;
mod record;
pub mod render;
mod run;
mod stop;
mod sweep;
mod verify;
mod write;

pub use checksum::Checksum;
pub use error::BenchError;
pub use gpu::KERNELS;
pub use headrace_flow::HostMemory;
pub use plan::{
    BenchPlan, CacheState, FileWrap, Hooks, Operation, PathChoice, Pattern, SinkWrap, Target,
};
pub use progress::Progress;
pub(crate) use record::percentile;
pub use record::{
    BenchRun, BytesMoved, CacheRecord, CpuRecord, DeviceRecord, Latency, Mismatch, PredictedRecord,
    RingRecord, StageRecord, Verification,
};
pub use run::{Bench, run};
pub use sweep::{Grid, Setting, Sweep, SweepPlan, SweepPoint, sweep};
