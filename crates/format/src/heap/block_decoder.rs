//! One thread's decoder for blocks that others may write to.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use arrow_array::RecordBatch;

use super::Reroute;
use super::decoder::Decoder;
use super::parts::Block;
use super::server_pages::{IN_MEMORY, block_of};
use super::table::HeapTable;
use crate::{Encoded, Result, SegmentDecoder};

/// Size of a batch: half of a small core's second-level cache, so that the values are still cached
/// when they are processed.
const BATCH_BYTES: usize = 256 << 10;

/// For rows that are narrow, or only counted.
const BATCH_ROWS: usize = 64 << 10;

/// Decodes a table's blocks, and reroutes those that it cannot decode.
pub(super) struct BlockDecoder {
    table: Arc<HeapTable>,
    columns: Vec<usize>,
    /// The part of the current blocks, and its decoder.
    part: usize,
    decoder: Decoder,
    /// The current block, as it was when it was copied.
    page: Vec<u8>,
}

impl BlockDecoder {
    pub(super) fn new(table: Arc<HeapTable>, columns: &[usize]) -> Result<Self> {
        let decoder = table.parts.decoder(0, columns)?;
        let page = Vec::with_capacity(table.parts.block_bytes());
        Ok(Self { table, columns: columns.to_vec(), part: 0, decoder, page })
    }

    /// Takes one block, before `next`; [`Reroute::BatchFull`] if it must be taken again.
    fn take(
        &mut self,
        bytes: &[u8],
        next: &[u8],
        block: Block,
    ) -> std::result::Result<(), Reroute> {
        copy(bytes, &mut self.page, next);
        // The owner is asked about bytes that were read before.
        fence(Ordering::Acquire);
        let owner = self.table.owner();
        let decoded = match owner.holds(block) {
            true => self.decoder.decode(&self.page, block.number).map(drop),
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

    /// Takes a page from the server; like [`take`](Self::take).
    fn take_vouched(&mut self, page: &[u8], block: Block) -> std::result::Result<(), Reroute> {
        match self.decoder.decode_vouched(page) {
            Err(full @ Reroute::BatchFull { .. }) if self.decoder.rows() > 0 => Err(full),
            Err(why) => {
                self.table.owner().hand_back(block, why);
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    fn is_full(&self) -> bool {
        self.decoder.rows() >= BATCH_ROWS || self.decoder.values_bytes() >= BATCH_BYTES
    }
}

/// Size of a cache line.
const LINE_BYTES: usize = 64;

/// Bytes per copy step: the widest loads.
const PART_BYTES: usize = 8 * LINE_BYTES;

/// Copies a block and prefetches the next one line by line: it arrives in the core's second-level cache
/// while this one is decoded, which takes about as long.
fn copy(bytes: &[u8], page: &mut Vec<u8>, next: &[u8]) {
    page.resize(bytes.len(), 0);
    if next.len() < bytes.len() {
        return page.copy_from_slice(bytes);
    }
    let parts = page.chunks_mut(PART_BYTES).zip(bytes.chunks(PART_BYTES));
    for ((copy, part), next) in parts.zip(next.chunks(PART_BYTES)) {
        next.as_chunks().0.iter().for_each(prefetch);
        copy.copy_from_slice(part);
    }
}

#[inline(always)]
fn prefetch(line: &[u8; LINE_BYTES]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a hint, which touches nothing that a program sees; of SSE, which all have.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Pages of a file, taken from the front.
struct Pages<'a> {
    file: u32,
    offset: u64,
    bytes: &'a [u8],
}

impl SegmentDecoder for BlockDecoder {
    fn next_batch(&mut self, encoded: &mut Encoded<'_>) -> Result<Option<RecordBatch>> {
        let (segment, taken) = (encoded.segment, encoded.taken);
        let all = encoded.buffers.first().copied().unwrap_or_default();
        let offset = segment.columns[0].values.offset + taken;
        let bytes = &all[taken as usize..];
        let mut pages = Pages { file: segment.file, offset, bytes };
        let batch = self.take_pages(&mut pages);
        encoded.taken = (all.len() - pages.bytes.len()) as u64;
        batch
    }

    fn rest(&mut self) -> Result<Option<RecordBatch>> {
        match self.decoder.rows() {
            0 => Ok(None),
            _ => self.decoder.finish().map(Some),
        }
    }
}

impl BlockDecoder {
    /// Takes pages until their rows fill a batch; `None`: all are taken.
    fn take_pages(&mut self, pages: &mut Pages<'_>) -> Result<Option<RecordBatch>> {
        let is_vouched = pages.file == IN_MEMORY;
        let part = match is_vouched {
            true => block_of(pages.bytes).part as usize,
            false => self.table.parts.of_file(pages.file),
        };
        if part != self.part {
            // Rows of two parts are of two decoders.
            if let Some(rows) = self.rest()? {
                return Ok(Some(rows));
            }
            (self.part, self.decoder) = (part, self.table.parts.decoder(part, &self.columns)?);
        }
        let (block_bytes, mut taken) = (self.table.parts.block_bytes(), 0);
        let mut is_full = self.is_full();
        while !pages.bytes.is_empty() && !is_full {
            let (bytes, rest) = pages.bytes.split_at(block_bytes.min(pages.bytes.len()));
            let taken_now = match is_vouched {
                true => self.take_vouched(bytes, block_of(bytes)),
                false => {
                    let block = self.table.parts.block(pages.file, pages.offset);
                    self.take(bytes, rest, block)
                }
            };
            if taken_now.is_err() {
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
}
