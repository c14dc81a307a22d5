//! Blocks through shared buffers, with a snapshot.

use std::mem::zeroed;
use std::ptr::null_mut;

use arrow_array::RecordBatch;
use headrace_format::heap::{Decoder, Relation as Description, Reroute};
use pgrx::pg_sys::{self, BlockNumber, Datum, HeapTupleData, Relation, Snapshot};

use crate::datum::Rows;
use crate::nodes::{WhyNot, why_not};
use crate::version;

const PAGE_BYTES: usize = pg_sys::BLCKSZ as usize;
/// Rows of a batch, more or less.
const BATCH_ROWS: usize = 16 << 10;

/// A page of one's own, aligned as tuples in it must be.
#[repr(align(8))]
struct Page([u8; PAGE_BYTES]);

/// Reads blocks as a sequential scan does.
pub struct ServerReader {
    relation: Relation,
    snapshot: Snapshot,
    strategy: pg_sys::BufferAccessStrategy,
    decoder: Decoder,
    /// Values that only the server can read.
    rows: Rows,
    /// Attributes of the columns, and their types.
    attributes: Vec<(usize, pg_sys::Oid)>,
    page: Box<Page>,
    lines: Vec<u16>,
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
        Ok(Self {
            relation,
            snapshot,
            strategy: pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD),
            rows: Rows::new(decoder.schema())?,
            decoder,
            attributes: wanted.iter().map(|&index| (index, types[index].atttypid)).collect(),
            page: Box::new(Page([0; PAGE_BYTES])),
            lines: Vec::new(),
            slow_blocks: 0,
        })
    }

    /// Takes the rows of a block that the snapshot sees.
    pub unsafe fn read(&mut self, block: BlockNumber) -> Result<(), WhyNot> {
        self.copy_visible(block);
        match self.decoder.decode_lines(&self.page.0, &self.lines) {
            Ok(_) => Ok(()),
            Err(Reroute::BatchFull { .. }) => why_not("a block whose texts take more than 2 GiB"),
            Err(_) => {
                self.slow_blocks += 1;
                self.read_slowly(block)
            }
        }
    }

    /// Copies a page, and notes which of its tuples the snapshot sees.
    unsafe fn copy_visible(&mut self, block: BlockNumber) {
        let buffer = pg_sys::ReadBufferExtended(
            self.relation,
            pg_sys::ForkNumber::MAIN_FORKNUM,
            block,
            pg_sys::ReadBufferMode::RBM_NORMAL,
            self.strategy,
        );
        pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE as i32);
        let page = pg_sys::BufferGetPage(buffer);
        self.lines.clear();
        let flags = (*page.cast::<pg_sys::PageHeaderData>()).pd_flags;
        let says_visible = u32::from(flags) & pg_sys::PD_ALL_VISIBLE != 0;
        let is_visible = says_visible && !(*self.snapshot).takenDuringRecovery;
        for line in 1..=pg_sys::PageGetMaxOffsetNumber(page) {
            let pointer = pg_sys::PageGetItemId(page, line);
            if (*pointer).lp_flags() != pg_sys::LP_NORMAL {
                continue;
            }
            let mut tuple = self.tuple(page.cast(), pointer, block, line);
            let is_seen = is_visible
                || pg_sys::HeapTupleSatisfiesVisibility(&mut tuple, self.snapshot, buffer);
            pg_sys::HeapCheckForSerializableConflictOut(
                is_seen,
                self.relation,
                &mut tuple,
                buffer,
                self.snapshot,
            );
            if is_seen {
                self.lines.push(line);
            }
        }
        // Both have a page's bytes; the buffer is pinned and locked.
        std::ptr::copy_nonoverlapping(page.cast::<u8>(), self.page.0.as_mut_ptr(), PAGE_BYTES);
        pg_sys::UnlockReleaseBuffer(buffer);
    }

    unsafe fn tuple(
        &self,
        page: *mut u8,
        pointer: *const pg_sys::ItemIdData,
        block: BlockNumber,
        line: u16,
    ) -> HeapTupleData {
        let mut tuple: HeapTupleData = zeroed();
        tuple.t_tableOid = (*self.relation).rd_id;
        tuple.t_data = page.add((*pointer).lp_off() as usize).cast();
        tuple.t_len = (*pointer).lp_len();
        let (bi_hi, bi_lo) = ((block >> 16) as u16, block as u16);
        let ip_blkid = pg_sys::BlockIdData { bi_hi, bi_lo };
        tuple.t_self = pg_sys::ItemPointerData { ip_blkid, ip_posid: line };
        tuple
    }

    /// Row by row, with whatever PostgreSQL can read: values that lie elsewhere, and those that turn
    /// out to have no counterpart.
    unsafe fn read_slowly(&mut self, block: BlockNumber) -> Result<(), WhyNot> {
        let descriptor = (*self.relation).rd_att;
        let width = (*descriptor).natts as usize;
        let (mut values, mut nulls) = (vec![Datum::from(0); width], vec![false; width]);
        let context = pgrx::PgMemoryContexts::new("headrace rows");
        for line in std::mem::take(&mut self.lines) {
            let page = self.page.0.as_mut_ptr();
            let pointer = pg_sys::PageGetItemId(page.cast(), line);
            let mut tuple = self.tuple(page, pointer, block, line);
            pg_sys::heap_deform_tuple(
                &mut tuple,
                descriptor,
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
            let outer = pg_sys::MemoryContextSwitchTo(context.value());
            let mut pushed = Ok(());
            for (column, &(attribute, of)) in self.attributes.iter().enumerate() {
                let value = (!nulls[attribute]).then(|| values[attribute]);
                pushed = pushed.and_then(|()| self.rows.push(column, value, of));
            }
            pg_sys::MemoryContextSwitchTo(outer);
            pg_sys::MemoryContextReset(context.value());
            pushed?;
            self.rows.end_row();
        }
        Ok(())
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
