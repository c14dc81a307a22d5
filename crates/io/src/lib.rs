//! Host readers and writers: how bytes of a file reach host memory, how they get back into one, and
//! what can go wrong on the way.
//!
//! ```text
//!             SourceFile ──┐                       ┌── PreadPool   (threads, buffered or O_DIRECT)
//!   path ──►               ├── dyn ReadAt ──► bytes├── UringEngine (io_uring, O_DIRECT, fixed buffers)
//!             FaultyFile ──┘   (the seam)          ├── MappedFile  (mmap, survives truncation)
//!             (seeded faults)                      └── read_exact_at (a plain call, for metadata)
//! ```
//!
//! * A [`SourceFile`] is a file with its [`FileIdentity`], opened on demand, so that there may be more
//!   files than a process may open. Every reader works on the [`ReadAt`] trait, so [`FaultyFile`], the
//!   seeded fault-injecting twin, can replace the file under *every* reader.
//! * The engines ([`PreadPool`], [`UringEngine`]) share one interface, [`Engine`]: an extent
//!   goes in, a [`Completion`] comes out through a callback. Extents are widened to
//!   [`EXTENT_ALIGN_BYTES`]; [`Placement`] says where the wanted bytes then lie.
//! * A remote file is a [`SourceFile`] too. A [`RemoteBytes`] fetches its bytes; this crate does not know
//!   how.
//! * What a path can do ([`PathProbe`], [`residency`], [`SourceFile::direct`]) is asked of the
//!   kernel, tried with a real read where the answer cannot be trusted, and returned as data with a
//!   reason. This crate never chooses another path silently; the caller chooses.
//! * Facts about the machine (mounts, drives, PCIe, limits, the kernel) are in [`system`].
//! * A [`FedChunk`] is a unit of reading, and a [`ChunkFeed`] makes them. Maker and consumer agree on its payload; no
//!   other code reads it.
//! * [`MemoryBudget`] is the one account of host memory for readers' slots, caches and consumers.
//! * Whatever waits or computes beside its caller does so on threads that [wait for work](on_thread).
//! * Writers mirror the readers, in [`mod@write`]: the same engines, seams and rules.
//!
//! This crate must never know: Arrow, SQL, CUDA. It works on Linux only.
//!
//! Units: offsets and lengths are bytes, times nanoseconds; GB = 10^9 bytes.

#![warn(missing_docs)]

mod budget;
mod byte_lock;
mod chunk;
mod engine;
mod engines;
mod error;
mod faulty;
mod file;
mod handles;
pub mod huge;
mod identity;
mod last_used;
mod mapped;
mod mapping_pool;
mod memory;
mod memory_file;
mod named;
mod parallel;
mod policy;
mod pool;
mod probe;
pub mod random;
mod read;
mod remote;
mod residency;
mod ring;
mod scope;
mod segment;
mod sigbus;
mod signals;
pub mod system;
mod threads;
mod transfer;
mod units;
mod uring;
pub mod write;

pub use budget::{MemoryBudget, MemoryUse, MemoryUses, OutOfBudget, Reclaim, Reservation};
pub use byte_lock::ByteLock;
pub use chunk::{BoxError, ChunkFeed, FedChunk, FeedBounds, Lanes, NextChunk, ReadSpec};
pub use engine::{Completion, CompletionSink, Engine, Transferred, Window};
pub use engines::{DirectEngine, Engines, NoEngine};
pub use error::IoError;
pub use faulty::{FaultPlan, FaultyFile};
pub use file::{DirectIo, ReadAt, SourceFile};
pub use handles::raise_open_files;
pub use identity::FileIdentity;
pub use last_used::{Kept, LastUsed};
pub use mapped::{MappedFile, PoisonMark};
pub use mapping_pool::MappingPool;
pub use memory::{AlignedBuffer, Regions};
pub use memory_file::{HeldBytes, MemoryFile};
pub use parallel::{for_each, on_threads, parts_mut, try_for_each, try_map};
pub use policy::InputPolicy;
pub use probe::PathProbe;
pub use read::ReadRequest;
pub use remote::{RemoteBytes, is_abandoned};
pub use residency::{Residency, ResidencyMethod, drop_cache, residency, residency_sampled};
pub use scope::{Handle, Scope, scope};
pub use segment::{EXTENT_ALIGN_BYTES, Placement, ReadMode};
pub use signals::block_signals;
pub use threads::on_thread;
pub use units::{binary_bytes, decimal_bytes};
pub use uring::{SetupFault, UringOptions, UringUnavailable};

/// The result of everything in this crate that touches a file.
pub type Result<T> = std::result::Result<T, IoError>;

/// A pool of threads that reads.
pub type PreadPool = pool::Pool<ReadRequest>;

/// An io_uring that reads.
pub type UringEngine = ring::Ring<ReadRequest>;
