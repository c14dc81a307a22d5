//! `headrace eigen`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use headrace_ooc::NumberType;
use headrace_ooc::eigen::{AnyMatrix, EigenJob, EigenReport, PAIRS_MAX, eigen as compute};
use headrace_ooc::matvec::{MatrixFile, RawMatrix};
use headrace_ooc::sparse::CsrFile;

use super::matvec::parse_shape;
use super::run::{RunArgs, failure};
use crate::error::{CliError, Result};
use crate::output::print;

/// `eigen`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headrace generate rmat graph --scale 16 --undirected
  headrace eigen graph -k 4 -o vectors.npy --values values.npy
  headrace eigen covariance.npy -k 10 -o components.npy --tolerance 1e-9

MATRIX is symmetric: a sparse one as headrace spmv takes it, or a dense one as headrace matvec takes it. Eigenvalues, the
largest by magnitude first, are printed one a line. All k vectors are iterated at once, with some more beside them,
so that one pass over the files serves all. They lie in memory, 16 bytes a row and vector; the matrix need not fit.
What is not within --tolerance after --iterations products is printed and written, and the exit code is 1.")]
pub struct EigenArgs {
    /// The symmetric matrix.
    #[arg(value_name = "MATRIX")]
    pub matrix: PathBuf,
    /// How many eigenpairs.
    #[arg(short = 'k', long = "pairs", value_name = "K", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=PAIRS_MAX as i64))]
    pub pairs: u32,
    /// File for the vectors, a column each: .npy by its name, else nothing but values.
    #[arg(short, long, value_name = "VECTORS")]
    pub out: Option<PathBuf>,
    /// File for the eigenvalues, f64.
    #[arg(long, value_name = "VALUES")]
    pub values: Option<PathBuf>,
    /// End when the residual of every pair, |A v - value v|, is no more than this part of the largest eigenvalue.
    #[arg(long, value_name = "PART", default_value_t = 1e-6)]
    pub tolerance: f64,
    /// End after N products in any case.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: u32,
    /// Begin with other vectors.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Rows and columns of a dense matrix that is nothing but values, such as 2000x2000.
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = parse_shape)]
    pub shape: Option<(u64, u64)>,
    /// Type of such a matrix: f32, f64 or bf16.
    #[arg(long = "type", value_name = "TYPE", default_value = "f32", requires = "shape")]
    pub number: NumberType,
    /// Type of the vectors: f32 or f64.
    #[arg(long, value_name = "TYPE", default_value = "f64")]
    pub result: NumberType,
    #[command(flatten)]
    pub run: RunArgs,
}

impl EigenArgs {
    fn matrix(&self) -> AnyMatrix {
        let path = self.matrix.clone();
        let is_sparse = self.shape.is_none() && (path.is_dir() || is_archive(&path));
        if is_sparse {
            return AnyMatrix::Sparse(CsrFile { path });
        }
        let raw =
            self.shape.map(|(rows, columns)| RawMatrix { rows, columns, number: self.number });
        AnyMatrix::Dense(MatrixFile { path, raw })
    }
}

fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "npz")
}

/// Computes eigenpairs and reports the iterations.
pub fn eigen(args: &EigenArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    let options = args.run.options(cancel);
    let job = EigenJob {
        matrix: args.matrix(),
        pairs: args.pairs as usize,
        vectors: args.out.clone(),
        values: args.values.clone(),
        tolerance: args.tolerance,
        iterations: args.iterations as usize,
        seed: args.seed,
        result: Some(args.result),
    };
    let told = compute(&job, &options).map_err(failure)?;
    let values: String = told.eigenvalues.iter().map(|value| format!("{value}\n")).collect();
    print(&values)?;
    if !args.run.any.quiet {
        tell_iterations(&told);
    }
    let state = if told.has_converged { "steady" } else { "not steady yet" };
    let summary = format!(
        "{} eigenpairs of {} rows are {state} after {} products with {} vectors",
        told.eigenvalues.len(),
        told.rows,
        told.iterations.len(),
        told.block_vectors
    );
    args.run.any.tell(&options, &summary, &told.report, &told)?;
    if told.has_converged { Ok(()) } else { Err(not_converged(&told, args.tolerance)) }
}

fn tell_iterations(told: &EigenReport) {
    for (number, iteration) in told.iterations.iter().enumerate() {
        say!(
            "{:4}: largest eigenvalue {:.12e}, residual {:.3e}, {:.3} s, {:.2} GB/s, {:.1} MB read",
            number + 1,
            iteration.eigenvalue,
            iteration.residual,
            iteration.wall_ns as f64 / 1e9,
            iteration.bytes as f64 / iteration.product_ns.max(1) as f64,
            iteration.read_bytes as f64 / 1e6,
        );
    }
}

fn not_converged(told: &EigenReport, tolerance: f64) -> CliError {
    let settled = told.residuals.iter().filter(|residual| **residual <= tolerance).count();
    let residual = told.residuals.iter().copied().fold(0.0, f64::max);
    let cause = format!(
        "{settled} of {} eigenpairs have converged after {} products: the largest residual is {residual:.1e}",
        told.residuals.len(),
        told.iterations.len(),
    );
    CliError::new(cause).hint("more --iterations, a larger --tolerance, or more pairs (-k), of which the first settle sooner")
}
