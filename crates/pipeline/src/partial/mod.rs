//! Partial states of aggregation as data.
//!
//! ```text
//! dense state ──────────────────────► record batches ──PartialMerge──► output batches
//! hash tables of workers ──flush──►   of a PartialSchema     ▲
//! groups of a GPU ────────────────►     │ any order, any     │
//!                                       │ number of times    │
//!                                       └─ memory, temporary files, another process ─┘
//! ```
//!
//! A batch holds one row a group: its keys by value, then one column an accumulator (see
//! [`PartialSchema`]). A group may have any number of rows in any number of batches: merging
//! them in any order gives the same result (float totals but for rounding). Rows are divided
//! by a hash of the key's values ([`headrace_columns::hash`]) into partitions that share no group, so that
//! partitions are merged at the same time, or one after the other when memory is short.
//!
//! Batches that do not fit memory wait in [`headrace_spill::Partitions`].
//!
//! Totals have 192 bits. A worker whose table is full flushes its groups and goes on.

pub(crate) mod codec;
pub(crate) mod merge;
pub(crate) mod runs;
mod schema;
pub(crate) mod spill;

pub use merge::PartialMerge;
pub use schema::PartialSchema;
pub use spill::SpillReport;
