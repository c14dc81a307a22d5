//! What a table of rows in pages gives to whoever executes: its pages' rows as columns.

use arrow_array::RecordBatch;

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
