//! The race: chunks of files stream through a fixed ring of slots into a processor, and its output
//! back into files.
//!
//! ```text
//!   FedChunk ──► choose ──┬─ in place: page cache (mapped), host cache ──────────┐
//!  (extents)   (per read) │                                                      ▼
//!                         └─ cold: slot ──► read (io_uring, threads) ──► queue ──► consumer threads
//!                             ▲                                                  │        │
//!                             └──────────────── slot is free again ◄─────────────┘        ▼
//!                                                                 sink ◄── write ◄── Outbox
//!
//!  on a device:   ┌─ slot ──► read ──► copy to device ─┐
//!     choose ─────┼─ registered mapping ──► copy ──────┼─► launch ──► copy to host ──► write
//!                 └─ the device's own reader ──────────┘      │              │           │
//!                                       slot is free again ◄──┴──── if none ─┴───────────┘
//! ```
//!
//! * A [`Race`] runs over a list of chunks, or over a [`ChunkFeed`] that makes them on demand; a
//!   [`FedChunk`] is a list of extents ([`ReadSpec`]) of files, or of memory from another producer, and a payload
//!   that the race hands to the consumer with the bytes. A few
//!   chunks per consumer or slot are in flight at a time, and only their bookkeeping is allocated
//!   while the race runs. [`Race::run_host`] hands every chunk, in any order and exactly once, to
//!   one of several [`HostConsumer`]s; [`Race::run_device`] drives a [`DeviceLane`],
//!   [`Race::run_devices`] several, with work stealing between them.
//! * [`Race::with_outputs`] adds sinks: a [`DeviceProgram`] names a chunk's output, a [`HostProducer`] puts
//!   it into its [`Outbox`]; it is written while other chunks are read. With [`Race::with_appended`] the
//!   size of a chunk's output is known only after processing, and outputs are appended in chunk order.
//! * All buffer memory is allocated before the first read (a device's pinned slots may become ready
//!   while the first are in use); the number of slots is the back-pressure. A chunk that is already
//!   in memory (page cache, [`HostCache`]) is consumed in place and needs no slot.
//! * The access path is chosen per extent, or forced ([`AccessPath`]); [`RaceReport`] counts what
//!   really happened and says why nothing better did.
//! * When the race ends early (error, panic, [`CancelToken`], [`Verdict::Enough`]), no more reads
//!   begin, reads and writes in flight are drained, devices are synchronised, then memory is freed,
//!   and mappings that a device copied from are released.
//! * After the last chunk every file's identity is checked: a file that changed while it was read
//!   is an error, never a mixture.
//!
//! This crate must never know: SQL, tables, formats, what a consumer computes.

#![warn(missing_docs)]

mod append;
mod cache;
mod cancel;
mod choose;
mod cuda;
mod device;
mod device_reads;
mod engines;
mod error;
mod feed;
mod host;
mod lane;
mod memory_source;
mod options;
mod outbox;
mod output;
mod race;
mod registered;
mod report;
mod schedule;
mod slots;
mod spec;
mod stop;
mod trace;
mod work_queue;
mod writers;

pub use cache::{HostCache, HostCacheStats};
pub use cancel::CancelToken;
pub use cuda::{
    CudaLane, CudaRegistrar, CudaSlots, DeviceOutput, DeviceProgram, DeviceSlice, HostMemory, More,
    PageableLane, SlotChunk, pageable_slots,
};
pub use error::RaceError;
pub use headrace_io::{
    BoxError, ChunkFeed, DirectEngine, FedChunk, FeedBounds, InputPolicy, MappingPool, NextChunk,
    ReadSpec,
};
pub use host::{HostConsumer, HostProducer};
pub use lane::{
    DEVICE_ALIGN_BYTES, DeviceLane, DeviceRange, DeviceReader, DeviceTimes, HostRegistrar,
    Registration, StageSpans,
};
pub use options::RaceOptions;
pub use outbox::{Outbox, OutputBuffer};
pub use output::OutputSpec;
pub use race::Race;
pub use registered::{RegisteredExtent, RegisteredFiles, RegisteredPool, RegisteredStats};
pub use report::{Bottleneck, BytesByPath, DevicesReport, LatencySummary, RaceReport, Stage};
pub use schedule::Affinity;
pub use spec::{AccessPath, ChunkSpec, ConsumerLimit, Verdict, WriteAccess};
pub use trace::{Count, Span, Trace};
