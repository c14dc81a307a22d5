//! The streamed table as binding sees it: what is known of its columns before it is read.

use std::sync::Arc;

use headrace_columns::repr::Dictionary;
use headrace_ir::ValueRange;

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
