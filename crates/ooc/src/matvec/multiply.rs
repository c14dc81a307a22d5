//! One pass over a matrix.

use std::path::Path;
use std::time::Instant;

use super::cores::Operands;
use super::matrix::Matrix;
use super::pass::{Manner, Passes};
use super::sums::Results;
use super::{MatvecJob, MatvecReport, Product};
use crate::files::check_outputs;
use crate::vectors::{Shape, Vectors, Written, check_result, commit, result_type};
use crate::{OocError, Options, Result, Room};

/// The reason for the CPU unless specified otherwise.
const CPU_IS_FASTER: &str = "each byte of the matrix is used once, and the cores read at the speed of memory, \
                             which is above that of any link to a device";

/// Multiplies.
///
/// # Errors
/// [`OocError::Usage`] if there is nothing to multiply, [`OocError::Input`] for files that do not fit,
/// [`OocError::Budget`] for too little memory; errors of the race and of the files. No partial result is left; of
/// two results, the first may exist if the second cannot be put in place.
pub fn multiply(job: &MatvecJob, options: &Options) -> Result<MatvecReport> {
    let start = Instant::now();
    if job.product.is_none() && job.transposed.is_none() {
        return Err(OocError::usage("there is nothing to multiply", "name a vector and a result"));
    }
    let products = || job.product.iter().chain(&job.transposed);
    let inputs: Vec<&Path> = products().map(|product| product.x.path.as_path()).collect();
    check_outputs(
        &products().map(|product| product.y.as_path()).collect::<Vec<_>>(),
        &[&inputs[..], &[&job.matrix.path]].concat(),
    )?;
    check_result(job.result)?;
    let room = Room::new(options, Some(CPU_IS_FASTER))?;
    let files = &*options.files;
    let matrix = Matrix::open(files, &job.matrix)?;
    let (rows, columns) = matrix.shape();
    let read = |product: &Option<Product>, length: usize, name: &str| {
        let read = |product: &Product| Vectors::read(files, &room.memory, &product.x, length, name);
        product.as_ref().map(read).transpose()
    };
    let x = read(&job.product, columns, "x of A x")?;
    let x_transposed = read(&job.transposed, rows, "x of the product with the transposed matrix")?;
    let operands = match matrix.is_transposed {
        false => Operands { forward: x.as_ref(), transposed: x_transposed.as_ref() },
        true => Operands { forward: x_transposed.as_ref(), transposed: x.as_ref() },
    };
    // Before the pass, so that what is refused is refused at once: memory for the results, then their files.
    drop(Results::zero(&room.memory, (matrix.rows, matrix.columns), operands.counts())?);
    let begin = |product: &Option<Product>, x: &Option<Vectors>, length: usize| {
        let (Some(product), Some(x)) = (product, x) else { return Ok(None) };
        let number = job.result.unwrap_or(result_type(matrix.number, x.number));
        let &Vectors { count, is_flat, .. } = x;
        Written::begin(files, &product.y, Shape { length, count, is_flat, number }).map(Some)
    };
    let sinks = [begin(&job.product, &x, rows)?, begin(&job.transposed, &x_transposed, columns)?];
    let manner = Manner { memory: job.memory, repeats: false };
    let mut passes = Passes::new(&matrix, &room, options, manner)?;
    let plan_ns = start.elapsed().as_nanos() as u64;
    let (results, race) = passes.run(operands)?;
    let (y, y_transposed) = match matrix.is_transposed {
        false => (&results.forward, &results.transposed),
        true => (&results.transposed, &results.forward),
    };
    for (sink, y) in sinks.iter().zip([y, y_transposed]) {
        sink.as_ref().map_or(Ok(()), |sink| sink.write(y))?;
    }
    let output_bytes = commit(sinks.iter().flatten(), options.sync)?;
    let x_bytes = [&x, &x_transposed].map(|x| x.as_ref().map_or(0, |x| x.file_bytes));
    let mut report = room.report(vec![("multiply", race)]);
    report.input_bytes = matrix.bytes() + x_bytes.iter().sum::<u64>();
    report.output_bytes = output_bytes;
    report.plan_ns = plan_ns;
    report.wall_ns = start.elapsed().as_nanos() as u64;
    let chunk_bytes = passes.plan.chunk_bytes() as u64;
    let (rows, columns, number) = (rows as u64, columns as u64, matrix.number);
    Ok(MatvecReport { rows, columns, number, chunk_bytes, report })
}
