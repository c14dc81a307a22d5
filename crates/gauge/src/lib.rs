//! What storage, memory, links and devices can deliver, and what a race made of it.
//!
//! ```text
//!  bench (a raw transfer through flow) ──► Ceilings (one record a machine, on disk)
//!  doctor (probes, one ceiling a stage) ──►    │
//!                                              ▼
//!                               model: ceilings + a scan ──► predicted time, the bottleneck
//!                                              │
//!                EXPLAIN ANALYZE, bench and doctor print predicted beside measured
//! ```
//!
//! This crate must never know: SQL, tables, formats. Rates are GB/s with GB = 10^9 bytes, times
//! nanoseconds unless a name says otherwise.

#![warn(missing_docs)]

pub mod bench;
pub mod ceilings;
pub mod doctor;
pub mod gpus;
pub mod model;
pub mod plot;
pub mod timeline;
pub use ceilings::Ceilings;
