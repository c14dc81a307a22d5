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
mod host;
mod list;
mod merge;
mod operation;
mod plan;
mod run;
mod sidecar;
mod unsorted;

use std::sync::atomic::{AtomicU64, Ordering};

use headrace_flow::BoxError;
use parking_lot::Mutex;
use serde::Serialize;

pub use device::{InDeviceMemory, in_device_memory, source as device_source};
pub use list::KeyList;
pub use operation::{KEY_TYPES, Repeats, SetOperation};
pub use run::{SetJob, run};
pub use sidecar::{FencesReport, fences_path, keep_fences};

use crate::Report;
use plan::Pair;

/// The result of a set operation.
#[derive(Debug, Clone, Serialize)]
pub struct SetReport {
    /// Keys of the result.
    pub keys: u64,
    /// Keys of the lists.
    pub list_keys: [u64; 2],
    /// Keys of both lists that the fences ruled out and that were not read.
    pub dropped_keys: u64,
    /// The operator's report.
    pub report: Report,
}

/// The combined findings of chunks.
struct Found {
    repeats: Repeats,
    is_counted_only: bool,
    keys: AtomicU64,
    /// The first pair found out of order.
    unsorted: Mutex<Option<Pair>>,
}

impl Found {
    fn new(repeats: Repeats, is_counted_only: bool) -> Self {
        Found { repeats, is_counted_only, keys: AtomicU64::new(0), unsorted: Mutex::new(None) }
    }

    fn add(&self, keys: u64) {
        self.keys.fetch_add(keys, Ordering::Relaxed);
    }

    fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// A pair is out of order; its position is determined after the race.
    fn unsorted(&self, pair: &Pair) -> BoxError {
        let mut first = self.unsorted.lock();
        if first
            .as_ref()
            .is_none_or(|first| (pair.a.start, pair.b.start) < (first.a.start, first.b.start))
        {
            *first = Some(pair.clone());
        }
        "a list is out of order".into()
    }
}
