//! The benchmark of the out-of-core operators: their speed beside plain reads of the same files,
//! and their limits.
//!
//! ```text
//!  OocPlan ──► a folder of its own, within the plan's space; removed at the end, whatever the end
//!                │
//!   operator ────┤ generates ──► plain reads, a plain write (roofline) ──► model
//!   (one file    │                                                          │
//!    each)       └─ a variant: cache emptied or filled, warm-up, n runs ────┴──► Point
//!                       answers of all variants of an input agree, or it is an error
//!                                                                            │
//!                           OocRecord ──► tables (text, Markdown) | JSON
//! ```
//!
//! * Points that cannot be measured here are in the record as [`Missing`], with the reason; there
//!   are no silent gaps.
//! * Rates are those of the median run: bytes, or records, of the input in the time from the call
//!   to the return; output to storage is on stable storage by then. Stages are the race's own busy
//!   times; they overlap, so their sum exceeds the elapsed time.
//!
//! This module must never know: SQL, tables, formats, terminals.

mod error;
mod folder;
mod intersect;
mod matvec;
mod measure;
mod memory;
mod operator;
mod plan;
mod record;
pub mod render;
mod roofline;
mod run;
mod sort;
mod stages;
mod table;

pub use error::OocBenchError;
pub use operator::{Answer, Limits, Source, Variant};
pub use plan::{Benchmark, OocPlan};
pub use record::{
    Figure, Missing, OocRecord, OperatorRecord, PlainRead, Point, Predicted, Roofline, Versions,
};
pub use run::run;
pub use stages::{ChunkTimes, StageTimes};

#[cfg(test)]
mod tests;
