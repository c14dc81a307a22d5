//! A matrix as its user names it.

use std::path::PathBuf;

use crate::NumberType;

/// A file with a matrix.
#[derive(Debug, Clone)]
pub struct MatrixFile {
    /// Its path.
    pub path: PathBuf,
    /// The layout, if it has only raw values, row by row; `None`: a self-describing file: `.npy`, of one axis (a
    /// single row) or two, or an Arrow IPC file whose columns are those of the matrix.
    pub raw: Option<RawMatrix>,
}

/// The layout of a raw file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawMatrix {
    /// Rows.
    pub rows: u64,
    /// Columns; a row's values are contiguous.
    pub columns: u64,
    /// Type of the values: `f32`, `f64` or `bf16`.
    pub number: NumberType,
}
