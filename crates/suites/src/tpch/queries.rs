//! The 22 queries, each in its own file: the specification's texts with its validation parameters
//! and numbers of rows. Query 15 has its view as a WITH query, which is one of the variants that
//! the specification approves. The fraction of query 11 is that of scale 1 at every scale.

use crate::{Limit, Query, query::queries};

/// The benchmark's queries in order.
#[rustfmt::skip]
pub static QUERIES: [Query; 22] = queries![
    "01",
    "02" { rows: 100, keys: &[0, 2, 1, 3] },
    "03" { rows: 10, keys: &[1, 2] },
    "04", "05", "06", "07", "08", "09",
    "10" { rows: 20, keys: &[2] },
    "11", "12", "13", "14", "15", "16", "17",
    "18" { rows: 100, keys: &[4, 3] },
    "19", "20",
    "21" { rows: 100, keys: &[1, 0] },
    "22",
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::query::tests::statement;

    #[test]
    fn every_query_is_one_statement_with_its_limit() {
        for (query, number) in QUERIES.iter().zip(1..) {
            assert_eq!(query.id, format!("{number}"));
            statement(query);
            let limit =
                query.sql.trim_end().rsplit_once("\nlimit ").map(|(_, n)| n.parse().unwrap());
            assert_eq!(limit, query.limit.map(|limit| limit.rows), "{}", query.id);
        }
    }
}
