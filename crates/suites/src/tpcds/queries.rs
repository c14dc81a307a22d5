//! The 99 queries, each in its own file: the specification's texts with its qualification parameters, which are those
//! of scale 1. They ask what the published ones ask, in words that more systems understand:
//!
//! - Of the four queries with two statements (14, 23, 24, 39) it is the first.
//! - Every order is total: tie-breaking columns follow the published ones, and a descending order
//!   states the place of NULLs, which come last.
//! - Answers of one row (28, 32, 38, 97) have no LIMIT. Output names are words without spaces. Days are added as
//!   intervals.
//! - Ranks of subtotals (36, 70, 86) are computed over a query that has computed the subtotals.
//! - A division by 0, at a small scale, is NULL (2, 12, 20, 36, 59, 98). Quotients that are ordered by
//!   (36) or summed (66) are floats, since systems differ in the digits of decimal ones.
//! - Standard deviations (17, 39) are rounded to six digits: the last ones depend on the order of rows.

use crate::{Query, query::queries};

/// The benchmark's queries in order.
#[rustfmt::skip]
pub static QUERIES: [Query; 99] = queries![
    "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12", "13", "14", "15",
    "16", "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30",
    "31", "32", "33", "34", "35", "36", "37", "38", "39", "40", "41", "42", "43", "44", "45",
    "46", "47", "48", "49", "50", "51", "52", "53", "54", "55", "56", "57", "58", "59", "60",
    "61", "62", "63", "64", "65", "66", "67", "68", "69", "70", "71", "72", "73", "74", "75",
    "76", "77", "78", "79", "80", "81", "82", "83", "84", "85", "86", "87", "88", "89", "90",
    "91", "92", "93", "94", "95", "96", "97", "98", "99",
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_query_is_one_statement_and_what_is_limited_is_ordered() {
        crate::query::tests::check_ordered(&super::QUERIES, 1);
    }
}
