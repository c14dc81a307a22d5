//! Blocks that others may write to, one thread's share of them.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use arrow_array::RecordBatch;

use super::Reroute;
use super::decoder::Decoder;
use super::table::HeapTable;
use crate::{PageDecoder, Pages, Result};

/// Values of a batch: half of what a small core's second cache has, so that they are still there when
/// they are computed with.
const BATCH_BYTES: usize = 256 << 10;

/// Of rows that are narrow, or only counted.
const BATCH_ROWS: usize = 64 << 10;

/// Decodes a table's blocks, and reroutes those that it does not.
pub(super) struct BlockDecoder {
    table: Arc<HeapTable>,
    decoder: Decoder,
    /// The block at hand, as it was when it was copied.
    page: Vec<u8>,
}

impl BlockDecoder {
    pub(super) fn new(table: Arc<HeapTable>, decoder: Decoder) -> Self {
        let page = Vec::with_capacity(table.blocks.relation.block_bytes);
        Self { table, decoder, page }
    }

    /// Takes one block; [`Reroute::BatchFull`] if it must be taken once more.
    fn take(&mut self, bytes: &[u8], block: u32) -> std::result::Result<(), Reroute> {
        self.page.clear();
        self.page.extend_from_slice(bytes);
        // The owner is asked about bytes that were read before.
        fence(Ordering::Acquire);
        let owner = self.table.owner();
        let decoded = match owner.holds(block) {
            true => self.decoder.decode(&self.page, block).map(drop),
            false => Err(Reroute::Changed),
        };
        match decoded {
            Err(full @ Reroute::BatchFull { .. }) if self.decoder.rows() > 0 => Err(full),
            Err(why) => {
                owner.reroute(block, why);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn is_full(&self) -> bool {
        self.decoder.rows() >= BATCH_ROWS || self.decoder.values_bytes() >= BATCH_BYTES
    }
}

impl PageDecoder for BlockDecoder {
    fn next_batch(&mut self, pages: &mut Pages<'_>) -> Result<Option<RecordBatch>> {
        let (block_bytes, mut taken) = (self.table.blocks.relation.block_bytes, 0);
        let mut is_full = self.is_full();
        while !pages.bytes.is_empty() && !is_full {
            let block = self.table.blocks.number(pages.file, pages.offset);
            let (bytes, rest) = pages.bytes.split_at(block_bytes.min(pages.bytes.len()));
            if self.take(bytes, block).is_err() {
                is_full = true;
                continue;
            }
            (pages.bytes, pages.offset) = (rest, pages.offset + bytes.len() as u64);
            taken += 1;
            is_full = self.is_full();
        }
        if taken > 0 {
            self.table.done(taken);
        }
        if is_full { self.rest() } else { Ok(None) }
    }

    fn rest(&mut self) -> Result<Option<RecordBatch>> {
        match self.decoder.rows() {
            0 => Ok(None),
            _ => self.decoder.finish().map(Some),
        }
    }
}
