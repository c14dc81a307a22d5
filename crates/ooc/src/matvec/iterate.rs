//! Power iteration: the largest eigenvalue of a square matrix by magnitude, and its vector.

use std::path::{Path, PathBuf};
use std::time::Instant;

use headrace_flow::{BytesByPath, HostMemory};
use serde::Serialize;

use super::cores::Operands;
use super::file::MatrixFile;
use super::matrix::Matrix;
use super::pass::{Manner, Passes};
use crate::files::check_outputs;
use crate::vectors::{Shape, VectorFile, Vectors, Written, check_result, commit, result_type};
use crate::{NumberType, OocError, Options, Report, Result, Room};

/// The iteration to run.
#[derive(Debug, Clone)]
pub struct IterateJob {
    /// A square matrix.
    pub matrix: MatrixFile,
    /// The start vector; `None`: pseudo-random numbers.
    pub start: Option<VectorFile>,
    /// Destination of the last vector, of length 1: a `.npy` file if the name ends so.
    pub output: Option<PathBuf>,
    /// Maximum of products, at least 1.
    pub iterations: usize,
    /// Ends earlier when the estimate of the eigenvalue changes by no more than this fraction of
    /// it.
    pub tolerance: f64,
    /// Type of the output, as [`MatvecJob::result`](super::MatvecJob::result).
    pub result: Option<NumberType>,
    /// Host memory of a GPU's slots.
    pub memory: HostMemory,
}

/// The result of one product, for `x` of length 1 and `y = A x`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Iteration {
    /// `x · y`.
    pub eigenvalue: f64,
    /// The length of `y - eigenvalue x`.
    pub residual: f64,
    /// Time of the product.
    pub wall_ns: u64,
    /// Bytes of the matrix that were read or copied to the device.
    pub streamed_bytes: u64,
    /// Bytes of the matrix that were used in place: on the device, in the host cache, in the page
    /// cache.
    pub resident_bytes: u64,
}

/// The result of an iteration.
#[derive(Debug, Clone, Serialize)]
pub struct IterateReport {
    /// Rows and columns of the matrix.
    pub rows: u64,
    /// Its type.
    pub number: NumberType,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// The products in order; the last has the answer.
    pub iterations: Vec<Iteration>,
    /// Whether the last change of the estimate was within the tolerance.
    pub has_converged: bool,
    /// The report, with the first and the last race.
    pub report: Report,
}

/// Iterates.
///
/// # Errors
/// [`OocError::Input`] for a matrix that is not square, has no rows, maps the vector to 0 or has values that are not
/// finite; otherwise as [`multiply`](super::multiply).
pub fn iterate(job: &IterateJob, options: &Options) -> Result<IterateReport> {
    let start = Instant::now();
    check_result(job.result)?;
    let outputs: Vec<&Path> = job.output.iter().map(PathBuf::as_path).collect();
    let start_path = job.start.iter().map(|start| start.path.as_path());
    let inputs: Vec<&Path> = start_path.chain([job.matrix.path.as_path()]).collect();
    check_outputs(&outputs, &inputs)?;
    let files = &*options.files;
    let matrix = Matrix::open(files, &job.matrix)?;
    let room = Room::for_repeated(options, matrix.bytes())?;
    if matrix.rows != matrix.columns || matrix.rows == 0 {
        let (rows, columns) = matrix.shape();
        let what = format!("{rows} rows and {columns} columns have no eigenvalue");
        return Err(OocError::input(&job.matrix.path, what, "as many rows as columns"));
    }
    let mut x = match &job.start {
        Some(source) => Vectors::read(files, &room.memory, source, matrix.columns, "the start")?,
        None => Vectors::without_pattern(&room.memory, matrix.columns)?,
    };
    if x.count != 1 {
        let what = format!("the start is {} vectors", x.count);
        return Err(OocError::usage(what, "one vector is iterated at a time"));
    }
    let fault = |what: &str, remedy| OocError::input(&job.matrix.path, what, remedy);
    if !scale(&mut x.values) {
        return Err(fault("the start has no direction", "give one that is not 0, and finite"));
    }
    // Before the products: that the result cannot be written is known at once.
    let number = job.result.unwrap_or(result_type(matrix.number, x.number));
    let shape = Shape { length: matrix.columns, count: 1, is_flat: true, number };
    let begin = |path: &PathBuf| Written::begin(files, path, shape);
    let sink = job.output.as_ref().map(begin).transpose()?;
    let manner = Manner { memory: job.memory, repeats: true };
    let mut passes = Passes::new(&matrix, &room, options, manner)?;
    let plan_ns = start.elapsed().as_nanos() as u64;
    let (mut iterations, mut races): (Vec<Iteration>, _) = (Vec::new(), Vec::new());
    let mut has_converged = false;
    while iterations.len() < job.iterations.max(1) && !has_converged {
        let operands = match matrix.is_transposed {
            false => Operands { forward: Some(&x), transposed: None },
            true => Operands { forward: None, transposed: Some(&x) },
        };
        let began = Instant::now();
        let (results, race) = passes.run(operands)?;
        let wall_ns = began.elapsed().as_nanos() as u64;
        let y = if matrix.is_transposed { &results.transposed } else { &results.forward };
        let eigenvalue = dot(&x.values, y);
        let residual = length(x.values.iter().zip(y).map(|(x, y)| y - eigenvalue * x));
        let on_device = room.device.is_some();
        let (streamed_bytes, resident_bytes) = by_place(&race.bytes_by_path, on_device);
        if let Some(last) = iterations.last() {
            has_converged =
                (eigenvalue - last.eigenvalue).abs() <= job.tolerance * eigenvalue.abs();
        }
        iterations.push(Iteration {
            eigenvalue,
            residual,
            wall_ns,
            streamed_bytes,
            resident_bytes,
        });
        x.values.copy_from_slice(y);
        if !scale(&mut x.values) {
            return Err(match eigenvalue.is_finite() && y.iter().all(|y| *y == 0.0) {
                true => fault("it maps the vector to 0", "begin with another vector"),
                false => fault("a product is not finite", "look for NaN and infinities in it"),
            });
        }
        races.truncate(1);
        races.push(race);
    }
    sink.as_ref().map_or(Ok(()), |sink| sink.write(&x.values))?;
    let output_bytes = commit(sink.iter(), options.sync)?;
    let names = ["first product", "last product"];
    let mut report = room.report(names.into_iter().zip(races).collect());
    report.input_bytes = matrix.bytes() * iterations.len() as u64 + x.file_bytes;
    (report.output_bytes, report.plan_ns) = (output_bytes, plan_ns);
    report.wall_ns = start.elapsed().as_nanos() as u64;
    let (rows, number) = (matrix.rows as u64, matrix.number);
    let chunk_bytes = passes.plan.chunk_bytes() as u64;
    Ok(IterateReport { rows, number, chunk_bytes, iterations, has_converged, report })
}

/// Bytes that moved, and bytes that did not.
fn by_place(bytes: &BytesByPath, on_device: bool) -> (u64, u64) {
    let resident = match on_device {
        true => bytes.resident_device,
        false => bytes.mapped + bytes.cached + bytes.memory,
    };
    (bytes.total() - resident, resident)
}

/// Terms that are added sequentially before such partial sums are added.
const TERMS: usize = 1 << 10;

fn sum(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut all, mut some) = (0.0, 0.0);
    for (at, term) in terms.enumerate() {
        some += term;
        if (at + 1).is_multiple_of(TERMS) {
            all += std::mem::take(&mut some);
        }
    }
    all + some
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    sum(a.iter().zip(b).map(|(a, b)| a * b))
}

fn length(values: impl Iterator<Item = f64>) -> f64 {
    sum(values.map(|value| value * value)).sqrt()
}

/// Scales a vector to length 1; returns whether it has a length.
fn scale(values: &mut [f64]) -> bool {
    let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    if !(largest > 0.0 && largest.is_finite()) {
        return false;
    }
    // First by the largest, so that no square is too large or too small.
    values.iter_mut().for_each(|value| *value /= largest);
    let length = length(values.iter().copied());
    values.iter_mut().for_each(|value| *value /= length);
    length.is_finite()
}

impl Vectors {
    /// One vector of numbers between -1 and 1.
    fn without_pattern(
        memory: &std::sync::Arc<headrace_io::MemoryBudget>,
        length: usize,
    ) -> Result<Self> {
        let number = |at| headrace_io::random::drawn_at(1, at as u64) as i64 as f64 / 2f64.powi(63);
        Vectors::one(memory, (0..length).map(number), length)
    }
}
