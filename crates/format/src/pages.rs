//! A table whose bytes are no columns yet, for its executors: the rows as columns, or the plan for a device.

use std::sync::Arc;

use arrow_array::RecordBatch;
use headrace_ir::Segment;
use headrace_ir::pages::{HoldAnswer, PagePlan, PageVerdict};

use crate::Result;

/// A segment that must be decoded ([`Segment::is_encoded`]), with its bytes. A decoder takes it from the front.
#[derive(Debug)]
pub struct Encoded<'a> {
    /// The segment.
    pub segment: &'a Segment,
    /// The bytes of its extents, in their order: memory that may be written concurrently if they are pages of a heap.
    pub buffers: &'a [&'a [u8]],
    /// What the decoder has taken, in its own measure; 0 at first.
    pub taken: u64,
}

/// Converts encoded segments to columns; one per thread.
pub trait SegmentDecoder: Send {
    /// Takes as much as fills a batch: the requested columns in register order, about as large as a core's own cache.
    /// Codes of text are those of the table's dictionary.
    /// `None`: all of the segment is taken, and its rows may wait for those of later segments.
    ///
    /// # Errors
    /// Bytes that are no rows, rows that cannot be put into a batch; all of the decoder's work is then void.
    fn next_batch(&mut self, encoded: &mut Encoded<'_>) -> Result<Option<RecordBatch>>;

    /// The waiting rows, if there are any.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch).
    fn rest(&mut self) -> Result<Option<RecordBatch>>;
}

/// The pages of a table for a device, which decodes them by a plan instead of this crate's code,
/// and reports each outcome.
pub trait PageSource: Send + Sync {
    /// The plan.
    ///
    /// # Errors
    /// Why a device cannot do it.
    fn plan(&self) -> std::result::Result<&PagePlan, String>;

    /// The number with which the page at an offset in a file was written, which is part of its
    /// checksum.
    fn first_block(&self, file: u32, offset: u64) -> u32;

    /// Asks which of this many pages of a file, the first at `offset`, are unchanged since they were
    /// listed: after their bytes were copied to private memory, and before they are trusted.
    fn ask(&self, file: u32, offset: u64, pages: usize) -> HoldAnswer;

    /// The outcome of pages of a file, the first at `offset`: reported once for each.
    fn settle(&self, file: u32, offset: u64, verdicts: &[PageVerdict]);

    /// The identity of a file, and the stamp of the segment at `offset`: cached rows of the same segment
    /// under both are still its rows. `None`: caching is not allowed.
    fn stamp(&self, file: u32, offset: u64) -> Option<(Arc<str>, u64)>;

    /// This many pages are not examined: their rows were cached.
    fn kept(&self, pages: usize);
}
