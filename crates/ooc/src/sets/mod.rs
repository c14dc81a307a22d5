//! Set operations on two sorted lists of keys that are larger than memory.
//!
//! ```text
//! A, B ──fences──► plan: chunks of pairs (a stretch of A and the stretch of B that it may meet)
//!                    │                          stretches without a counterpart are never read
//!                    ▼
//!              flow::Race ──► merge on the cores, or on a GPU ──► what is put out, in order ──► OUT
//! ```
//!
//! Lists are sorted in ascending order (see [`Number`](crate::Number)); with [`Repeats::Refused`] no key may
//! occur twice. Everything that is read is checked: a key out of order is an error that names its position, and
//! no output is left. Data that the result does not depend on is not read and not checked.

mod cut;
mod device;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod emulated;
mod fences;
mod found;
mod host;
mod list;
mod merge;
mod operation;
mod plan;
mod run;
mod sidecar;
mod unsorted;

pub use device::{InDeviceMemory, in_device_memory, source as device_source};
pub use list::KeyList;
pub use operation::{KEY_TYPES, Repeats, SetOperation};
pub use run::{SetJob, SetReport, run};
pub use sidecar::{FencesReport, fences_path, keep_fences};
