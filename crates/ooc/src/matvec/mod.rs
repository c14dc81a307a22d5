//! The product of a dense matrix in a file with vectors, and with its transpose, in one pass over the file.
//!
//! ```text
//!  matrix file ─► Plan: chunks, bands, spans ─► Feed (in turn) ─► Race ─┬─ cores: Multiplier ─► sums ─► Gather ─┐
//!  (.npy, raw, Arrow)                               ▲                   └─ GPU                                   │
//!                                                   └─────────── Turns: sums are added in order ◄────────────────┤
//!  x (.npy, raw) ─► Vectors in binary64 ───────────────────────────────► both                   y, whole or not ◄┘
//! ```
//!
//! * Both processors sum in binary64, whatever the matrix is stored as; the result is rounded once, to binary32, or not
//!   at all ([`MatvecJob::result`]). With `n` terms of a sum and `u = 2^-53`, a result differs from the exact one by no
//!   more than `(n + 1) u / (1 - (n + 1) u)` times the sum of the terms' magnitudes, before it is rounded. Products of
//!   binary32 and bf16 values with such vectors are exact, and lanes, spans and bands make the number of additions per
//!   term far smaller than `n`. Infinities and NaN propagate as in IEEE 754.
//! * The result has the same bits for any number of threads, any order in which chunks arrive and any chunk size (see
//!   `plan`); for an Arrow file, which can only be cut at its record batches, for the same chunk size. Only the sums
//!   of a bounded number of chunks wait for their turn (`turns`). CPU and GPU differ within the bound.
//! * The host memory limit covers everything, reserved before allocation: vectors and results in binary64, the sums
//!   of chunks in flight, slots. The largest single demand is a chunk's sums, 8 bytes for each row and 16 KiB of it,
//!   and for each column and 64 rows.
//! * A one-dimensional matrix is a single row. A file in Fortran order, like a table's columns, holds the transpose,
//!   so the other product is computed.

mod columns;
mod cores;
mod device;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod emulated;
mod file;
mod iterate;
mod lanes;
mod launches;
mod matrix;
mod multiply;
mod pass;
mod plan;
mod sums;
mod turns;

use std::path::PathBuf;

use headrace_flow::HostMemory;
use serde::Serialize;

pub(crate) use cores::Operands;
pub use file::{MatrixFile, RawMatrix};
pub use iterate::{IterateJob, IterateReport, Iteration, iterate};
pub(crate) use matrix::Matrix;
pub use multiply::multiply;
pub(crate) use pass::{Manner, Passes};

pub use crate::vectors::{RawVectors, VectorFile};
use crate::{NumberType, Report};

/// The source of the kernels for values of a type, for tests that compile all kernels.
pub fn kernels(number: NumberType) -> String {
    launches::source(number)
}

/// The multiplication to run.
#[derive(Debug, Clone)]
pub struct MatvecJob {
    /// The matrix `A`.
    pub matrix: MatrixFile,
    /// `y = A x`.
    pub product: Option<Product>,
    /// `y = Aᵀ x`, in the same pass.
    pub transposed: Option<Product>,
    /// Type of the results, `f32` or `f64`; `None`: `f64` if the matrix or the vector has it, else `f32`.
    pub result: Option<NumberType>,
    /// Host memory of a GPU's slots.
    pub memory: HostMemory,
}

/// A product: the input vectors, and the destination of the result.
#[derive(Debug, Clone)]
pub struct Product {
    /// One vector or several.
    pub x: VectorFile,
    /// The result, with as many vectors: a `.npy` file if the name ends so, else raw values. Replaced when
    /// complete.
    pub y: PathBuf,
}

/// The report of a multiplication.
#[derive(Debug, Clone, Serialize)]
pub struct MatvecReport {
    /// Rows of the matrix.
    pub rows: u64,
    /// Its columns.
    pub columns: u64,
    /// Its type.
    pub number: NumberType,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// The operator's report.
    pub report: Report,
}
