//! Measurements: raw transfers, and out-of-core operators beside the plain reads of their files and
//! the model.
//!
//! ```text
//!  transfer (raw transfers through flow) ──► BenchRun ──► headrace_ceilings::Ceilings
//!      │  plain reads                           │
//!      ▼                                        ▼
//!  ooc (operators of headrace_ooc) ──► OocRecord ──► tables, JSON
//! ```
//!
//! This crate must never know: SQL, tables, formats, what is good or bad about a machine (`doctor`). Rates are GB/s
//! with GB = 10^9 bytes, times nanoseconds unless a name says otherwise.

#![warn(missing_docs)]

mod aligned;
pub mod ooc;
pub mod transfer;

pub use aligned::aligned;
