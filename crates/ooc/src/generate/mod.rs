//! Inputs for the operators, generated as fast as storage takes them: a race whose chunks read
//! nothing.
//!
//! The bytes at a position depend on the seed and the position alone, so any number of threads makes the
//! same file, and a longer file begins like a shorter one unless stated otherwise.

mod fill;
mod keys;
mod matrix;

pub use keys::{KeyOrder, KeysJob, keys};
pub use matrix::{MatrixContent, MatrixJob, MatrixKind, matrix};

/// A well-mixed function of a seed and a position (splitmix64: Steele, Lea, Flood 2014).
pub(crate) fn mixed(seed: u64, place: u64) -> u64 {
    let mut z = seed.wrapping_add(place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
