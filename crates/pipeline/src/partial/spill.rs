//! Where partial states wait when memory is short: somebody else's files.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

/// Why a batch could not be put aside or brought back: cause, place and remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SpillError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Where spills are made.
pub trait SpillStore: Debug + Send + Sync {
    /// An empty spill for batches of a schema.
    ///
    /// # Errors
    /// [`SpillError`]
    fn open(&self, schema: &SchemaRef) -> Result<Box<dyn Spill>, SpillError>;
}

/// Batches put aside. Dropping it gives the space back, whatever happened before. Threads may
/// write and read at the same time.
pub trait Spill: Debug + Send + Sync {
    /// Puts a batch aside.
    ///
    /// # Errors
    /// [`SpillError`]: no space, a limit of temporary space, a failed device.
    fn write(&self, batch: &RecordBatch) -> Result<SpillBlock, SpillError>;

    /// Brings a batch back, exactly as it was.
    ///
    /// # Errors
    /// [`SpillError`]: a failed device, bytes that are not those that were written.
    fn read(&self, block: SpillBlock) -> Result<RecordBatch, SpillError>;
}

/// Where a batch lies in its spill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillBlock {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What an execution has put aside so far.
#[derive(Debug, Default)]
pub struct SpillReport {
    spilled_bytes: AtomicU64,
    spilled_groups: AtomicU64,
    flushes: AtomicU64,
    levels: AtomicU64,
}

impl SpillReport {
    /// Bytes written to spills.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes.load(Ordering::Relaxed)
    }

    /// Groups written to spills, each as often as it was.
    pub fn spilled_groups(&self) -> u64 {
        self.spilled_groups.load(Ordering::Relaxed)
    }

    /// How often a table of groups was emptied before its time.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// How often groups were divided into partitions, one within the other.
    pub fn levels(&self) -> u64 {
        self.levels.load(Ordering::Relaxed)
    }

    pub(crate) fn spilled(&self, block: SpillBlock, groups: usize) {
        self.spilled_bytes.fetch_add(block.bytes, Ordering::Relaxed);
        self.spilled_groups.fetch_add(groups as u64, Ordering::Relaxed);
    }

    pub(crate) fn flushed(&self, level: u32) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.levels.fetch_max(u64::from(level) + 1, Ordering::Relaxed);
    }
}

/// What executions need to put groups aside. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpillPlace {
    pub store: Option<Arc<dyn SpillStore>>,
    pub report: Arc<SpillReport>,
}
