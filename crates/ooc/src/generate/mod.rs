//! Inputs for the operators, generated as fast as storage takes them: a race whose chunks read
//! nothing.
//!
//! The bytes at a position depend on the seed and the position alone, so any number of threads makes the
//! same file, and a longer file begins like a shorter one unless stated otherwise.

mod fill;
mod keys;
mod matrix;
mod rmat;
mod rows;

pub use keys::{KeyOrder, KeysJob, keys};
pub use matrix::{MatrixContent, MatrixJob, MatrixKind, matrix};
pub use rmat::{RmatJob, RmatReport, rmat};
