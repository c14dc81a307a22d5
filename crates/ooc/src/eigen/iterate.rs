//! Block power iteration with Rayleigh-Ritz values.

use std::path::{Path, PathBuf};
use std::time::Instant;

use headrace_flow::{HostMemory, RaceReport};
use headrace_io::MemoryUse;

use super::block::{self, Shape, without_pattern};
use super::job::{AnyMatrix, EigenIteration, EigenJob, EigenReport};
use super::product::Product;
use super::small::eigenpairs;
use crate::files::check_outputs;
use crate::matvec::{Manner, Matrix, Passes as DensePasses};
use crate::sparse::{Csr, Passes as SparsePasses};
use crate::vectors::{Shape as FileShape, Vectors, Written, check_result, commit};
use crate::{NumberType, OocError, Options, Result, Room};

/// The most pairs at once: the small eigenproblem of each iteration grows with their cube.
pub const PAIRS_MAX: usize = 256;

/// Vectors beside the wanted ones: as many again, within these bounds.
const SPARE_VECTORS: std::ops::RangeInclusive<usize> = 4..=8;

/// Beyond this part of what products of a matrix come to, their difference to those of its transpose is no rounding, even of f32.
const ASYMMETRY_MAX: f64 = 1e-6;

/// Computes eigenpairs.
///
/// # Errors
/// [`OocError::Usage`] for numbers of pairs, tolerances and iterations that are none; [`OocError::Input`] for a matrix that
/// is not square, has no rows, is not symmetric or has products that are not finite; otherwise as
/// [`multiply`](crate::sparse::multiply). Pairs that have not converged are no error: the report says so.
pub fn eigen(job: &EigenJob, options: &Options) -> Result<EigenReport> {
    let start = Instant::now();
    check(job)?;
    let files = &*options.files;
    match &job.matrix {
        AnyMatrix::Sparse(source) => {
            let csr = Csr::open(files, source)?;
            let inputs: Vec<&Path> = csr.arrays().map(|array| array.file.path()).collect();
            let asked = Asked::new(job, &source.path, (csr.rows, csr.columns), &inputs)?;
            let (rows, entries) = (csr.rows, csr.entries);
            let room = Room::for_repeated(options, csr.bytes() + asked.device_bytes())?;
            let sinks = asked.begin(options)?;
            let x = asked.first_vectors(&room)?;
            let mut passes = SparsePasses::new(csr, &room, options, true)?;
            let matrix = Sized { rows, entries: Some(entries as u64), bytes: passes.csr.bytes() };
            asked.run(&mut passes, x, (&room, options), (sinks, matrix, start))
        }
        AnyMatrix::Dense(source) => {
            let matrix = Matrix::open(files, source)?;
            let asked = Asked::new(job, &source.path, matrix.shape(), &[&source.path])?;
            let room = Room::for_repeated(options, matrix.bytes() + asked.device_bytes())?;
            let sinks = asked.begin(options)?;
            let x = asked.first_vectors(&room)?;
            let manner = Manner { memory: HostMemory::Pinned, repeats: true };
            let mut passes = DensePasses::new(&matrix, &room, options, manner)?;
            let matrix = Sized { rows: matrix.rows, entries: None, bytes: matrix.bytes() };
            asked.run(&mut passes, x, (&room, options), (sinks, matrix, start))
        }
    }
}

fn check(job: &EigenJob) -> Result<()> {
    check_result(job.result)?;
    if job.pairs == 0 || job.pairs > PAIRS_MAX {
        let what = format!("{} eigenpairs", job.pairs);
        return Err(OocError::usage(what, format!("1 to {PAIRS_MAX} are computed at once")));
    }
    if job.tolerance.is_nan() || job.tolerance < 0.0 {
        let what = format!("a tolerance of {}", job.tolerance);
        return Err(OocError::usage(what, "it is a part of the largest eigenvalue: 1e-6"));
    }
    if job.iterations == 0 {
        return Err(OocError::usage("no iteration", "at least one is needed"));
    }
    Ok(())
}

/// What the answer is of.
struct Sized {
    rows: usize,
    entries: Option<u64>,
    bytes: u64,
}

/// The files of the answer: vectors, then values.
struct Sinks {
    vectors: Option<Written>,
    values: Option<Written>,
}

impl Sinks {
    fn all(&self) -> impl Iterator<Item = &Written> + Clone {
        self.vectors.iter().chain(&self.values)
    }
}

/// What is asked of a matrix that can answer it.
struct Asked<'a> {
    job: &'a EigenJob,
    path: &'a Path,
    rows: usize,
    /// Vectors of the block.
    count: usize,
}

impl<'a> Asked<'a> {
    fn new(
        job: &'a EigenJob,
        path: &'a Path,
        (rows, columns): (usize, usize),
        inputs: &[&Path],
    ) -> Result<Asked<'a>> {
        let outputs: Vec<&Path> =
            job.vectors.iter().chain(&job.values).map(PathBuf::as_path).collect();
        check_outputs(&outputs, inputs)?;
        if rows != columns || rows == 0 {
            let what = format!("{rows} rows and {columns} columns have no eigenvalue");
            return Err(OocError::input(path, what, "as many rows as columns, and some"));
        }
        if job.pairs > rows {
            let what = format!("{} eigenpairs of a matrix of {rows} rows", job.pairs);
            return Err(OocError::usage(what, format!("it has {rows}")));
        }
        let spare = job.pairs.clamp(*SPARE_VECTORS.start(), *SPARE_VECTORS.end());
        Ok(Asked { job, path, rows, count: (job.pairs + spare).min(rows) })
    }

    fn fault(&self, what: impl Into<String>, remedy: &str) -> OocError {
        OocError::input(self.path, what, remedy)
    }

    /// Twice what vectors and products take of a device, of which all must fit where of a matrix half of it need to.
    fn device_bytes(&self) -> u64 {
        (self.rows as u64).saturating_mul(self.count as u64 * 4 * 8)
    }

    /// Before the products: that a result cannot be written is known at once.
    fn begin(&self, options: &Options) -> Result<Sinks> {
        let (files, job) = (&*options.files, self.job);
        let begin = |path: &Option<PathBuf>, shape| {
            path.as_ref().map(|path| Written::begin(files, path, shape)).transpose()
        };
        let number = job.result.unwrap_or(NumberType::F64);
        let vectors = FileShape { length: self.rows, count: job.pairs, is_flat: false, number };
        let values =
            FileShape { length: job.pairs, count: 1, is_flat: true, number: NumberType::F64 };
        Ok(Sinks { vectors: begin(&job.vectors, vectors)?, values: begin(&job.values, values)? })
    }

    fn first_vectors(&self, room: &Room) -> Result<Vectors> {
        let values = (0..self.rows * self.count).map(|at| without_pattern(self.job.seed, at));
        Vectors::made(&room.memory, values, (self.rows, self.count))
    }

    /// Iterates, writes the answer, reports.
    fn run(
        &self,
        product: &mut dyn Product,
        mut x: Vectors,
        (room, options): (&Room, &Options),
        (sinks, matrix, start): (Sinks, Sized, Instant),
    ) -> Result<EigenReport> {
        let plan_ns = start.elapsed().as_nanos() as u64;
        let found = self.iterate(product, &mut x, room)?;
        let Found { mut eigenvalues, mut residuals, iterations, has_converged, races } = found;
        let wanted = &mut x.values[..self.rows * self.job.pairs];
        block::point_up(wanted, self.rows);
        eigenvalues.truncate(self.job.pairs);
        residuals.truncate(self.job.pairs);
        sinks.vectors.as_ref().map_or(Ok(()), |sink| sink.write(wanted))?;
        sinks.values.as_ref().map_or(Ok(()), |sink| sink.write(&eigenvalues))?;
        let output_bytes = commit(sinks.all(), options.sync)?;
        let mut report = room.report(races);
        report.input_bytes = matrix.bytes * iterations.len() as u64;
        (report.output_bytes, report.plan_ns) = (output_bytes, plan_ns);
        report.wall_ns = start.elapsed().as_nanos() as u64;
        Ok(EigenReport {
            rows: matrix.rows as u64,
            entries: matrix.entries,
            eigenvalues,
            residuals,
            block_vectors: self.count as u64,
            iterations,
            has_converged,
            report,
        })
    }

    /// Until all wanted pairs are settled or there were enough products; `x` has the vectors then.
    fn iterate(&self, product: &mut dyn Product, x: &mut Vectors, room: &Room) -> Result<Found> {
        let shape = Shape { length: self.rows, count: self.count, threads: room.threads };
        let _sums =
            room.memory.reserve(MemoryUse::Pipelines, block::sums_bytes(self.rows, self.count))?;
        let (mut found, mut fresh) = (Found::default(), 0);
        block::orthonormalise(&mut x.values, shape, self.job.seed, &mut fresh);
        loop {
            let began = Instant::now();
            let (mut w, memory, race) = product.of(x)?;
            let product_ns = began.elapsed().as_nanos() as u64;
            let small = self.projected(&x.values, &w, shape, found.iterations.is_empty())?;
            let (values, turn) = eigenpairs(&small, self.count);
            block::rotate(&mut x.values, &turn, shape);
            block::rotate(&mut w, &turn, shape);
            let eigenvalue = values[0];
            // Of a matrix of zeros, anything is an eigenvector.
            let largest = if eigenvalue == 0.0 { block::largest(&w) } else { eigenvalue.abs() };
            let scale = if largest > 0.0 { largest } else { 1.0 };
            found.residuals = block::residuals(&x.values, &w, &values, scale, shape);
            found.eigenvalues = values;
            let residual = found.residuals[..self.job.pairs].iter().copied().fold(0.0, f64::max);
            found.has_converged = residual <= self.job.tolerance;
            let is_last = found.has_converged || found.iterations.len() + 1 == self.job.iterations;
            if !is_last {
                if !block::orthonormalise(&mut w, shape, self.job.seed, &mut fresh) {
                    return Err(self.not_finite());
                }
                x.replace(w, memory);
            }
            found.iterations.push(EigenIteration {
                eigenvalue,
                residual,
                wall_ns: began.elapsed().as_nanos() as u64,
                product_ns,
                bytes: race.bytes_by_path.total(),
                read_bytes: race.read_bytes,
            });
            found.keep(race);
            if is_last {
                return Ok(found);
            }
        }
    }

    /// The matrix as the basis sees it: `Qᵀ W`, with both halves alike.
    fn projected(&self, q: &[f64], w: &[f64], shape: Shape, is_first: bool) -> Result<Vec<f64>> {
        let small = block::products(q, w, shape);
        if !small.iter().all(|value| value.is_finite()) {
            return Err(self.not_finite());
        }
        let count = shape.count;
        let other = |at: usize| small[at % count * count + at / count];
        if is_first {
            let away = (0..small.len()).map(|at| (small[at] - other(at)).abs()).fold(0.0, f64::max);
            // What a product of two such vectors may come to is `|w|` at most, and its root over all rows by chance.
            let size = block::largest(w);
            let length =
                block::residuals(q, w, &vec![0.0; count], size.max(f64::MIN_POSITIVE), shape);
            let usual = length.into_iter().fold(0.0, f64::max) * size / (self.rows as f64).sqrt();
            if away > ASYMMETRY_MAX * usual {
                let what = format!(
                    "it is not symmetric: products with it and with its transpose differ by {:.1e} of what they are",
                    away / usual
                );
                let remedy =
                    "eigenpairs are those of symmetric matrices: A @ A.T and A + A.T are such";
                return Err(self.fault(what, remedy));
            }
        }
        Ok((0..small.len()).map(|at| small[at] / 2.0 + other(at) / 2.0).collect())
    }

    fn not_finite(&self) -> OocError {
        self.fault("a product is not finite", "look for NaN, infinities and huge values in it")
    }
}

/// What is known after some iterations.
#[derive(Default)]
struct Found {
    eigenvalues: Vec<f64>,
    residuals: Vec<f64>,
    iterations: Vec<EigenIteration>,
    has_converged: bool,
    races: Vec<(&'static str, RaceReport)>,
}

impl Found {
    /// Keeps the first race and the last.
    fn keep(&mut self, race: RaceReport) {
        let name = if self.races.is_empty() { "first product" } else { "last product" };
        self.races.truncate(1);
        self.races.push((name, race));
    }
}
