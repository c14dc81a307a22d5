//! The walk over the visibility map and the buffers.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use pgrx::pg_sys::{self, Buffer, Relation, Snapshot};

use crate::settings;
use crate::version::{self, FileNode};

/// Bytes before the bits of a page of the visibility map: a page header, aligned.
const MAP_HEADER_BYTES: u32 = 24;
/// Bits of a block: all-visible, and all-frozen.
const BITS_PER_BLOCK: u32 = 2;
const BLOCKS_PER_BYTE: u32 = 8 / BITS_PER_BLOCK;
/// Blocks whose bits a page of the map has.
pub const BLOCKS_PER_MAP_PAGE: u32 = (pg_sys::BLCKSZ - MAP_HEADER_BYTES) * BLOCKS_PER_BYTE;

/// Which blocks of a table are read how.
pub struct Listing {
    /// From the files.
    pub direct: Vec<Range<u32>>,
    /// Through shared buffers.
    pub server: Vec<Range<u32>>,
    /// How many.
    pub counts: Counts,
    /// Why no block at all is read from the files.
    pub why_not_direct: Option<String>,
}

/// Numbers of blocks, of one table or of several.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// Read from the files.
    pub direct: u64,
    /// Read through shared buffers.
    pub server: u64,
    /// Of these: not visible to everybody.
    pub not_visible: u64,
    /// Of these: visible to everybody, but newer in shared buffers than in the file.
    pub dirty: u64,
}

/// Lists the blocks of tables, and pins the pages of their visibility maps.
///
/// # Safety
/// The backend's thread, in a transaction with this registered snapshot; the tables are open and locked.
pub unsafe fn list(relations: &[Relation], snapshot: Snapshot) -> (Vec<Listing>, Vec<Map>) {
    // The maps' pages take buffers from everybody.
    let mut map_pages_left = pg_sys::NBuffers as u32 / 4;
    let (mut tables, mut maps) = (Vec::new(), Vec::new());
    for &relation in relations {
        let main = pg_sys::ForkNumber::MAIN_FORKNUM;
        let blocks = pg_sys::RelationGetNumberOfBlocksInFork(relation, main);
        let map_pages = Map::pages_of(blocks);
        let why_not = match why_not_direct(relation, snapshot) {
            None if map_pages > map_pages_left => Some(format!(
                "visibility maps would take over a quarter of shared_buffers: {blocks} blocks"
            )),
            why_not => why_not,
        };
        maps.push(match why_not {
            Some(_) => Map::none(),
            None => Map::pin(relation, blocks),
        });
        map_pages_left -= if why_not.is_none() { map_pages } else { 0 };
        tables.push((blocks, why_not));
    }
    let direct = relations.iter().zip(&tables).filter(|(_, (_, why_not))| why_not.is_none());
    let direct = direct.map(|(relation, (blocks, _))| (version::file_node(*relation), *blocks));
    let mut dirty = dirty_blocks(direct).into_iter();
    let listed =
        tables.into_iter().zip(&maps).map(|((blocks, why_not_direct), map)| match why_not_direct {
            Some(_) => Listing::of_server(blocks, why_not_direct),
            None => Listing::of(blocks, map, &dirty.next().unwrap_or_default()),
        });
    (listed.collect(), maps)
}

impl Listing {
    fn of_server(blocks: u32, why_not_direct: Option<String>) -> Self {
        let mut server = Vec::new();
        push(&mut server, 0..blocks);
        let counts = Counts { server: blocks.into(), ..Counts::default() };
        Self { direct: Vec::new(), server, counts, why_not_direct }
    }

    fn of(blocks: u32, map: &Map, dirty: &[u64]) -> Self {
        let (mut direct, mut server) = (Vec::new(), Vec::new());
        let mut counts = Counts::default();
        for block in 0..blocks {
            let is_visible = map.is_visible(block);
            let is_dirty = is_visible && dirty[block as usize / 64] >> (block % 64) & 1 == 1;
            counts.not_visible += u64::from(!is_visible);
            counts.dirty += u64::from(is_dirty);
            let is_direct = is_visible && !is_dirty;
            push(if is_direct { &mut direct } else { &mut server }, block..block + 1);
        }
        counts.server = counts.not_visible + counts.dirty;
        counts.direct = u64::from(blocks) - counts.server;
        Self { direct, server, counts, why_not_direct: None }
    }
}

impl Counts {
    /// Of both.
    pub fn and(self, other: Self) -> Self {
        Self {
            direct: self.direct + other.direct,
            server: self.server + other.server,
            not_visible: self.not_visible + other.not_visible,
            dirty: self.dirty + other.dirty,
        }
    }
}

/// Why no block of a table can be read from its files.
unsafe fn why_not_direct(relation: Relation, snapshot: Snapshot) -> Option<String> {
    if !settings::ENABLE_DIRECT_READ.get() {
        Some("headrace.enable_direct_read is off".into())
    } else if pg_sys::RecoveryInProgress() || (*snapshot).takenDuringRecovery {
        Some("the server is in recovery".into())
    } else if !version::is_logged(relation) && !pg_sys::DataChecksumsEnabled() {
        Some("changes of the table are not logged, and pages have no checksums".into())
    } else if version::snapshots_expire() {
        Some("old_snapshot_threshold lets vacuum take rows away from snapshots".into())
    } else {
        None
    }
}

fn push(ranges: &mut Vec<Range<u32>>, range: Range<u32>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ if range.is_empty() => {}
        _ => ranges.push(range),
    }
}

/// A bit for each block that is newer in shared buffers than in the file, for each of the tables, of which
/// these are the files and numbers of blocks. Buffers are looked at without their locks: one that is dirty
/// all the time has the same tag all the time.
unsafe fn dirty_blocks(tables: impl Iterator<Item = (FileNode, u32)>) -> Vec<Vec<u64>> {
    let (mut dirty, mut places) = (Vec::new(), HashMap::new());
    for (node, blocks) in tables {
        places.insert(node, (dirty.len(), blocks));
        dirty.push(vec![0_u64; (blocks as usize).div_ceil(64)]);
    }
    if dirty.is_empty() {
        return dirty;
    }
    fence(Ordering::Acquire);
    for number in 0..pg_sys::NBuffers as usize {
        // The array has a descriptor for each of the buffers.
        let descriptor = &raw const (*pg_sys::BufferDescriptors.add(number)).bufferdesc;
        let state = std::ptr::read_volatile(&raw const (*descriptor).state.value);
        if state & pg_sys::BM_DIRTY == 0 {
            continue;
        }
        let Some((node, block)) = version::block_of(descriptor) else { continue };
        if let Some(&(table, blocks)) = places.get(&node)
            && block < blocks
        {
            dirty[table][block as usize / 64] |= 1 << (block % 64);
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
    fn none() -> Self {
        Self { pages: Vec::new() }
    }

    /// Pages that a table of so many blocks has in its map.
    fn pages_of(blocks: u32) -> u32 {
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

    /// For each page what tells its bits from others that it had or will have; 0 where nothing does.
    ///
    /// Setting bits moves a page's position in the log, which never comes back to where it was. So where
    /// bits were looked at since the pages were pinned, and the position is still the same, a block whose
    /// bit is set has not changed since any earlier moment at which that position was found, and its bit.
    pub unsafe fn stamps(&self) -> Vec<u64> {
        let stamp = |page: &Option<MapPage>| match page {
            Some(page) if settled_position(page.buffer) == page.position => page.position,
            _ => 0,
        };
        self.pages.iter().map(stamp).collect()
    }

    /// Whether no bit was set since the pages were pinned.
    pub unsafe fn is_unchanged(&self) -> bool {
        let unchanged = |page: &MapPage| settled_position(page.buffer) == page.position;
        self.pages.iter().flatten().all(unchanged)
    }

    /// Lets the pages go. No thread may ask any more.
    pub unsafe fn release(&mut self) {
        for page in self.pages.drain(..).flatten() {
            pg_sys::ReleaseBuffer(page.buffer);
        }
    }
}

/// A page's position in the log, when nobody is about to move it: a bit is set before its record is
/// written, and the position moved after that, all under the page's lock.
unsafe fn settled_position(buffer: Buffer) -> u64 {
    pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE as i32);
    let position = pg_sys::BufferGetLSNAtomic(buffer);
    pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_UNLOCK as i32);
    position
}
