//! The measured ceilings of this machine's storage, memory, links and devices, and predictions from
//! them.
//!
//! ```text
//!  measurements (a benchmark, a doctor) ──► Ceilings (one record a machine, on disk)
//!                                              │
//!                                              ▼
//!                        model: ceilings + a scan ──► predicted time, the bottleneck
//! ```
//!
//! - [`Ceilings`]: the record, with the place ([`Place`]) and the measure ([`Measure`]) of each entry.
//! - [`model`]: stages of a scan over a machine, measured or described.
//!
//! This crate must never know: who measures, SQL, tables, formats. Rates are GB/s with GB = 10^9
//! bytes, times nanoseconds unless a name says otherwise.

#![warn(missing_docs)]

pub mod model;
mod record;

pub use record::*;
