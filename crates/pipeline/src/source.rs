//! The streamed table as binding sees it: what is known of its columns before it is read.

use std::sync::Arc;

use headrace_columns::repr::Dictionary;
use headrace_ir::ValueRange;

use crate::WhyNot;

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

impl SourceColumn {
    /// What is known of a column whose values are those of this one and of another.
    ///
    /// # Errors
    /// Their texts are of several dictionaries.
    pub fn with(&self, other: &Self) -> Result<Self, WhyNot> {
        let range = |a: ValueRange, b: ValueRange| ValueRange {
            min: a.min.min(b.min),
            max: a.max.max(b.max),
        };
        let is_same = match (&self.dictionary, &other.dictionary) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other) || own.values == other.values,
            _ => false,
        };
        if !is_same {
            return Err(WhyNot::new("texts of several dictionaries"));
        }
        Ok(Self {
            dictionary: self.dictionary.clone(),
            range: self.range.zip(other.range).map(|(own, other)| range(own, other)),
            may_have_nulls: self.may_have_nulls || other.may_have_nulls,
        })
    }
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
