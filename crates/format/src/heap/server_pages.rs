//! Pages from the server: copies out of its buffers that contain only the relevant tuples. Workers decode
//! them like those of files, but trust them.

use std::sync::{Arc, Mutex, PoisonError};

use super::Block;
use super::bytes::u32_at;

/// The file number of pages in memory.
pub(super) const IN_MEMORY: u32 = u32::MAX;

/// Pages of one part of a table, a run's chunk.
///
/// Only tuples that the run must see have line pointers. A copy has no LSN: its place in the page holds the
/// block number.
#[derive(Debug)]
pub struct ServerPages {
    block_bytes: usize,
    bytes: Vec<u8>,
    filled_bytes: usize,
    part: u32,
    spare: Spare,
}

/// Memory of finished pages, for reuse.
#[derive(Clone, Debug, Default)]
pub struct Spare(Arc<Mutex<Vec<Vec<u8>>>>);

impl ServerPages {
    /// Room for this many pages of a part.
    pub fn new(part: u32, block_bytes: usize, blocks: usize, spare: &Spare) -> Self {
        let mut bytes = spare.lock().pop().unwrap_or_default();
        bytes.resize(block_bytes * blocks, 0);
        Self { block_bytes, bytes, filled_bytes: 0, part, spare: spare.clone() }
    }

    /// Adds a block of the part; `fill` writes its page into a block's bytes.
    ///
    /// # Panics
    /// If there is no room.
    pub fn add<E>(
        &mut self,
        number: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let page = &mut self.bytes[self.filled_bytes..][..self.block_bytes];
        fill(page)?;
        page[..4].copy_from_slice(&self.part.to_le_bytes());
        page[4..8].copy_from_slice(&number.to_le_bytes());
        self.filled_bytes += self.block_bytes;
        Ok(())
    }

    /// The part of the blocks.
    pub fn part(&self) -> u32 {
        self.part
    }

    /// Whether there is no room for another.
    pub fn is_full(&self) -> bool {
        self.filled_bytes == self.bytes.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.filled_bytes == 0
    }
}

/// The block of one of these pages.
pub(super) fn block_of(page: &[u8]) -> Block {
    let number = |at| u32_at(page, at).unwrap_or_default();
    Block { part: number(0), number: number(4) }
}

impl AsRef<[u8]> for ServerPages {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled_bytes]
    }
}

impl Drop for ServerPages {
    fn drop(&mut self) {
        self.spare.lock().push(std::mem::take(&mut self.bytes));
    }
}

impl Spare {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
