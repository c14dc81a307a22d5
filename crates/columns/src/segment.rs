//! One segment's buffers in host memory. (`headrace-cuda` has the same with device pointers.)

use headrace_ir::Encoding;

/// One column of a segment in host memory.
///
/// Buffers are at least as long as the encoding asks for the segment's rows; readers
/// check that and return [`crate::ColumnError::Corrupt`] otherwise. They need not be aligned.
#[derive(Clone, Debug)]
pub struct ColumnView<'a> {
    /// How the values lie.
    pub encoding: Encoding,
    /// Values, codes, bits or text bytes.
    pub values: &'a [u8],
    /// `rows + 1` offsets into `values`.
    pub offsets: Option<&'a [u8]>,
    /// What the offsets call the first byte of `values`.
    pub offsets_base: u64,
    /// Validity bits from bit 0; `None`: no NULLs.
    pub validity: Option<&'a [u8]>,
    /// Code translation.
    pub remap: Option<&'a [i32]>,
}

/// A row range of the streamed table in host memory.
#[derive(Clone, Debug)]
pub struct SegmentView<'a> {
    /// Number of rows.
    pub rows: usize,
    /// One per column that was asked for.
    pub columns: Vec<ColumnView<'a>>,
}
