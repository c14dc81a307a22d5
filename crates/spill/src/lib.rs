//! Rows that do not fit in memory, spilled by partition and read back.
//!
//! Group-bys, joins, DISTINCT and sorts all partition their rows, spill them, and work on one partition at a time. The
//! owner decides what a partition is (a range of hashes or of sort keys); this crate stores the rows.
//!
//! # The data that flows through
//!
//! ```text
//! (partition, batch) ─► Partitions::push ─┬─ within the memory share ─► held as it is ───────┐
//!                                         └─ otherwise ─► a block of one SpillFile ──────────┤
//!                                                         (LZ4, XXH64 of all its bytes)      │
//!                                                                                            ▼
//!                                     batch by batch ◄─ Blocks::read / Part::drain ◄─ Part (its blocks, in order)
//! ```
//!
//! - [`SpillFolder`]: the folder of temporary files, their common limit and their counters.
//! - [`SpillFile`]: one of them. It has no name: it is unlinked at creation, so the process leaves nothing behind
//!   however it ends.
//! - [`Partitions`]: incoming rows, from any number of threads.
//! - [`Part`]: a complete partition, with the memory that it holds; [`Blocks`]: its readable content.
//!
//! Memory for held batches and for the list of blocks is reserved from a budget before it is used. A full folder, a
//! failed device and corrupt bytes are errors that name the folder ([`SpillError`]).
//!
//! # What this crate must never know
//!
//! Keys, hashes, orders, plans, pipelines; who partitions and why.

#![warn(missing_docs)]

pub mod faulty;

mod error;
mod file;
mod folder;
mod partitions;

pub use error::{Result, SpillError};
pub use file::{Place, SpillFile};
pub use folder::{SpillCounters, SpillFolder, TemporaryFile};
pub use partitions::{Block, Blocks, LISTED_BYTES, Part, Partitions, batch_bytes};
