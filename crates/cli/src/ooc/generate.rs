//! `headrace generate`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};
use headrace_io::MemoryBudget;
use headrace_ooc::NumberType;
use headrace_ooc::generate::{
    self as make, KeyOrder, KeysJob, MatrixContent, MatrixJob, MatrixKind, RmatJob,
};

use super::run::{AnyArgs, failure};
use crate::error::{CliError, Result};
use crate::output::print;

/// Seed of generated data unless another is asked for.
pub const DEFAULT_SEED: u64 = 42;

/// What can be generated.
#[derive(Debug, Subcommand)]
pub enum GenerateCommand {
    /// One file of keys, or two that have some of them in common.
    Keys(Box<KeysArgs>),
    /// A dense matrix.
    Matrix(Box<MatrixArgs>),
    /// A graph with few vertices of many edges (R-MAT), as a sparse matrix.
    Rmat(Box<RmatArgs>),
}

/// `generate rmat`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headrace generate rmat graph --scale 20
  headrace generate rmat graph --scale 26 --memory-limit 4GiB
  headrace generate rmat graph --scale 20 --edges 8 --undirected

The folder gets indptr.npy, indices.npy and shape.npy: compressed sparse rows, where row r lists who points at r.
Meanwhile it needs 16 to 24 bytes an edge. The same seed makes the same files.")]
pub struct RmatArgs {
    /// Folder to write to.
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// The graph has 2^N vertices, up to 2^32.
    #[arg(long, value_name = "N")]
    pub scale: u32,
    /// Edges that are drawn for each vertex.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub edges: u64,
    /// Each edge leads both ways.
    #[arg(long)]
    pub undirected: bool,
    /// An edge that is drawn again is one more edge; otherwise it is left out.
    #[arg(long)]
    pub keep_repeats: bool,
    /// Another seed gives another graph.
    #[arg(long, default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    #[command(flatten)]
    pub any: AnyArgs,
}

/// `generate matrix`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headrace generate matrix a.npy --rows 100000 --columns 4096
  headrace generate matrix a.bf16 --rows 100000 --columns 4096 --type bf16
  headrace generate matrix square.npy --rows 8192 --columns 8192 --kind dominant")]
pub struct MatrixArgs {
    /// File to write: .npy by its name, else nothing but values, row by row.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Rows.
    #[arg(long, value_name = "N")]
    pub rows: u64,
    /// Columns.
    #[arg(long, value_name = "N")]
    pub columns: u64,
    /// Type of the values: f32, f64 or bf16.
    #[arg(long = "type", value_name = "TYPE", default_value = "f32")]
    pub number: NumberType,
    /// What they are: uniform (evenly in -1..1), or dominant (a largest eigenvalue that is known, and printed).
    #[arg(long, value_name = "KIND", default_value = "uniform")]
    pub kind: MatrixKind,
    /// Another seed gives other values.
    #[arg(long, default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    #[command(flatten)]
    pub any: AnyArgs,
}

/// `generate keys`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  headrace generate keys a.i64 b.i64 --keys 100000000 --selectivity 0.3
  headrace generate keys big.i64 small.i64 --keys 100000000,1000000 --skew 0.5
  headrace generate keys in.u32 --type u32 --keys 500000000 --order random")]
pub struct KeysArgs {
    /// Files to write.
    #[arg(required = true, num_args = 1..=2, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Keys of each file, or of both.
    #[arg(long, value_name = "N", value_delimiter = ',', required = true, num_args = 1..=2)]
    pub keys: Vec<u64>,
    /// Type of the keys: i32, u32, i64, u64, f32, f64.
    #[arg(long = "type", value_name = "TYPE", default_value = "i64")]
    pub number: NumberType,
    /// Their order: sorted, reversed, random, zipf.
    #[arg(long, value_name = "ORDER", default_value = "sorted")]
    pub order: KeyOrder,
    /// Share of the smaller file's keys that the other has, too, of sorted files.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    pub selectivity: f64,
    /// How unevenly the smaller file's keys lie among the larger one's: 0 evenly, below 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub skew: f64,
    /// How often each key comes, of sorted and reversed files.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub repeats: u64,
    /// Another seed gives other keys of the same shape.
    #[arg(long, default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    #[command(flatten)]
    pub any: AnyArgs,
}

/// Writes what was asked for.
pub fn generate(command: &GenerateCommand, cancel: Arc<AtomicBool>) -> Result<()> {
    match command {
        GenerateCommand::Keys(args) => keys(args, cancel),
        GenerateCommand::Matrix(args) => matrix(args, cancel),
        GenerateCommand::Rmat(args) => rmat(args, cancel),
    }
}

fn keys(args: &KeysArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    if args.keys.len() > args.files.len() {
        let what = format!("{} numbers of keys and {} files", args.keys.len(), args.files.len());
        return Err(CliError::usage(what).hint("name a file for each"));
    }
    let count = |file: usize| args.keys[file.min(args.keys.len() - 1)];
    let outputs: Vec<(PathBuf, u64)> =
        args.files.iter().enumerate().map(|(file, path)| (path.clone(), count(file))).collect();
    let written: u64 = outputs.iter().map(|(_, keys)| keys).sum();
    let job = KeysJob {
        outputs,
        number: args.number,
        order: args.order,
        selectivity: args.selectivity,
        skew: args.skew,
        repeats: args.repeats,
        seed: args.seed,
    };
    let options = args.any.options(cancel);
    let report = make::keys(&job, &options).map_err(failure)?;
    args.any.tell(&options, &format!("{written} keys written"), &report, &report)
}

fn matrix(args: &MatrixArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    let job = MatrixJob {
        path: args.file.clone(),
        rows: args.rows,
        columns: args.columns,
        number: args.number,
        seed: args.seed,
        kind: args.kind,
    };
    let options = args.any.options(cancel);
    let report = make::matrix(&job, &options).map_err(failure)?;
    if args.kind == MatrixKind::Dominant {
        let content = MatrixContent::new(&job, &MemoryBudget::new(u64::MAX)).map_err(failure)?;
        if let Some((eigenvalue, _)) = content.dominant() {
            print(&format!("{eigenvalue}\n"))?;
        }
    }
    args.any.tell(
        &options,
        &format!("{} x {} values written", args.rows, args.columns),
        &report,
        &report,
    )
}

fn rmat(args: &RmatArgs, cancel: Arc<AtomicBool>) -> Result<()> {
    let job = RmatJob {
        folder: args.folder.clone(),
        scale: args.scale,
        edges_per_vertex: args.edges,
        is_undirected: args.undirected,
        keeps_repeats: args.keep_repeats,
        seed: args.seed,
    };
    let options = args.any.options(cancel);
    let told = make::rmat(&job, &options).map_err(failure)?;
    let summary = format!(
        "{} vertices and {} edges written, of {} drawn",
        told.vertices, told.edges, told.drawn_edges
    );
    args.any.tell(&options, &summary, &told.report, &told)
}
