//! Blocks through shared buffers, with a snapshot.

use std::ptr::null_mut;

use arrow_array::RecordBatch;
use headrace_format::heap::{
    Decoder, HeapType, JsonbQuery, Relation as Description, Reroute, keep_lines,
};
use pgrx::pg_sys::{self, BlockNumber, Datum, HeapTupleData, Relation, Snapshot};

use crate::datum::{Rows, check_digits};
use crate::nodes::{WhyNot, why_not};
use crate::planner::meet;
use crate::translate::stored;
use crate::version;

const PAGE_BYTES: usize = pg_sys::BLCKSZ as usize;
/// Rows of a batch, more or less.
const BATCH_ROWS: usize = 16 << 10;

/// A page of one's own, aligned as tuples in it must be.
#[repr(align(8))]
struct Page([u8; PAGE_BYTES]);

impl Default for Box<Page> {
    fn default() -> Self {
        Box::new(Page([0; PAGE_BYTES]))
    }
}

/// The tuples of a page that the server vouches for: the number, start and length of each, in order.
fn tuples(page: &[u8]) -> impl Iterator<Item = (u16, usize, usize)> {
    const NORMAL: u32 = 1;
    let lower = usize::from(u16::from_le_bytes([page[12], page[13]])).min(PAGE_BYTES);
    let pointers = page.get(24..lower).unwrap_or_default().as_chunks::<4>().0.iter();
    (1..).zip(pointers).filter_map(|(line, pointer)| {
        let pointer = u32::from_le_bytes(*pointer);
        let is_normal = pointer >> 15 & 3 == NORMAL;
        is_normal.then_some((line, (pointer & 0x7FFF) as usize, (pointer >> 17) as usize))
    })
}

/// A tuple as the server's functions want it.
unsafe fn tuple(
    table: pg_sys::Oid,
    start: *mut u8,
    bytes: usize,
    block: BlockNumber,
    line: u16,
) -> HeapTupleData {
    let ip_blkid = pg_sys::BlockIdData { bi_hi: (block >> 16) as u16, bi_lo: block as u16 };
    HeapTupleData {
        t_len: bytes as u32,
        t_self: pg_sys::ItemPointerData { ip_blkid, ip_posid: line },
        t_tableOid: table,
        t_data: start.cast(),
    }
}

/// A column of values that only the server can read.
struct Wanted {
    attribute: usize,
    /// Its type.
    of: pg_sys::Oid,
    /// The fewest and most digits behind the point that each value must show.
    shows: Option<(u8, u8)>,
    /// What is asked of documents.
    query: Option<JsonbQuery>,
}

/// Reads blocks as a sequential scan does.
pub struct ServerReader {
    relation: Relation,
    snapshot: Snapshot,
    strategy: pg_sys::BufferAccessStrategy,
    decoder: Decoder,
    /// Values that only the server can read.
    rows: Rows,
    /// What is wanted of the server's rows.
    wanted: Vec<Wanted>,
    page: Box<Page>,
    lines: Vec<u16>,
    tuples: Vec<HeapTupleData>,
    serializable: bool,
    /// Blocks that were read row by row.
    pub slow_blocks: u32,
}

impl ServerReader {
    /// # Safety
    /// The backend's thread; the table stays open and the snapshot registered as long as it is used.
    pub unsafe fn new(
        relation: Relation,
        snapshot: Snapshot,
        description: &Description,
        wanted: &[usize],
    ) -> Result<Self, WhyNot> {
        let decoder = Decoder::new(description, wanted);
        let decoder = decoder.map_err(|error| WhyNot(error.to_string()))?;
        let types = version::attributes((*relation).rd_att);
        let attribute = |&column: &usize| {
            let attribute = description.attribute_of(column);
            let shows = match description.kind_of(column) {
                Some(HeapType::NumericShowing { scale, .. }) => {
                    Some((scale.unsigned_abs(), scale.unsigned_abs()))
                }
                Some(HeapType::DigitsShown { most }) => Some((0, most)),
                _ => None,
            };
            let of = stored(types[attribute].atttypid, -1).0;
            Wanted { attribute, of, shows, query: description.query_of(column).cloned() }
        };
        Ok(Self {
            relation,
            snapshot,
            strategy: pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD),
            rows: Rows::new(decoder.schema())?,
            decoder,
            wanted: wanted.iter().map(attribute).collect(),
            page: Box::new(Page([0; PAGE_BYTES])),
            lines: Vec::new(),
            tuples: Vec::new(),
            serializable: pg_sys::XactIsoLevel >= pg_sys::XACT_SERIALIZABLE as i32,
            slow_blocks: 0,
        })
    }

    /// Takes the rows of a block that the snapshot sees.
    pub unsafe fn read(&mut self, block: BlockNumber) -> Result<(), WhyNot> {
        let mut page = std::mem::take(&mut self.page);
        self.copy(block, &mut page.0);
        self.page = page;
        match self.decoder.decode_vouched(&self.page.0) {
            Ok(_) => Ok(()),
            Err(Reroute::BatchFull { .. }) => why_not("a block whose texts take more than 2 GiB"),
            Err(_) => {
                self.slow_blocks += 1;
                self.read_slowly(block)
            }
        }
    }

    /// Copies a page, as long as a block, and leaves the tuples in the copy that the snapshot sees.
    pub unsafe fn copy(&mut self, block: BlockNumber, copy: &mut [u8]) {
        let buffer = pg_sys::ReadBufferExtended(
            self.relation,
            pg_sys::ForkNumber::MAIN_FORKNUM,
            block,
            pg_sys::ReadBufferMode::RBM_NORMAL,
            self.strategy,
        );
        pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE as i32);
        let page = pg_sys::BufferGetPage(buffer).cast::<u8>();
        // Both have a page's bytes; the buffer is pinned and locked.
        copy.copy_from_slice(std::slice::from_raw_parts(page, PAGE_BYTES));
        let flags = (*page.cast::<pg_sys::PageHeaderData>()).pd_flags;
        let says_visible = u32::from(flags) & pg_sys::PD_ALL_VISIBLE != 0;
        // A standby's snapshots do not trust the flag; a serializable transaction is asked about each row.
        let sees_all = says_visible && !(*self.snapshot).takenDuringRecovery && !self.serializable;
        if !sees_all {
            let table = (*self.relation).rd_id;
            let tuples = tuples(copy)
                .map(|(line, start, bytes)| tuple(table, page.add(start), bytes, block, line));
            self.tuples.clear();
            self.tuples.extend(tuples);
            version::keep_visible(&mut self.tuples, self.relation, self.snapshot, buffer);
            self.lines.clear();
            self.lines.extend(self.tuples.iter().map(|tuple| tuple.t_self.ip_posid));
            keep_lines(copy, &self.lines);
        }
        pg_sys::UnlockReleaseBuffer(buffer);
    }

    /// Row by row, with whatever PostgreSQL can read: values that lie elsewhere, and those that turn
    /// out to have no counterpart.
    unsafe fn read_slowly(&mut self, block: BlockNumber) -> Result<(), WhyNot> {
        let descriptor = (*self.relation).rd_att;
        let width = (*descriptor).natts as usize;
        let (mut values, mut nulls) = (vec![Datum::from(0); width], vec![false; width]);
        let context = pgrx::PgMemoryContexts::new("headrace rows");
        let all: Vec<_> = tuples(&self.page.0).collect();
        for (line, start, bytes) in all {
            let start = self.page.0.as_mut_ptr().add(start);
            let mut tuple = tuple((*self.relation).rd_id, start, bytes, block, line);
            pg_sys::heap_deform_tuple(
                &mut tuple,
                descriptor,
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
            let outer = pg_sys::MemoryContextSwitchTo(context.value());
            let mut pushed = Ok(());
            for (column, wanted) in self.wanted.iter().enumerate() {
                let &Wanted { attribute, of, shows, ref query } = wanted;
                let value = (!nulls[attribute]).then(|| values[attribute]);
                pushed = pushed.and_then(|()| check_digits(value, shows));
                let query = query.as_ref();
                pushed = pushed.and_then(|()| self.rows.push_asked(column, value, of, query));
            }
            if pushed.is_err() {
                self.remember(&values, &nulls);
            }
            pg_sys::MemoryContextSwitchTo(outer);
            pg_sys::MemoryContextReset(context.value());
            pushed?;
            self.rows.end_row();
        }
        Ok(())
    }

    /// Numbers of a row of which one was not as it was taken for granted.
    unsafe fn remember(&self, values: &[Datum], nulls: &[bool]) {
        let table = (*self.relation).rd_id;
        for &Wanted { attribute, of, .. } in &self.wanted {
            if of == pg_sys::NUMERICOID && !nulls[attribute] {
                meet(table, attribute as i16 + 1, values[attribute]);
            }
        }
    }

    /// The rows so far, if they are enough for a batch, or wanted however few they are.
    pub fn batches(&mut self, wants_all: bool) -> Result<Vec<RecordBatch>, WhyNot> {
        let enough = if wants_all { 1 } else { BATCH_ROWS };
        let mut batches = Vec::new();
        if self.decoder.rows() >= enough {
            batches.push(self.decoder.finish().map_err(|error| WhyNot(error.to_string()))?);
        }
        if self.rows.len() >= enough {
            batches.push(self.rows.finish()?);
        }
        Ok(batches)
    }
}

impl Drop for ServerReader {
    fn drop(&mut self) {
        if !self.strategy.is_null() {
            // SAFETY: made by GetAccessStrategy, freed once; on the way out of an error it is freed
            // before its memory context is.
            unsafe { pg_sys::FreeAccessStrategy(self.strategy) };
            self.strategy = null_mut();
        }
    }
}
