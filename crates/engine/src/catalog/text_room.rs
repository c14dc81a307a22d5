//! Room for what is held of text files while it is decoded.
//!
//! Whoever cuts a file into blocks waits until there is room for the next one: a record of many megabytes is a block of its own, and a
//! few of them at once are more than a small memory limit has.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use headrace_io::{MemoryBudget, MemoryUse, Reservation};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::records::Block;
use crate::error::external;

/// Bytes of a block: what one task makes batches of.
const BLOCK_BYTES: usize = 4 << 20;
/// Smaller ones cost more than they save.
const BLOCK_BYTES_MIN: usize = 256 << 10;
/// A block takes at most one part in so many of a memory limit.
const BLOCK_SHARE: u64 = 64;
/// All that wait or are decoded at once take one part in so many, as does the longest record.
const BLOCKS_SHARE: u64 = 4;
/// A semaphore counts not much further.
const KIB_MAX: u32 = u32::MAX >> 4;

/// For the blocks of a file.
pub struct Room {
    /// `None`: there is no limit.
    budget: Option<Arc<MemoryBudget>>,
    /// KiB that are left.
    left: Arc<Semaphore>,
    all_kib: u32,
}

/// A block, and its room.
pub struct Roomed {
    /// The block.
    pub block: Block,
    _taken: Option<(Reservation, OwnedSemaphorePermit)>,
}

impl Room {
    /// A share of a budget.
    pub fn of(budget: Option<Arc<MemoryBudget>>) -> Self {
        let bytes = budget.as_ref().map_or(0, |budget| budget.limit_bytes() / BLOCKS_SHARE);
        let all_kib = kib(bytes).clamp(1, KIB_MAX);
        Self { budget, left: Arc::new(Semaphore::new(all_kib as usize)), all_kib }
    }

    /// Of a block, about.
    pub fn block_bytes(&self) -> usize {
        let share = self.budget.as_ref().map(|budget| budget.limit_bytes() / BLOCK_SHARE);
        share.map_or(BLOCK_BYTES, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES)
        })
    }

    /// Of a record; `None`: there is no limit.
    pub fn record_bytes_max(&self) -> Option<usize> {
        let bytes = self.budget.as_ref()?.limit_bytes() / BLOCKS_SHARE;
        Some(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Waits until there is room for a block, on a thread that may.
    ///
    /// # Errors
    /// That others hold too much for it.
    pub fn taken(&self, block: Block) -> Result<Roomed> {
        let Some(budget) = &self.budget else { return Ok(Roomed { block, _taken: None }) };
        let bytes = block.bytes.capacity() as u64;
        let wanted = kib(bytes).clamp(1, self.all_kib);
        let permit = Handle::current().block_on(Arc::clone(&self.left).acquire_many_owned(wanted));
        let permit = permit.map_err(external)?;
        let reserved = budget.reserve(MemoryUse::Readers, bytes).map_err(|refused| {
            let bytes = bytes as f64 / 1e6;
            DataFusionError::ResourcesExhausted(format!(
                "out of host memory: the reader of a file needs {bytes:.1} MB for its next rows ({})\nhint: raise \
                 --memory-limit",
                refused.uses
            ))
        })?;
        Ok(Roomed { block, _taken: Some((reserved, permit)) })
    }
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes >> 10).unwrap_or(u32::MAX)
}
