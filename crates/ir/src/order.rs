//! Orders of rows.

use serde::{Deserialize, Serialize};

/// A column that rows are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OrderKey {
    /// Its place among the output columns.
    pub column: usize,
    /// Whether the largest value comes first.
    pub descending: bool,
    /// Whether NULL comes before all values.
    pub nulls_first: bool,
}
