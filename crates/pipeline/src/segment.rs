//! The streamed table as processors see it: what is known of its columns before it is read,
//! and one segment's buffers in host memory. (`headrace-cuda` has the same with device pointers.)

use std::sync::Arc;

use arrow_array::StringArray;
use headrace_ir::{Encoding, ValueRange};

/// The distinct values of a dictionary-encoded column of a whole table, sorted by bytes, none
/// NULL, none twice. Code `i` stands for `values[i]`, so codes compare as their texts do.
#[derive(Debug)]
pub struct Dictionary {
    /// Values by code.
    pub values: StringArray,
}

/// What is known of one streamed column before reading.
#[derive(Clone, Debug, Default)]
pub struct SourceColumn {
    /// Table-wide dictionary, for dictionary-encoded text.
    pub dictionary: Option<Arc<Dictionary>>,
    /// Bounds of integer-like values over the whole table (not for dictionary codes).
    pub range: Option<ValueRange>,
    /// Whether any NULL occurs, as far as known; `true` when unknown.
    pub may_have_nulls: bool,
}

/// What is known of the streamed table before reading.
#[derive(Clone, Debug, Default)]
pub struct SourceInfo {
    /// One per source register.
    pub columns: Vec<SourceColumn>,
    /// Upper bound of the number of rows that will be streamed.
    pub rows_max: u64,
    /// Code translation tables, file codes to table codes; -1 is NULL. Indexed by
    /// [`headrace_ir::ColumnExtents::remap`].
    pub remaps: Vec<Arc<[i32]>>,
}

/// One column of a segment in host memory.
///
/// Buffers are at least as long as the encoding asks for the segment's rows; a processor
/// checks that and answers [`crate::ExecError::Corrupt`] otherwise. They need not be aligned.
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
    /// One per source register.
    pub columns: Vec<ColumnView<'a>>,
}
