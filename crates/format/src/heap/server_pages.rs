//! Pages that the server hands over: copies out of its buffers, in which the tuples that count were found
//! already. Workers decode them as they do those of files, but believe them.

use std::sync::{Arc, Mutex, PoisonError};

use super::Block;
use super::bytes::u32_at;

/// The number of no file: of pages in memory.
pub(super) const IN_MEMORY: u32 = u32::MAX;

/// Pages of one part of a table, a run's chunk.
///
/// Only the tuples that the run is to see have line pointers in them. A copy has no place in the log: where a
/// page says that, it says which block it is.
#[derive(Debug)]
pub struct ServerPages {
    block_bytes: usize,
    bytes: Vec<u8>,
    filled_bytes: usize,
    part: u32,
    spare: Spare,
}

/// Memory of those that are done, which the next are filled into.
#[derive(Clone, Debug, Default)]
pub struct Spare(Arc<Mutex<Vec<Vec<u8>>>>);

impl ServerPages {
    /// Room for so many pages of a part.
    pub fn new(part: u32, block_bytes: usize, blocks: usize, spare: &Spare) -> Self {
        let mut bytes = spare.lock().pop().unwrap_or_default();
        bytes.resize(block_bytes * blocks, 0);
        Self { block_bytes, bytes, filled_bytes: 0, part, spare: spare.clone() }
    }

    /// Adds a block of the part, whose page is written by `fill` into as many bytes as a block has.
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

    /// The part whose blocks they are.
    pub fn part(&self) -> u32 {
        self.part
    }

    /// Whether there is no room for another.
    pub fn is_full(&self) -> bool {
        self.filled_bytes == self.bytes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.filled_bytes == 0
    }
}

/// The block that a page of these is.
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
