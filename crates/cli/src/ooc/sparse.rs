//! `headrace spmv`, `headrace pagerank`, `headrace bfs`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use headrace_ooc::NumberType;
use headrace_ooc::matvec::{RawVectors, VectorFile};
use headrace_ooc::sparse::{CsrFile, LevelsJob, RanksJob, SpmvJob, levels, multiply, ranks};

use super::run::{RunArgs, failure};
use crate::error::Result;

/// `spmv`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headrace spmv graph/ x.npy -o y.npy
  headrace spmv a.npz x.npy -o y.npy --memory-limit 1GiB

A sparse matrix is a folder with indptr.npy, indices.npy and data.npy, compressed sparse rows as SciPy has them, or a
.npz of scipy.sparse.save_npz(.., compressed=False). Without data.npy every value is 1; without shape.npy the
matrix is square. A vector is a .npy file (of two axes: one vector a column), or with --x-type a file of values. It
lies in memory, and so does the result; the matrix need not fit. All sums are of binary64, and have the same
bits for any number of threads.")]
pub struct SpmvArgs {
    /// The sparse matrix A.
    #[arg(value_name = "MATRIX")]
    pub matrix: PathBuf,
    /// What it is multiplied with.
    #[arg(value_name = "X")]
    pub x: PathBuf,
    /// File for the result: .npy by its name, else nothing but values.
    #[arg(short, long, value_name = "Y")]
    pub out: PathBuf,
    /// Type of vectors that are nothing but values: f32 or f64.
    #[arg(long, value_name = "TYPE")]
    pub x_type: Option<NumberType>,
    /// How many vectors such a file has, whose first values lie side by side, then the second ones.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "x_type")]
    pub vectors: u64,
    /// Type of the result: f32 or f64 (default: f64 if matrix or vector are).
    #[arg(long, value_name = "TYPE")]
    pub result: Option<NumberType>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// `pagerank`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headrace generate rmat graph --scale 20
  headrace pagerank graph -o ranks.npy

A graph is a sparse matrix as headrace spmv takes it, where row r lists who points at r: the entry in row r and
column c is an edge from c to r. One that is stored by its outgoing edges is transposed first (A.T.tocsr()).
Values of the matrix are not looked at. Ranks take 32 bytes of memory a vertex.")]
pub struct PagerankArgs {
    /// The graph.
    #[arg(value_name = "GRAPH")]
    pub graph: PathBuf,
    /// File for the ranks: .npy by its name, else nothing but values.
    #[arg(short, long, value_name = "RANKS")]
    pub out: PathBuf,
    /// The share of a rank that goes on along edges.
    #[arg(long, value_name = "SHARE", default_value_t = 0.85)]
    pub damping: f64,
    /// End when the ranks change by no more than this, in sum.
    #[arg(long, value_name = "SUM", default_value_t = 1e-6)]
    pub tolerance: f64,
    /// End after N iterations in any case.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: u32,
    /// Type of the ranks: f32 or f64.
    #[arg(long, value_name = "TYPE", default_value = "f64")]
    pub result: NumberType,
    #[command(flatten)]
    pub run: RunArgs,
}

/// `bfs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headrace generate rmat graph --scale 20 --undirected
  headrace bfs graph --source 3 -o levels.npy

A graph is what headrace pagerank takes. Levels are i32: how many edges a vertex is away from the source, -1 if no
path leads there. Chunks whose vertices all have a level are not read again.")]
pub struct BfsArgs {
    /// The graph.
    #[arg(value_name = "GRAPH")]
    pub graph: PathBuf,
    /// The vertex where paths begin, counted from 0.
    #[arg(long, value_name = "VERTEX")]
    pub source: u64,
    /// File for the levels: .npy by its name, else nothing but values.
    #[arg(short, long, value_name = "LEVELS")]
    pub out: PathBuf,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Multiplies and reports the run.
pub fn spmv(args: &SpmvArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    let options = args.run.options(cancel);
    let raw = args.x_type.map(|number| RawVectors { number, vectors: args.vectors });
    let job = SpmvJob {
        matrix: CsrFile { path: args.matrix.clone() },
        x: VectorFile { path: args.x.clone(), raw },
        y: args.out.clone(),
        result: args.result,
    };
    let told = multiply(&job, &options).map_err(failure)?;
    let of = told.number.map(|number| format!(" of {number}")).unwrap_or_default();
    let summary =
        format!("{} x {} with {} entries{of} multiplied", told.rows, told.columns, told.entries);
    args.run.any.tell(&options, &summary, &told.report, &told)
}

/// Computes ranks and reports the iterations.
pub fn pagerank(args: &PagerankArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    let options = args.run.options(cancel);
    let job = RanksJob {
        graph: CsrFile { path: args.graph.clone() },
        output: args.out.clone(),
        damping: args.damping,
        tolerance: args.tolerance,
        iterations: args.iterations as usize,
        result: Some(args.result),
    };
    let told = ranks(&job, &options).map_err(failure)?;
    if !args.run.any.quiet {
        for (number, iteration) in told.iterations.iter().enumerate() {
            say!(
                "{:4}: change {:.3e}, {:.3} s, {:.2} GB/s, {:.1} MB read",
                number + 1,
                iteration.change,
                iteration.wall_ns as f64 / 1e9,
                iteration.bytes as f64 / iteration.wall_ns.max(1) as f64,
                iteration.read_bytes as f64 / 1e6,
            );
        }
    }
    let state = if told.has_converged { "steady" } else { "not steady yet" };
    let iterations = told.iterations.len();
    let summary = format!(
        "ranks of {} vertices and {} edges are {state} after {iterations} iterations",
        told.vertices, told.edges
    );
    args.run.any.tell(&options, &summary, &told.report, &told)
}

/// Searches and reports the levels.
pub fn bfs(args: &BfsArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    let options = args.run.options(cancel);
    let job = LevelsJob {
        graph: CsrFile { path: args.graph.clone() },
        source: args.source,
        output: args.out.clone(),
    };
    let told = levels(&job, &options).map_err(failure)?;
    if !args.run.any.quiet {
        for (number, level) in told.levels.iter().enumerate() {
            say!(
                "{number:4}: {} vertices, {} edges looked at, {:.3} s, {:.1} MB",
                level.vertices,
                level.edges,
                level.wall_ns as f64 / 1e9,
                level.bytes as f64 / 1e6,
            );
        }
    }
    let summary = format!(
        "{} of {} vertices reached, {:.1} million edges/s",
        told.reached_vertices,
        told.vertices,
        told.edges_per_s() / 1e6
    );
    args.run.any.tell(&options, &summary, &told.report, &told)
}
