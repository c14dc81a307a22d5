//! What executions put aside, and where.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headrace_spill::SpillFolder;

/// What an execution has put aside so far.
#[derive(Debug, Default)]
pub struct SpillReport {
    spilled_bytes: AtomicU64,
    flushes: AtomicU64,
    put_aside: AtomicU64,
    levels: AtomicU64,
}

impl SpillReport {
    /// Bytes written to temporary files.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes.load(Ordering::Relaxed)
    }

    /// How often a table of groups was emptied before its time.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// How often a table of groups was emptied in memory, before it outgrew a cache.
    pub fn put_aside(&self) -> u64 {
        self.put_aside.load(Ordering::Relaxed)
    }

    /// How often groups were divided into partitions, one within the other.
    pub fn levels(&self) -> u64 {
        self.levels.load(Ordering::Relaxed)
    }

    pub(crate) fn spilled(&self, bytes: u64) {
        self.spilled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_put_aside(&self) {
        self.put_aside.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn flushed(&self, level: u32) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.levels.fetch_max(u64::from(level) + 1, Ordering::Relaxed);
    }
}

/// What executions need to put groups aside. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpillPlace {
    pub folder: Option<Arc<SpillFolder>>,
    pub report: Arc<SpillReport>,
}
