//! Rows that do not fit memory, put aside by partition and brought back.
//!
//! Group-bys, joins, DISTINCT and sorts all divide their rows into partitions, put them aside, and work on
//! one partition at a time. The owner decides what a partition is (a range of hashes or of sort keys); this crate keeps
//! the rows.
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
//! - [`SpillFolder`]: where temporary files are made, how much they may take together, and what went through them.
//! - [`SpillFile`]: one of them. It has no name: it is unlinked when it is made, so that nothing is left of it however the
//!   process ends.
//! - [`Partitions`]: rows on their way in, from any number of threads.
//! - [`Part`]: a partition that is whole, with the memory that it holds; [`Blocks`]: what can be read of it.
//!
//! Memory for held batches and for the list of blocks is reserved from a budget before it is used. A full folder, a
//! failed device and bytes that are not those that were written are errors that name the folder ([`SpillError`]).
//!
//! # What this crate must never know
//!
//! Keys, hashes, orders, plans, pipelines; who divides and why.

#![warn(missing_docs)]

pub mod faulty;

mod error;
mod file;
mod folder;
mod partitions;

pub use error::{Result, SpillError};
pub use file::{Place, SpillFile};
pub use folder::{SpillCounters, SpillFolder, TemporaryFile};
pub use partitions::{Block, Blocks, Part, Partitions, batch_bytes};
