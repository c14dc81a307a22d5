//! What a table of rows in pages gives to whoever executes: its pages' rows as columns, or how a
//! device makes them.

use std::sync::Arc;

use arrow_array::RecordBatch;
use headrace_ir::pages::{HoldAnswer, PagePlan, PageVerdict};

use crate::Result;

/// Pages of a file, as a segment of [`Encoding::Pages`](headrace_ir::Encoding::Pages) has them, in
/// memory that somebody else may write to meanwhile. A decoder takes them from the front.
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a> {
    /// Number of the file, as [`Segment::file`](headrace_ir::Segment::file).
    pub file: u32,
    /// Of the first byte in the file.
    pub offset: u64,
    /// Those that are left.
    pub bytes: &'a [u8],
}

/// Makes columns of the rows in pages; one for each thread that does.
pub trait PageDecoder: Send {
    /// Takes pages until their rows are worth a batch: columns as asked for, in register order, and
    /// about as large as a core's own cache. `None`: all pages are taken, and rows of them may wait
    /// for those of others.
    ///
    /// # Errors
    /// Rows that cannot be put into a batch; none of the decoder's work counts then.
    fn next_batch(&mut self, pages: &mut Pages<'_>) -> Result<Option<RecordBatch>>;

    /// The rows that wait, if there are any.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch).
    fn rest(&mut self) -> Result<Option<RecordBatch>>;
}

/// The pages of a table for whoever takes them apart on a device, by a plan and not by this crate's
/// code, and says what came of each.
pub trait PageSource: Send + Sync {
    /// How.
    ///
    /// # Errors
    /// Why a device cannot do it.
    fn plan(&self) -> std::result::Result<&PagePlan, String>;

    /// The number by which the page at an offset in a file was written, which is in its checksum.
    fn first_block(&self, file: u32, offset: u64) -> u32;

    /// Asks which of so many pages of a file, the first at `offset`, are still what they were when they
    /// were listed: once their bytes were copied to where nobody else writes, and before they are
    /// believed.
    fn ask(&self, file: u32, offset: u64, pages: usize) -> HoldAnswer;

    /// What came of pages of a file, the first at `offset`: told once of each.
    fn settle(&self, file: u32, offset: u64, verdicts: &[PageVerdict]);

    /// What tells a file from others, and the stamp of the segment at `offset`: rows of the same segment
    /// that somebody kept under both are its rows now. `None`: nobody may keep any.
    fn stamp(&self, file: u32, offset: u64) -> Option<(Arc<str>, u64)>;

    /// So many pages are not looked at: their rows were kept.
    fn kept(&self, pages: usize);
}
