//! What the command line measures and shows: raw transfers, out-of-core operators, the doctor,
//! devices.
//!
//! ```text
//!  transfer (raw transfers through flow) ──┐     ooc (operators, beside the plain reads of
//!  doctor (probes, one ceiling a stage) ───┤          their files and the model)
//!            │                             └──► headrace_ceilings::Ceilings
//!            │
//!            └──► findings, tables, JSON
//! ```
//!
//! This crate must never know: SQL, tables, formats. Rates are GB/s with GB = 10^9 bytes, times
//! nanoseconds unless a name says otherwise.

#![warn(missing_docs)]

pub mod doctor;
pub mod gpus;
pub mod ooc;
pub mod transfer;
