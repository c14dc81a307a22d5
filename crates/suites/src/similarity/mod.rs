//! Similarity search: compounds with fingerprints of 1,024 bits, embeddings of 64 floats, and queries for the nearest.
//!
//! The rows are random; what a search costs depends on their number and width alone. Compounds come in families, so that
//! the nearest ones of a query are nearer than chance.
//!
//! # Tables
//!
//! `compound` and `embedding` have round(1,000,000·S) rows each. Nothing is NULL.
//!
//! | column | type | values |
//! |---|---|---|
//! | compound.id, embedding.id | Int64 | 0, 1, .. |
//! | compound.family | Int32 | of 1 + N/256 families |
//! | compound.fp | FixedSizeBinary(128) | up to 32 bits of its family, each left out of one in four, and up to 24 of its own |
//! | embedding.v | FixedSizeList(Float32, 64) | its family's floats in -1..1, and a quarter of its own |
//!
//! A value depends on the seed, its column and its row, or its row's family.

mod tables;

pub(crate) use tables::tables;

use crate::{Query, query::queries};

/// Version of the generated data; changes with any change of a value, a type or an encoding.
pub const DATA_VERSION: u32 = 1;

/// The queries. Those for the nearest search for row 42 of the table itself; the last one for the first twenty rows.
///
/// 1. the ten nearest by Tanimoto
/// 2. the ten nearest by Hamming distance
/// 3. how many are alike
/// 4. a histogram of likeness
/// 5. the ten nearest by Euclidean distance
/// 6. the ten nearest by cosine distance
/// 7. the ten of the largest dot product with a constant
/// 8. likeness by family, of the families that are most alike
/// 9. of each of twenty, how near the nearest other one is
pub static QUERIES: [Query; 9] = queries!["1", "2", "3", "4", "5", "6", "7", "8", "9"];

#[cfg(test)]
mod tests {
    use crate::query::tests::check_ordered;

    #[test]
    fn queries_are_numbered_and_ordered() {
        check_ordered(&super::QUERIES, 1);
    }
}
