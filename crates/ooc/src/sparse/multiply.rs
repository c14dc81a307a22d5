//! One product.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

use super::csr::{Csr, CsrFile};
use super::pass::Passes;
use super::sums::Sums;
use crate::files::check_outputs;
use crate::vectors::{Shape, VectorFile, Vectors, Written, check_result, commit, result_type};
use crate::{NumberType, Options, Report, Result, Room};

/// The reason for the CPU unless specified otherwise.
const CPU_IS_FASTER: &str = "each byte of the matrix is used once, and the cores read at the speed of memory, \
                             which is above that of any link to a device";

/// The product to compute: `y = A x`.
#[derive(Debug, Clone)]
pub struct SpmvJob {
    /// The matrix `A`.
    pub matrix: CsrFile,
    /// One vector or several.
    pub x: VectorFile,
    /// The result, with as many vectors: a `.npy` file if the name ends so, else raw values. Replaced when complete.
    pub y: PathBuf,
    /// Type of the result, `f32` or `f64`; `None`: `f64` if the matrix or the vector has it, else `f32`.
    pub result: Option<NumberType>,
}

/// The report of a product.
#[derive(Debug, Clone, Serialize)]
pub struct SpmvReport {
    /// Rows of the matrix.
    pub rows: u64,
    /// Its columns.
    pub columns: u64,
    /// Its entries.
    pub entries: u64,
    /// Type of its values; `None`: all are 1.
    pub number: Option<NumberType>,
    /// Chunks that it was read in.
    pub chunks: u64,
    /// The operator's report.
    pub report: Report,
}

/// Multiplies.
///
/// # Errors
/// [`OocError::Input`](crate::OocError::Input) for files that are no matrix or do not fit,
/// [`OocError::Budget`](crate::OocError::Budget) for too little memory; errors of the race and of the files. No partial
/// result is left.
pub fn multiply(job: &SpmvJob, options: &Options) -> Result<SpmvReport> {
    let start = Instant::now();
    check_result(job.result)?;
    let files = &*options.files;
    let room = Room::new(options, Some(CPU_IS_FASTER))?;
    let csr = Csr::open(files, &job.matrix)?;
    let inputs: Vec<&Path> = csr.arrays().map(|array| array.file.path()).collect();
    check_outputs(&[&job.y], &[&inputs[..], &[&job.x.path]].concat())?;
    let x = Vectors::read(files, &room.memory, &job.x, csr.columns, "x")?;
    let mut sums = Sums::zero(&room.memory, (csr.rows, csr.entries), x.count)?;
    let number = job.result.unwrap_or(result_type(csr.number().unwrap_or(x.number), x.number));
    let shape = Shape { length: csr.rows, count: x.count, is_flat: x.is_flat, number };
    // Before the pass: that the result cannot be written is known at once.
    let sink = Written::begin(files, &job.y, shape)?;
    let mut passes = Passes::new(csr, &room, options, false)?;
    let plan_ns = start.elapsed().as_nanos() as u64;
    let race = passes.multiply(&x, &mut sums)?;
    sink.write(&sums.into_values())?;
    let output_bytes = commit(std::iter::once(&sink), options.sync)?;
    let csr = &passes.csr;
    let mut report = room.report(vec![("multiply", race)]);
    report.input_bytes = csr.bytes() + x.file_bytes;
    (report.output_bytes, report.plan_ns) = (output_bytes, plan_ns);
    report.wall_ns = start.elapsed().as_nanos() as u64;
    Ok(SpmvReport {
        rows: csr.rows as u64,
        columns: csr.columns as u64,
        entries: csr.entries as u64,
        number: csr.number(),
        chunks: passes.plan.chunks() as u64,
        report,
    })
}
