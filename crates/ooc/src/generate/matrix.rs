//! Matrices with known values, or a known largest eigenvalue.

use std::path::PathBuf;
use std::sync::Arc;

use headrace_io::random::drawn_at;
use headrace_io::{MemoryBudget, MemoryUse, Reservation};

use super::fill::{Filled, fill, on_cores};
use crate::{NumberType, OocError, Options, Report, Result, npy};

/// A matrix to be generated.
#[derive(Debug, Clone)]
pub struct MatrixJob {
    /// Destination: a `.npy` file if the name ends so, else raw values, row by row.
    pub path: PathBuf,
    /// Rows.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
    /// Type of the values: `f32`, `f64` or, in a raw file, `bf16`.
    pub number: NumberType,
    /// The same seed gives the same values for every type, as far as the type can hold them.
    pub seed: u64,
    /// Its kind.
    pub kind: MatrixKind,
}

/// The distribution of a matrix's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixKind {
    /// Uniform in `-1..1`.
    Uniform,
    /// `D C D⁻¹` of a circulant matrix `C` of positive values and a diagonal matrix `D` of powers of two: exact in
    /// every type. Its largest eigenvalue is the sum of a row of `C`, its eigenvector the diagonal of `D`, and the
    /// other eigenvalues are far below. The matrix is square.
    Dominant,
}

headrace_io::named!(MatrixKind, "kind of matrix", Uniform => "uniform", Dominant => "dominant");

/// The values of a matrix, without its file.
#[derive(Debug)]
pub struct MatrixContent {
    seed: u64,
    columns: u64,
    number: NumberType,
    /// The first row of `C`, and the diagonal of `D`; empty for [`MatrixKind::Uniform`].
    circulant: Vec<f64>,
    diagonal: Vec<f64>,
    _memory: Reservation,
}

impl MatrixContent {
    /// The content of a matrix, within a budget of memory.
    ///
    /// # Errors
    /// [`OocError::Usage`] for an impossible type or shape; [`OocError::Budget`].
    pub fn new(job: &MatrixJob, memory: &Arc<MemoryBudget>) -> Result<MatrixContent> {
        let &MatrixJob { rows, columns, number, seed, kind, .. } = job;
        let is_npy = is_npy(job);
        if !matches!(number, NumberType::F32 | NumberType::F64 | NumberType::Bf16) {
            return Err(OocError::usage(
                format!("a matrix of {number}"),
                "there are f32, f64, bf16",
            ));
        }
        if is_npy && number == NumberType::Bf16 {
            let remedy = "another name makes a raw file";
            return Err(OocError::usage("a .npy file cannot have bf16", remedy));
        }
        if kind == MatrixKind::Dominant && rows != columns {
            let what = format!("{rows} rows and {columns} columns have no eigenvalue");
            return Err(OocError::usage(what, "as many rows as columns"));
        }
        let length = if kind == MatrixKind::Dominant { columns } else { 0 };
        let memory = memory.reserve(MemoryUse::Pipelines, length.saturating_mul(16))?;
        let hash = |k: u64| drawn_at(seed, k);
        let circulant = (0..length).map(|k| (1 + hash(k) % 128) as f64 / 128.0).collect();
        let diagonal = (0..length).map(|k| (1 << (hash(!k) % 3)) as f64).collect();
        Ok(MatrixContent { seed, columns, number, circulant, diagonal, _memory: memory })
    }

    /// A value of the matrix.
    pub fn value(&self, row: u64, column: u64) -> f64 {
        if self.circulant.is_empty() {
            let bits = drawn_at(self.seed, row.wrapping_mul(self.columns).wrapping_add(column));
            // As many bits as the type has exactly.
            let kept = match self.number {
                NumberType::F64 => 53,
                NumberType::F32 => 24,
                _ => 8,
            };
            let half = (1u64 << (kept - 1)) as f64;
            return (bits >> (64 - kept)) as f64 / half - 1.0;
        }
        let (i, j, n) = (row as usize, column as usize, self.circulant.len());
        let k = if j >= i { j - i } else { j + n - i };
        self.diagonal[i] * self.circulant[k] / self.diagonal[j]
    }

    /// The largest eigenvalue and an eigenvector of it, if known.
    pub fn dominant(&self) -> Option<(f64, &[f64])> {
        // Multiples of 1/128: the sum is exact up to rows of 2^46 values.
        let is_known = !self.circulant.is_empty();
        is_known.then(|| (self.circulant.iter().sum(), &self.diagonal[..]))
    }

    fn fill(&self, first: u64, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        let width = self.number.bytes();
        let (mut row, mut column) = (first / self.columns, first % self.columns);
        for bytes in bytes.chunks_exact_mut(width) {
            let value = self.value(row, column);
            match width {
                8 => bytes.copy_from_slice(&value.to_le_bytes()),
                4 => bytes.copy_from_slice(&(value as f32).to_le_bytes()),
                _ => bytes.copy_from_slice(&(value as f32).to_le_bytes()[2..]),
            }
            column += 1;
            if column == self.columns {
                (row, column) = (row + 1, 0);
            }
        }
    }
}

fn is_npy(job: &MatrixJob) -> bool {
    job.path.extension().is_some_and(|extension| extension == "npy")
}

/// Generates a matrix file, complete or not at all.
///
/// # Errors
/// As [`MatrixContent::new`]; errors of the file and of the race.
pub fn matrix(job: &MatrixJob, options: &Options) -> Result<Report> {
    let room = on_cores(options)?;
    let content = MatrixContent::new(job, &room.memory)?;
    let header = match is_npy(job) {
        true => npy::header(job.number, &[job.rows, job.columns]),
        false => Vec::new(),
    };
    let values = job.rows.checked_mul(job.columns);
    let bytes = values.and_then(|values| values.checked_mul(job.number.bytes() as u64));
    let Some(size_bytes) = bytes.and_then(|bytes| bytes.checked_add(header.len() as u64)) else {
        return Err(OocError::usage("a matrix larger than any file", "fewer rows or columns"));
    };
    let files = [Filled { path: job.path.clone(), bytes: size_bytes }];
    fill(&files, options, &room, |_, offset, bytes| {
        // The header lies in the first window: a few hundred bytes.
        let header_bytes = if offset == 0 { header.len() } else { 0 };
        let (head, values) = bytes.split_at_mut(header_bytes);
        head.copy_from_slice(&header[..header_bytes]);
        let skipped = offset.saturating_sub(header.len() as u64);
        content.fill(skipped / content.number.bytes() as u64, values);
    })
}
