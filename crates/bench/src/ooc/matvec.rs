//! The product of a square binary32 matrix with a vector.

use std::path::Path;
use std::sync::Arc;

use headrace_flow::HostMemory;
use headrace_ooc::generate::{MatrixJob, MatrixKind, matrix};
use headrace_ooc::matvec::{
    MatrixFile, MatvecJob, Product, RawMatrix, RawVectors, VectorFile, multiply,
};
use headrace_ooc::{NumberType, OocError, Options};

use super::Answer;
use super::memory::{Loaded, WithLoaded, check_fits};
use super::operator::{Again, Input, Limits, Operator, Ran, Source};

const VALUE_BYTES: u64 = 4;

/// Rows are whole storage blocks if the matrix is larger than a few of them.
const ROWS_STEP: u64 = 1024;

const X: &str = "x.f32";

/// See the [module](self).
pub(super) struct Matvec;

/// Rows, and columns, of a matrix of at most this many bytes.
fn rows_of(bytes: u64) -> u64 {
    let rows = (bytes / VALUE_BYTES).isqrt();
    if rows < ROWS_STEP { rows.max(1) } else { rows / ROWS_STEP * ROWS_STEP }
}

impl Operator for Matvec {
    fn name(&self) -> &'static str {
        "matvec"
    }

    fn records_name(&self) -> &'static str {
        "values"
    }

    /// Vectors are small beside a matrix.
    fn input_bytes_max(&self, space_bytes: u64) -> u64 {
        space_bytes / 16 * 15
    }

    fn generate(
        &self,
        folder: &Path,
        bytes: u64,
        _selectivity: Option<f64>,
        options: &Options,
    ) -> Result<Input, OocError> {
        let (path, rows) = (folder.join("a.f32"), rows_of(bytes));
        for (path, columns, seed) in [(path.clone(), rows, 1), (folder.join(X), 1, 2)] {
            let (number, kind) = (NumberType::F32, MatrixKind::Uniform);
            matrix(&MatrixJob { path, rows, columns, number, seed, kind }, options)?;
        }
        Ok(Input {
            paths: vec![path],
            output: folder.join("y.f64"),
            bytes: rows * rows * VALUE_BYTES,
            records: rows * rows,
            selectivity: None,
        })
    }

    fn ready<'a>(
        &'a self,
        input: &'a Input,
        source: &Source,
        limits: &Limits,
        options: &Options,
    ) -> Result<Again<'a>, OocError> {
        match source {
            Source::Files(_) => Ok(Box::new(|options| product(input, options))),
            Source::HostMemory => {
                let bytes = input.bytes;
                check_fits("the matrix in memory", "host memory", bytes, limits.host_bytes)?;
                let files = Arc::new(WithLoaded(Loaded::read(&input.paths[0], options)?));
                Ok(Box::new(move |options| {
                    product(input, &Options { files: files.clone(), ..options.clone() })
                }))
            }
            Source::DeviceMemory => Err(OocError::usage(
                "a single product takes its matrix from files, also where device memory holds it",
                "the other variants",
            )),
        }
    }
}

fn product(input: &Input, options: &Options) -> Result<Ran, OocError> {
    let rows = rows_of(input.bytes);
    let number = NumberType::F32;
    let x = VectorFile {
        path: input.output.with_file_name(X),
        raw: Some(RawVectors { number, vectors: 1 }),
    };
    let job = MatvecJob {
        matrix: MatrixFile {
            path: input.paths[0].clone(),
            raw: Some(RawMatrix { rows, columns: rows, number }),
        },
        product: Some(Product { x, y: input.output.clone() }),
        transposed: None,
        result: Some(NumberType::F64),
        memory: HostMemory::Pinned,
    };
    let mut report = multiply(&job, options)?.report;
    report.input_bytes = input.bytes;
    let result = Loaded::read(&input.output, options)?;
    let values: Vec<f64> = bytemuck::cast_slice(result.as_ref()).to_vec();
    let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
    // A sum of n terms is off by n 2^-53 times their magnitudes, of which none is above 1.
    let distance_max = 2.0 * (rows * rows) as f64 * f64::EPSILON;
    Ok(Ran { answer: Answer::Vector { norm, distance_max, values }, report })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_fit_the_bytes_that_they_may_take() {
        for (bytes, rows) in [(1, 1), (4000, 31), (64 << 20, 4096), (1 << 30, 16_384)] {
            assert_eq!(rows_of(bytes), rows);
            assert_eq!(rows_of(rows * rows * VALUE_BYTES), rows);
        }
    }
}
