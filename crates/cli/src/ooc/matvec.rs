//! `headrace matvec`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use headrace_flow::HostMemory;
use headrace_ooc::matvec::{
    IterateJob, MatrixFile, MatvecJob, Product, RawMatrix, RawVectors, VectorFile, iterate,
    multiply,
};
use headrace_ooc::{NumberType, Options};

use super::run::{RunArgs, failure};
use crate::error::{CliError, Result};
use crate::output::print;

/// `matvec`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headrace matvec a.npy x.npy -o y.npy
  headrace matvec a.npy x.npy -o y.npy --transposed-x z.npy --transposed-out w.npy
  headrace matvec a.f32 x.npy -o y.npy --shape 1000000x4096 --type f32
  headrace matvec a.npy --iterate 50 -o eigenvector.npy

A matrix is a .npy file, an Arrow file whose columns are those of the matrix, or with --shape a file of
values, row by row. A vector is a .npy file (of two axes: one vector a column), or with --x-type a file of
values. All sums are of binary64, and have the same bits for any number of threads.")]
pub struct MatvecArgs {
    /// The matrix A.
    #[arg(value_name = "MATRIX")]
    pub matrix: PathBuf,
    /// What it is multiplied with; with --iterate, what to begin with.
    #[arg(value_name = "X", required_unless_present = "iterate")]
    pub x: Option<PathBuf>,
    /// File for the result: .npy by its name, else nothing but values.
    #[arg(short, long, value_name = "Y", required_unless_present = "iterate")]
    pub out: Option<PathBuf>,
    /// Multiply the transposed matrix.
    #[arg(long, conflicts_with_all = ["iterate", "transposed_x"])]
    pub transpose: bool,
    /// What the transposed matrix is multiplied with, in the same pass.
    #[arg(long, value_name = "X", requires = "transposed_out", conflicts_with = "iterate")]
    pub transposed_x: Option<PathBuf>,
    /// File for that result.
    #[arg(long, value_name = "Y", requires = "transposed_x")]
    pub transposed_out: Option<PathBuf>,
    /// Rows and columns of a matrix that is nothing but values, such as 1000x2000.
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = parse_shape)]
    pub shape: Option<(u64, u64)>,
    /// Type of such a matrix: f32, f64 or bf16.
    #[arg(long = "type", value_name = "TYPE", default_value = "f32", requires = "shape")]
    pub number: NumberType,
    /// Type of vectors that are nothing but values: f32 or f64.
    #[arg(long, value_name = "TYPE")]
    pub x_type: Option<NumberType>,
    /// How many vectors such a file has, whose first values lie side by side, then the second ones.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "x_type")]
    pub vectors: u64,
    /// Type of the result: f32 or f64 (default: f64 if matrix or vector are).
    #[arg(long, value_name = "TYPE")]
    pub result: Option<NumberType>,
    /// Power iteration: multiply up to N times, and print the largest eigenvalue.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterate: Option<u32>,
    /// End an iteration when the eigenvalue changes by no more than this part of it.
    #[arg(long, value_name = "PART", default_value_t = 1e-9, requires = "iterate")]
    pub tolerance: f64,
    /// Copy to the GPU from ordinary memory.
    #[arg(long)]
    pub pageable: bool,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Multiplies and reports the run.
pub fn matvec(args: &MatvecArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    let options = args.run.options(cancel);
    match args.iterate {
        Some(iterations) => power_iteration(args, iterations as usize, &options),
        None => product(args, &options),
    }
}

impl MatvecArgs {
    fn matrix(&self) -> MatrixFile {
        let raw =
            self.shape.map(|(rows, columns)| RawMatrix { rows, columns, number: self.number });
        MatrixFile { path: self.matrix.clone(), raw }
    }

    fn vectors(&self, path: &Path) -> VectorFile {
        let raw = self.x_type.map(|number| RawVectors { number, vectors: self.vectors });
        VectorFile { path: path.to_path_buf(), raw }
    }

    fn memory(&self) -> HostMemory {
        if self.pageable { HostMemory::Pageable } else { HostMemory::Pinned }
    }
}

fn product(args: &MatvecArgs, options: &Options) -> Result<()> {
    let product = |x: &Option<PathBuf>, y: &Option<PathBuf>| {
        let (x, y) = (x.as_ref()?, y.as_ref()?);
        Some(Product { x: args.vectors(x), y: y.clone() })
    };
    let main = product(&args.x, &args.out);
    let (product, transposed) = match args.transpose {
        true => (None, main),
        false => (main, product(&args.transposed_x, &args.transposed_out)),
    };
    let job = MatvecJob {
        matrix: args.matrix(),
        product,
        transposed,
        result: args.result,
        memory: args.memory(),
    };
    let told = multiply(&job, options).map_err(failure)?;
    let summary = format!("{} x {} of {} multiplied", told.rows, told.columns, told.number);
    args.run.any.tell(options, &summary, &told.report, &told)
}

fn power_iteration(args: &MatvecArgs, iterations: usize, options: &Options) -> Result<()> {
    let job = IterateJob {
        matrix: args.matrix(),
        start: args.x.as_ref().map(|x| args.vectors(x)),
        output: args.out.clone(),
        iterations,
        tolerance: args.tolerance,
        result: args.result,
        memory: args.memory(),
    };
    let told = iterate(&job, options).map_err(failure)?;
    let Some(last) = told.iterations.last() else {
        return Err(CliError::new("nothing was multiplied"));
    };
    print(&format!("{}\n", last.eigenvalue))?;
    if !args.run.any.quiet {
        for (number, product) in told.iterations.iter().enumerate() {
            say!(
                "{:4}: eigenvalue {:.12e}, residual {:.3e}, {:.3} s, {:.1} MB streamed, {:.1} MB resident",
                number + 1,
                product.eigenvalue,
                product.residual,
                product.wall_ns as f64 / 1e9,
                product.streamed_bytes as f64 / 1e6,
                product.resident_bytes as f64 / 1e6,
            );
        }
    }
    let state = if told.has_converged { "steady" } else { "not steady yet" };
    let products = told.iterations.len();
    let summary = format!(
        "the eigenvalue is {state} after {products} products, residual {:.3e}",
        last.residual
    );
    args.run.any.tell(options, &summary, &told.report, &told)
}

pub(super) fn parse_shape(text: &str) -> std::result::Result<(u64, u64), String> {
    let parsed = text.split_once(['x', 'X']).and_then(|(rows, columns)| {
        Some((rows.trim().parse().ok()?, columns.trim().parse().ok()?))
    });
    parsed.ok_or_else(|| format!("{text:?} is no shape; write rows and columns, such as 1000x2000"))
}

#[cfg(test)]
mod tests {
    use super::parse_shape;

    #[test]
    fn shapes() {
        assert_eq!(parse_shape("1000x2000"), Ok((1000, 2000)));
        for wrong in ["", "1000", "x", "10x", "-1x3", "1x2x3"] {
            assert!(parse_shape(wrong).is_err(), "{wrong}");
        }
    }
}
