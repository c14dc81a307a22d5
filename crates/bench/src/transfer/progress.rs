//! The progress of a run.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Counters that a run writes and a watcher reads.
#[derive(Debug, Default)]
pub struct Progress {
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
    phase: Mutex<String>,
}

impl Progress {
    /// Finished bytes of the present phase.
    pub fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the present phase.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// The present activity, in a word or two.
    pub fn phase(&self) -> String {
        self.phase.lock().clone()
    }

    /// Begins a phase.
    pub(crate) fn begin(&self, phase: impl Into<String>, total_bytes: u64) {
        *self.phase.lock() = phase.into();
        self.done_bytes.store(0, Ordering::Relaxed);
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
