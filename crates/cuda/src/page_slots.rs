//! What a device has for the pages that a race brings: the kernel, and for each slot the verdicts on
//! its chunk's pages and the columns that they become.

use std::sync::Arc;

use headrace_flow::DeviceSlice;
use headrace_gpu::{DeviceBuffer, Function, Grid, Stream};
use headrace_io::Kept;
use headrace_ir::Segment;
use headrace_ir::pages::{HoldAnswer, PageVerdict};
use headrace_pipeline::ExecError;

use crate::decode::chunks;
use crate::device::CudaDevice;
use crate::error::CudaError;
use crate::pages::{
    ColumnPlaces, NOT_TAKEN, PAGE_BLOCK_THREADS, PAGE_ENTRY_BYTES, PAGE_VERDICT_BYTES,
    PAGES_KERNEL_NAME, PageColumn, PageDecoding, PageOwner, PagePass, bitmap_bytes, page_entry,
    page_verdict, pages_source, set_first_row,
};
use crate::pinned::PinnedLease;
use crate::program::{DeviceColumn, DeviceSegment};
use crate::resident::PagesKey;
use crate::words::{queue_words, word_bytes};

/// The rows of a segment begin at a multiple of this, so that bitmaps begin at one of 16 bytes.
const SEGMENT_ALIGN_ROWS: u32 = 128;

/// The pages of a segment on the device.
pub(crate) struct PageRun {
    pub segment: Segment,
    pub bytes: DeviceSlice,
    /// Under what its columns may stay.
    pub key: Option<PagesKey>,
}

/// The rows of a segment's pages as columns.
pub(crate) struct DecodedPages {
    pub segment: DeviceSegment,
    /// As the run's, if every page was taken.
    pub key: Option<PagesKey>,
}

/// Pages of a race on one device.
pub(crate) struct PageSlots {
    decoding: PageDecoding,
    owner: Arc<dyn PageOwner>,
    device: Arc<CudaDevice>,
    function: Function,
    steps: Arc<Kept<DeviceBuffer>>,
    places: ColumnPlaces,
    /// Of a chunk, at most.
    pages_max: usize,
    rows_max: u64,
    slots: Vec<PageSlot>,
}

/// Of one slot.
struct PageSlot {
    /// The table of pages, which the kernel reads there, then verdicts that came back.
    control_host: PinnedLease,
    verdicts: DeviceBuffer,
    /// Addresses of the columns, for the kernel.
    column_table: Arc<Kept<DeviceBuffer>>,
    columns: DeviceBuffer,
    /// Runs of the chunk that is looked at, and what their owner was asked when they came.
    runs: Vec<PageRun>,
    answers: Vec<HoldAnswer>,
}

impl PageSlots {
    /// For chunks of up to `slot_bytes` bytes and `segments_max` segments in `slots` slots. All memory is
    /// taken now: a race that has begun to read rows which come once cannot be given to the CPU any more.
    ///
    /// # Errors
    /// [`CudaError`] when pinned or device memory is lacking, or the kernel does not load.
    pub(crate) fn new(
        device: &Arc<CudaDevice>,
        decoding: PageDecoding,
        owner: Arc<dyn PageOwner>,
        (slots, slot_bytes, segments_max): (usize, usize, usize),
    ) -> Result<Self, CudaError> {
        let pages_max = slot_bytes / decoding.block_bytes();
        let gaps = segments_max as u64 * u64::from(SEGMENT_ALIGN_ROWS);
        let rows_max = pages_max as u64 * decoding.rows_max() + gaps;
        let mut pages = Self {
            owner,
            device: Arc::clone(device),
            function: device.function(&pages_source(), PAGES_KERNEL_NAME)?,
            steps: device.upload(&word_bytes(decoding.words()))?,
            places: decoding.places(rows_max),
            pages_max,
            rows_max,
            decoding,
            slots: Vec::with_capacity(slots),
        };
        for _ in 0..slots {
            let slot = pages.slot()?;
            pages.slots.push(slot);
        }
        Ok(pages)
    }

    fn slot(&self) -> Result<PageSlot, CudaError> {
        let verdict_bytes = self.pages_max * PAGE_VERDICT_BYTES;
        let control_bytes = self.pages_max * PAGE_ENTRY_BYTES + verdict_bytes;
        let columns = self.device.alloc(self.places.bytes as usize)?;
        let address = |at: u64| columns.ptr() + at;
        let table = self.places.columns.iter();
        let table: Vec<u64> = table
            .flat_map(|(values, validity)| [address(*values), validity.map_or(0, address)])
            .collect();
        Ok(PageSlot {
            control_host: PinnedLease::take(&self.device, control_bytes)?,
            verdicts: self.device.alloc(verdict_bytes)?,
            column_table: self.device.upload(&word_bytes(&table))?,
            columns,
            runs: Vec::new(),
            answers: Vec::new(),
        })
    }

    /// Queues the kernel that looks at all pages of a chunk, and the copy of its verdicts.
    ///
    /// # Errors
    /// [`ExecError::Internal`] for more pages than a slot has, [`CudaError::Gpu`].
    ///
    /// # Safety
    /// The runs' bytes must lie in device memory that is complete, unchanged and ordered with the
    /// stream from now until the columns of the slot's chunk are written; nothing that was queued for
    /// the slot's last chunk may be left to do.
    pub(crate) unsafe fn check(
        &mut self,
        stream: &Stream,
        slot: usize,
        runs: Vec<PageRun>,
    ) -> Result<(), CudaError> {
        let block_bytes = self.decoding.block_bytes();
        let is_whole = |run: &PageRun| run.bytes.bytes.is_multiple_of(block_bytes);
        let pages: usize = runs.iter().map(|run| run.bytes.bytes / block_bytes).sum();
        if pages > self.pages_max || !runs.iter().all(is_whole) {
            let what = format!("{pages} pages in a slot for {}, or parts of pages", self.pages_max);
            return Err(ExecError::Internal(what).into());
        }
        let ask = |run: &PageRun| self.owner.ask(&run.segment, run.bytes.bytes / block_bytes);
        self.slots[slot].answers = runs.iter().map(ask).collect();
        self.slots[slot].runs = runs;
        self.fill_table(slot);
        let verdicts = self.slots[slot].verdicts.ptr();
        // SAFETY: the slot's control memory is its own and is touched again when this is done; the
        // bytes are the caller's promise.
        unsafe {
            self.launch(stream, slot, pages, PagePass::Check(verdicts))?;
            let at = self.pages_max * PAGE_ENTRY_BYTES;
            let slot = &mut self.slots[slot];
            let to = &mut slot.control_host.as_mut_slice()[at..at + pages * PAGE_VERDICT_BYTES];
            stream.copy_d2h_async(&slot.verdicts, 0, to)?;
        }
        Ok(())
    }

    /// Takes the verdicts that came back and the owner's word on which pages hold, tells it what became
    /// of each, and queues the kernel that writes the columns of those that are taken.
    ///
    /// # Errors
    /// [`CudaError::Gpu`], [`ExecError::Internal`] for more rows than there can be.
    ///
    /// # Safety
    /// As [`check`](Self::check), whose work must be done.
    pub(crate) unsafe fn decode(
        &mut self,
        stream: &Stream,
        slot: usize,
        registers: usize,
    ) -> Result<Vec<DecodedPages>, CudaError> {
        let Settled { runs, first_rows, end } = self.settle(slot);
        if u64::from(end) > self.rows_max {
            let rows_max = self.rows_max;
            return Err(
                ExecError::Internal(format!("{end} rows of pages where {rows_max} fit")).into()
            );
        }
        if end > 0 && !self.decoding.columns().is_empty() {
            self.write_first_rows(slot, &first_rows);
            let state = &self.slots[slot];
            let (bitmap_bytes, table) =
                (self.places.bitmap_bytes as usize, state.column_table.ptr());
            // SAFETY: as above; the columns were read by the kernel of the slot's last chunk, which
            // is done.
            unsafe {
                stream.fill_async(&state.columns, 0, bitmap_bytes, 0)?;
                self.launch(stream, slot, first_rows.len(), PagePass::Decode(table))?;
            }
        }
        let decoded = runs.into_iter().filter(|run| run.rows > 0).map(|run| DecodedPages {
            segment: self.segment(slot, (run.first_row, run.rows), registers),
            key: run.key,
        });
        Ok(decoded.collect())
    }

    /// Goes over the verdicts on the pages of a slot, the owner's word included, and tells it.
    fn settle(&mut self, slot: usize) -> Settled {
        let block_bytes = self.decoding.block_bytes();
        let PageSlot { runs, answers, control_host, .. } = &mut self.slots[slot];
        let control = &control_host.as_slice()[self.pages_max * PAGE_ENTRY_BYTES..];
        let mut told = chunks::<PAGE_VERDICT_BYTES>(control).map(page_verdict);
        let (mut verdicts, mut first_rows) = (Vec::new(), Vec::with_capacity(self.pages_max));
        let (mut settled, mut end) = (Vec::with_capacity(runs.len()), 0_u32);
        for (PageRun { segment, bytes, key }, answer) in runs.drain(..).zip(answers.drain(..)) {
            let pages = bytes.bytes / block_bytes;
            // Pages that the answer does not speak of do not hold.
            let holds = answer().into_iter().chain(std::iter::repeat(false)).take(pages);
            let first_row = end.next_multiple_of(SEGMENT_ALIGN_ROWS);
            end = first_row;
            verdicts.clear();
            let mut all_taken = true;
            // In this order: the verdicts go on behind the segment's last.
            for (holds, verdict) in holds.zip(told.by_ref()) {
                let verdict = if holds { verdict } else { PageVerdict::Changed };
                let rows = if let PageVerdict::Rows(rows) = verdict { rows } else { 0 };
                all_taken &= matches!(verdict, PageVerdict::Rows(_));
                first_rows.push(if rows > 0 { end } else { NOT_TAKEN });
                end += rows;
                verdicts.push(verdict);
            }
            self.owner.settle(&segment, &verdicts);
            let key = key.filter(|_| all_taken);
            settled.push(SettledRun { first_row, rows: end - first_row, key });
        }
        Settled { runs: settled, first_rows, end }
    }

    /// Names the first rows of the pages in a slot's table.
    fn write_first_rows(&mut self, slot: usize, first_rows: &[u32]) {
        let table = self.slots[slot].control_host.as_mut_slice().as_chunks_mut().0;
        for (entry, &first_row) in table.iter_mut().zip(first_rows) {
            set_first_row(entry, first_row);
        }
    }

    /// Writes the table of a slot's pages, none of which is taken yet.
    fn fill_table(&mut self, slot: usize) {
        let block_bytes = self.decoding.block_bytes();
        let PageSlot { runs, control_host, .. } = &mut self.slots[slot];
        let mut entries = control_host.as_mut_slice().as_chunks_mut().0.iter_mut();
        for PageRun { segment, bytes, .. } in runs {
            let first_block = self.owner.first_block(segment);
            let addresses = (bytes.address..).step_by(block_bytes);
            let blocks = (first_block..).zip(addresses).take(bytes.bytes / block_bytes);
            for ((block, address), entry) in blocks.zip(&mut entries) {
                *entry = page_entry(address, block, NOT_TAKEN);
            }
        }
    }

    /// Queues the kernel over the pages in a slot's table.
    ///
    /// # Safety
    /// As [`check`](Self::check), for what the table names.
    unsafe fn launch(
        &self,
        stream: &Stream,
        slot: usize,
        pages: usize,
        pass: PagePass,
    ) -> Result<(), CudaError> {
        if pages == 0 {
            return Ok(());
        }
        let at = (self.slots[slot].control_host.device_address(), pages as u32);
        let params = self.decoding.params(at, self.steps.ptr(), pass);
        let grid = Grid {
            blocks: pages as u32,
            threads: PAGE_BLOCK_THREADS,
            shared_bytes: self.decoding.shared_bytes(),
        };
        // SAFETY: the struct is filled field by field as `pages.cu` declares it; steps, tables,
        // verdicts and columns are this value's and large enough for all pages of a slot, each with
        // at most the rows that the kernel checks; the table is written again when this is done; the
        // pages are the caller's promise.
        unsafe { queue_words(&self.function, stream, grid, &params) }
    }

    /// The columns of a slot's rows from `first_row` on as a segment.
    fn segment(
        &self,
        slot: usize,
        (first_row, rows): (u32, u32),
        registers: usize,
    ) -> DeviceSegment {
        let base = self.slots[slot].columns.ptr();
        let mut columns = vec![DeviceColumn::default(); registers];
        for (column, (values, validity)) in self.decoding.columns().iter().zip(&self.places.columns)
        {
            columns[column.register] = DeviceColumn {
                values: base + values + column.values_bytes(first_row),
                form: column.form,
                validity: validity.map(|at| base + at + bitmap_bytes(first_row)),
                ..DeviceColumn::default()
            };
        }
        DeviceSegment { rows, columns }
    }

    /// The columns.
    pub(crate) fn columns(&self) -> &[PageColumn] {
        self.decoding.columns()
    }

    /// Says that the rows of a segment's pages come from what the device kept.
    pub(crate) fn kept(&self, segment: &Segment, rows: u32) {
        let bytes = segment.columns.first().map_or(0, |column| column.values.bytes);
        self.owner.kept(bytes as usize / self.decoding.block_bytes(), rows);
    }
}

/// What the verdicts on a slot's pages come to.
struct Settled {
    runs: Vec<SettledRun>,
    /// By page: its first row, or [`NOT_TAKEN`].
    first_rows: Vec<u32>,
    /// Behind the last row.
    end: u32,
}

struct SettledRun {
    first_row: u32,
    rows: u32,
    key: Option<PagesKey>,
}
