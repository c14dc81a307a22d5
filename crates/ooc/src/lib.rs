//! Out-of-core operators on the race that need no SQL.
//!
//! ```text
//!  files ──► a plan (which bytes are a chunk; made before the race) ──► flow::Race ──► sinks, a number, a vector
//!                                                                      │
//!                                        host kernel (a HostProducer) ─┴─ device kernel (a DeviceProgram)
//! ```
//!
//! Each operator is a folder: a plan that knows the data, and one kernel for each processor; the host's
//! kernel is the oracle of the device's. They share:
//!
//! [`sets`]: intersection, union and differences of sorted keys; [`sort`]: records, and tables of Arrow files;
//! [`matvec`]: products of a dense matrix with vectors; [`sparse`]: those of a sparse one, and what graphs are asked by
//! them; [`eigen`]: eigenpairs by products of either; [`generate`]: inputs for all.
//!
//! | module | what it is |
//! |---|---|
//! | [`number`](Number) | the types of numbers, and their order |
//! | [`Files`] | where files come from and go to: the seam for injected faults |
//! | [`Options`] | where to run, with how much memory, how to read and write |
//! | [`Room`] | what the options come to on this machine: the processor, the memory budget |
//! | [`Report`] | what ran where, why not elsewhere, bytes, times, peaks of memory |
//!
//! This crate must never know: SQL, queries, who calls. Rates are GB/s with GB = 10^9 bytes, times
//! nanoseconds.

#![warn(missing_docs)]

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod emulated;
mod error;
mod files;
mod kept;
mod number;
mod options;
mod report;
mod room;
pub mod sets;
pub mod sort;
mod vectors;

pub mod eigen;
pub mod generate;
pub mod matvec;
pub mod npy;
pub mod sparse;

pub use error::{OocError, Result};
pub use files::{Files, PlainFiles};
pub use number::{Number, NumberType};
pub use options::{Options, Processor};
pub use report::{Pass, Report};
pub use room::{DeviceRoom, Room};
