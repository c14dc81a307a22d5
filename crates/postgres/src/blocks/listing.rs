//! The walk over the visibility map and the buffers.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use pgrx::pg_sys::{self, Buffer, Relation};

use crate::version;

/// Bytes before the bits of a page of the visibility map: a page header, aligned.
const MAP_HEADER_BYTES: u32 = 24;
/// Bits of a block: all-visible, and all-frozen.
const BITS_PER_BLOCK: u32 = 2;
const BLOCKS_PER_BYTE: u32 = 8 / BITS_PER_BLOCK;
const BLOCKS_PER_MAP_PAGE: u32 = (pg_sys::BLCKSZ - MAP_HEADER_BYTES) * BLOCKS_PER_BYTE;

/// Which blocks are read how.
pub struct Listing {
    /// From the files.
    pub direct: Vec<Range<u32>>,
    /// Through shared buffers.
    pub server: Vec<Range<u32>>,
    /// Blocks that are not visible to everybody.
    pub not_visible_blocks: u32,
    /// Blocks that are, but newer in shared buffers than in the file.
    pub dirty_blocks: u32,
    /// Why no block at all is read from the files.
    pub why_not_direct: Option<String>,
    /// The pinned pages of the visibility map.
    pub map: Map,
}

impl Listing {
    /// Lists a table's blocks.
    ///
    /// # Safety
    /// The backend's thread, in a transaction with a registered snapshot; the table is open and locked.
    pub unsafe fn of(relation: Relation, why_not_direct: Option<String>) -> Self {
        let blocks =
            pg_sys::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM);
        let mut listing = Self {
            direct: Vec::new(),
            server: Vec::new(),
            not_visible_blocks: 0,
            dirty_blocks: 0,
            why_not_direct,
            map: Map::none(),
        };
        if listing.why_not_direct.is_some() {
            push(&mut listing.server, 0..blocks);
            return listing;
        }
        listing.map = Map::pin(relation, blocks);
        let dirty = dirty_blocks(relation, blocks);
        for block in 0..blocks {
            let is_visible = listing.map.is_visible(block);
            let is_dirty = is_visible && dirty[block as usize / 64] >> (block % 64) & 1 == 1;
            listing.not_visible_blocks += u32::from(!is_visible);
            listing.dirty_blocks += u32::from(is_dirty);
            let is_direct = is_visible && !is_dirty;
            let ranges = if is_direct { &mut listing.direct } else { &mut listing.server };
            push(ranges, block..block + 1);
        }
        listing
    }

    /// Number of blocks that are read from the files.
    pub fn direct_blocks(&self) -> u32 {
        self.direct.iter().map(|range| range.end - range.start).sum()
    }
}

fn push(ranges: &mut Vec<Range<u32>>, range: Range<u32>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ if range.is_empty() => {}
        _ => ranges.push(range),
    }
}

/// A bit for each block that is newer in shared buffers than in the file. Buffers are looked at without
/// their locks: one that is dirty all the time has the same tag all the time.
unsafe fn dirty_blocks(relation: Relation, blocks: u32) -> Vec<u64> {
    let mut dirty = vec![0_u64; (blocks as usize).div_ceil(64)];
    let wanted = version::file_node(relation);
    fence(Ordering::Acquire);
    for number in 0..pg_sys::NBuffers as usize {
        // The array has a descriptor for each of the buffers.
        let descriptor = &raw const (*pg_sys::BufferDescriptors.add(number)).bufferdesc;
        let state = std::ptr::read_volatile(&raw const (*descriptor).state.value);
        if state & pg_sys::BM_DIRTY == 0 {
            continue;
        }
        match version::block_of(descriptor) {
            Some((node, block)) if version::same_file(&node, &wanted) && block < blocks => {
                dirty[block as usize / 64] |= 1 << (block % 64);
            }
            _ => {}
        }
    }
    dirty
}

/// Pages of a table's visibility map, pinned in shared buffers until [`Map::release`] or the end of the
/// transaction.
pub struct Map {
    /// In order; `None` where the map has no such page.
    pages: Vec<Option<MapPage>>,
}

struct MapPage {
    buffer: Buffer,
    bytes: *const u8,
    /// Where the log stood when the page was last changed, before any of its bits was looked at.
    position: u64,
}

// SAFETY: `bytes` points to a page in shared memory that stays there while it is pinned, which the
// backend sees to until its workers are joined; it is only ever read, atomically, by any thread.
// `buffer` is used by the backend's thread alone.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    unsafe fn pin(relation: Relation, blocks: u32) -> Self {
        let firsts = (0..blocks).step_by(BLOCKS_PER_MAP_PAGE as usize);
        let pages = firsts.map(|block| {
            let mut buffer = pg_sys::InvalidBuffer as Buffer;
            pg_sys::visibilitymap_get_status(relation, block, &mut buffer);
            (buffer > 0).then(|| {
                let offset = (buffer as usize - 1) * pg_sys::BLCKSZ as usize;
                let bytes = pg_sys::BufferBlocks.cast::<u8>().add(offset).cast_const();
                MapPage { buffer, bytes, position: pg_sys::BufferGetLSNAtomic(buffer) }
            })
        });
        Self { pages: pages.collect() }
    }

    /// No pages.
    pub fn none() -> Self {
        Self { pages: Vec::new() }
    }

    /// Pages that a table of so many blocks has in its map.
    pub fn pages_of(blocks: u32) -> u32 {
        blocks.div_ceil(BLOCKS_PER_MAP_PAGE)
    }

    /// Whether the map says that a block is visible to everybody. Any thread may ask.
    pub fn is_visible(&self, block: u32) -> bool {
        let Some(Some(page)) = self.pages.get((block / BLOCKS_PER_MAP_PAGE) as usize) else {
            return false;
        };
        let place = block % BLOCKS_PER_MAP_PAGE;
        let byte = (MAP_HEADER_BYTES + place / BLOCKS_PER_BYTE) as usize;
        // What was read before this call was read before the bit.
        fence(Ordering::Acquire);
        // SAFETY: the page is pinned and has BLCKSZ bytes, of which `byte` is one; shared memory may be
        // written meanwhile, and is read as an atomic.
        let bits = unsafe { (*page.bytes.add(byte).cast::<AtomicU8>()).load(Ordering::Acquire) };
        bits >> (place % BLOCKS_PER_BYTE * BITS_PER_BLOCK) & 1 == 1
    }

    /// Whether no bit was set since the pages were pinned.
    pub unsafe fn is_unchanged(&self) -> bool {
        let unchanged = |page: &MapPage| pg_sys::BufferGetLSNAtomic(page.buffer) == page.position;
        self.pages.iter().flatten().all(unchanged)
    }

    /// Lets the pages go. No thread may ask any more.
    pub unsafe fn release(&mut self) {
        for page in self.pages.drain(..).flatten() {
            pg_sys::ReleaseBuffer(page.buffer);
        }
    }
}
