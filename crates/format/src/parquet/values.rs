//! What the readers of all types have in common.

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::ArrowError;
use headrace_ir::Encoding;

use super::bad::Bad;

/// What makes an array of the values of pages.
pub(super) trait Values: Send {
    /// A column chunk begins, of which no dictionary is known.
    fn begin(&mut self);

    /// From here on codes are of this dictionary.
    fn set_dictionary(&mut self, page: &[u8], values: usize) -> Result<(), Bad>;

    /// A page whose values, at most so many, begin at a byte.
    fn begin_page(
        &mut self,
        encoding: i32,
        page: &[u8],
        at: usize,
        values: usize,
    ) -> Result<(), Bad>;

    /// Appends the next values of the page.
    fn append(&mut self, page: &[u8], count: usize) -> Result<(), Bad>;

    fn append_nulls(&mut self, count: usize);

    /// Moves the last `there` values to the rows whose level is 1, which all end at the last of the levels.
    fn spread(&mut self, levels: &[u32], there: usize);

    fn clear(&mut self);

    /// Bytes that were appended, and of the longest value of the dictionary; none where all values have one width.
    fn text_bytes(&self) -> (usize, usize) {
        (0, 0)
    }

    /// Moves all that was appended to where the values from a row on lie in a plain column; text has no place there.
    fn put(&mut self, encoding: &Encoding, row: usize, into: &mut [u8]) -> Result<(), Bad>;

    /// The array of all that was appended since the last one.
    fn finish(&mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError>;
}
