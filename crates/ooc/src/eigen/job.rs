//! What is asked, and what is answered.

use std::path::PathBuf;

use serde::Serialize;

use crate::matvec::MatrixFile;
use crate::sparse::CsrFile;
use crate::{NumberType, Report};

/// A matrix in files.
#[derive(Debug, Clone)]
pub enum AnyMatrix {
    /// In compressed sparse rows.
    Sparse(CsrFile),
    /// All of its values.
    Dense(MatrixFile),
}

/// The eigenpairs to compute.
#[derive(Debug, Clone)]
pub struct EigenJob {
    /// A symmetric matrix.
    pub matrix: AnyMatrix,
    /// How many: those with the largest eigenvalues by magnitude.
    pub pairs: usize,
    /// Destination of the vectors, a column each, of length 1: a `.npy` file if the name ends so, else raw values.
    pub vectors: Option<PathBuf>,
    /// Destination of the eigenvalues, f64.
    pub values: Option<PathBuf>,
    /// Ends when the residual of each wanted pair is no more than this part of the largest eigenvalue.
    pub tolerance: f64,
    /// Maximum of products, at least 1.
    pub iterations: usize,
    /// Another seed begins with other vectors.
    pub seed: u64,
    /// Type of the vectors: `f32` or `f64`; `None`: `f64`.
    pub result: Option<NumberType>,
}

/// One product with the block, and the basis behind it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EigenIteration {
    /// The largest eigenvalue by magnitude, as far as it is known.
    pub eigenvalue: f64,
    /// The largest residual of a wanted pair, as a part of that.
    pub residual: f64,
    /// Time of all.
    pub wall_ns: u64,
    /// Of this, the product's.
    pub product_ns: u64,
    /// Bytes of the matrix that it went through.
    pub bytes: u64,
    /// Of these, bytes that were read: the others were in memory.
    pub read_bytes: u64,
}

/// The answer.
#[derive(Debug, Clone, Serialize)]
pub struct EigenReport {
    /// Rows and columns of the matrix.
    pub rows: u64,
    /// Entries of a sparse one.
    pub entries: Option<u64>,
    /// The largest by magnitude first.
    pub eigenvalues: Vec<f64>,
    /// The length of `A v - eigenvalue v` for each, as a part of the largest eigenvalue.
    pub residuals: Vec<f64>,
    /// Vectors of the block: more than are wanted, which makes the wanted ones settle sooner.
    pub block_vectors: u64,
    /// Every iteration.
    pub iterations: Vec<EigenIteration>,
    /// Whether all residuals are within the tolerance.
    pub has_converged: bool,
    /// The report, with the first product and the last.
    pub report: Report,
}
