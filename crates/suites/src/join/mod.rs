//! One large table joined with a small one, and grouped: what demonstrations of SQL on GPUs begin with.
//!
//! # Tables
//!
//! `t0` has round(100,000,000·S) rows, `t1` 100,000. Nothing is NULL.
//!
//! | column | type | values |
//! |---|---|---|
//! | t0.id | Int64 | 0, 1, .. |
//! | t0.cat | Dictionary(Int8, Utf8) | 26: `aaa` to `zzz`, uniform |
//! | t0.aid | Int32 | 1..=100,000, uniform: every row finds one of t1 |
//! | t0.bx | Float64 | 0..1 |
//! | t1.aid | Int32 | 1..=100,000 |
//! | t1.atext | Utf8 | 16 hexadecimal digits |
//! | t1.ax | Int32 | 0..1,000,000, uniform; integers, so that averages are the same in any order of rows |
//!
//! A value depends on the seed, its column and its row. A row of t0 takes 21 bytes; the query needs 5 of them.

mod tables;

pub use tables::ROWS_PER_SCALE;
pub(crate) use tables::tables;

use crate::{Query, query::queries};

/// Version of the generated data; changes with any change of a value, a type or an encoding.
pub const DATA_VERSION: u32 = 1;

/// The query: how many rows of each category, and the average of what they find.
pub static QUERIES: [Query; 1] = queries!["1"];

#[cfg(test)]
mod tests {
    use crate::query::tests::check_ordered;

    #[test]
    fn queries_are_numbered_and_ordered() {
        check_ordered(&super::QUERIES, 1);
    }
}
