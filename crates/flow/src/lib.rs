//! The race: chunks of files stream through a fixed ring of slots into a processor.
//!
//! ```text
//!  ChunkSpec ──► choose ──┬─ in place: page cache (mapped), host cache ──────────┐
//!  (extents)   (per read) │                                                      ▼
//!                         └─ cold: slot ──► read (io_uring, threads) ──► queue ──► consumer threads
//!                             ▲                                                  │
//!                             └──────────────── slot is free again ◄─────────────┘
//!
//!  on a device:   slot ──► read ──► copy to device ──► launch ──► event ──► slot is free again
//! ```
//!
//! * A [`Race`] is a list of chunks, each a list of extents ([`ReadSpec`]). [`Race::run_host`]
//!   hands every chunk, in any order and exactly once, to one of several [`HostConsumer`]s;
//!   [`Race::run_device`] drives a [`DeviceLane`].
//! * All buffer memory is allocated before the first read; the number of slots is the
//!   back-pressure. A chunk that lies in memory already (page cache, [`HostCache`]) is consumed
//!   where it lies and needs no slot.
//! * The way is chosen per extent, or forced ([`AccessPath`]); [`RaceReport`] counts what really
//!   happened and says why something better did not.
//! * Whatever ends the race early (error, panic, [`CancelToken`], [`Verdict::Enough`]): no more
//!   reads are begun, those in flight are waited for, then memory is freed.
//! * After the last chunk every file's identity is checked: a file that changed while it was read
//!   is an error, never a mixture.
//!
//! This crate must never know: SQL, tables, formats, what a consumer computes.

#![warn(missing_docs)]

mod cache;
mod cancel;
mod choose;
mod cuda;
mod device;
mod engines;
mod error;
mod host;
mod lane;
mod mapping_pool;
mod memory_source;
mod race;
mod report;
mod slots;
mod spec;
mod stop;
mod trace;
mod work_queue;

pub use cache::{HostCache, HostCacheStats};
pub use cancel::CancelToken;
pub use cuda::{CudaLane, CudaSlots, DeviceProgram, DeviceSlice};
pub use error::{BoxError, RaceError};
pub use lane::{DEVICE_ALIGN_BYTES, DeviceLane, DeviceRange, DeviceTimes, StageSpans};
pub use mapping_pool::MappingPool;
pub use race::Race;
pub use report::{Bottleneck, BytesByPath, LatencySummary, RaceReport, Stage};
pub use spec::{AccessPath, ChunkSpec, DirectEngine, HostConsumer, RaceOptions, ReadSpec, Verdict};
pub use trace::{Span, Trace};
