//! What the user may type.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use headrace_io::system::{GpuFor, Taker};
use headrace_ooc::sort::table::SortKey;

use crate::bench::args::BenchCommand;
use crate::doctor::DoctorArgs;
use crate::gpu::GpuArgs;
use crate::gpu_service::GpuServiceArgs;
use crate::manual::{CompletionsArgs, ManArgs};
use crate::model::ModelArgs;
use crate::ooc::{
    BfsArgs, DEFAULT_SEED, EigenArgs, FencesArgs, GenerateCommand, MatvecArgs, PagerankArgs,
    SetArgs, SortArgs, SpmvArgs,
};
use crate::output::Format;
use crate::pg::PgCommand;
use crate::sizes::{parse_bytes_or_zero, parse_memory};
use crate::trace::{TraceArgs, TraceFileParser};

/// SQL over tables that do not fit in memory, streamed into a GPU or the CPU.
#[derive(Debug, Parser)]
#[command(name = "headrace", disable_version_flag = true, args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  headrace demo
  headrace trips.parquet                                 a shell over a file; \\? lists its commands
  headrace --data ./tables                               a shell over a folder
  echo \"select 1\" | headrace --format csv
  headrace -c \"select count(*) from trips where fare > 100\" --data ./tables
  headrace -c \"select * from trips limit 3\" --data ./tables --format json
  headrace ssb generate --scale 10 --out ./ssb10 && headrace ssb run --data ./ssb10
  headrace doctor ./tables && headrace bench io ./tables --cold
  headrace pg export --table sales -o ./tables/
  headrace intersect a.i64 b.i64 -o both.i64 && headrace sort in.f64 --type f64 -o out.f64

Exit codes: 0 done, 1 the query or a file failed, 2 the command line is wrong, 130 interrupted by
Ctrl-C, 143 by SIGTERM (doctor: 0 all well, 1 something could be faster, 2 something is broken).")]
pub struct Cli {
    /// Print version, driver, NVRTC and GPUs.
    #[arg(short = 'V', long)]
    pub version: bool,
    #[command(flatten)]
    pub query: QueryArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Running SQL.
#[derive(Debug, Args)]
pub struct QueryArgs {
    /// A file or folder that becomes a table, as --data, or a text of SQL, as -c.
    #[arg(value_name = "FILE|SQL")]
    pub input: Vec<String>,
    /// SQL to run; several statements are separated by semicolons, or given by several -c. Without it and
    /// without a file, SQL is read from standard input; on a terminal a shell is opened.
    #[arg(
        short = 'c',
        long = "command",
        value_name = "SQL",
        conflicts_with = "file",
        allow_hyphen_values = true
    )]
    pub sql: Vec<String>,
    /// File of SQL to run ("-" is standard input).
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// A file, or every file and folder of files below a folder, becomes a table of its name; may be
    /// given several times. In SQL: select .. from 'trips.parquet'. Also s3:// and https:// addresses.
    #[arg(long, value_name = "PATH")]
    pub data: Vec<PathBuf>,
    /// How results are written (default: as FILE's name says, else table).
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// File to write results to, whole or not at all, instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The shell does not run ~/.headracerc.
    #[arg(long)]
    pub no_rc: bool,
    /// Only data and errors, no summary line.
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Which machines queries are divided among.
#[derive(Debug, Default, Args)]
pub struct ClusterArgs {
    /// Divide queries among the executors of a cluster, which its scheduler deals out (by the program headrace-cluster).
    #[arg(long, value_name = "HOST:PORT")]
    pub cluster: Option<SocketAddr>,
    /// Speak TLS with the cluster, whose certificates are of this authority.
    #[arg(long, value_name = "PEM", requires = "cluster")]
    pub tls_authority: Option<PathBuf>,
    /// The cluster's secret: the first line of a file.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    pub secret_file: Option<PathBuf>,
    /// Parts that a table is divided in on the cluster (default: by its bytes, at least 8).
    #[arg(long, value_name = "N", requires = "cluster", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub shares: Option<u32>,
}

/// How queries run.
#[derive(Clone, Debug, Args)]
pub struct EngineArgs {
    /// Where pipelines run: auto, cpu, cuda, or off (the planner's own plan).
    #[arg(long, value_name = "P", default_value = "auto")]
    pub processor: String,
    /// Whether work may run elsewhere than asked: allow or forbid.
    #[arg(long, value_name = "F", default_value = "allow")]
    pub fallback: String,
    /// Limit of host memory, such as 512MB or 4GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    pub memory_limit: Option<u64>,
    /// Folder of temporary files for groups that do not fit the memory limit (default: TMPDIR).
    #[arg(long, value_name = "DIR")]
    pub spill_folder: Option<PathBuf>,
    /// Limit of temporary files (default: 100GB).
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes_or_zero)]
    pub spill_limit: Option<u64>,
    /// Worker threads (default: all cores).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Device memory for columns that stay between queries, such as 0 or 40GB (default: most of it).
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes_or_zero)]
    pub device_cache: Option<u64>,
    /// Limit of the memory of each GPU (default: nine tenths of what is free).
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    pub device_memory: Option<u64>,
    /// The process that owns the GPUs and runs pipelines over Arrow files: auto (this user's, if it runs), off, or the
    /// folder of its socket. (default: auto; of suites: off)
    #[arg(long, value_name = "S")]
    pub gpu_service: Option<String>,
    /// How chunks are read: auto, mapped, buffered, direct; into a GPU also registered or cufile.
    #[arg(long, value_name = "PATH", default_value = "auto")]
    pub access: String,
    /// GPUs that take part in a query: all, or their ordinals, such as 0,1.
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub devices: String,
    /// Which of several GPUs takes the files below a path, or all (default: those nearest to its storage).
    #[arg(long, value_name = "PATH=N", value_delimiter = ',', value_parser = GpuFor::one)]
    pub gpu_for: Vec<(PathBuf, Taker)>,
    /// Record every stage of the race, as Chrome/Perfetto JSON.
    #[arg(long, value_name = "FILE", value_parser = TraceFileParser)]
    pub trace: Option<PathBuf>,
}

impl EngineArgs {
    /// For measurements: what they measure is this process, unless they are told otherwise.
    pub fn of_this_process(&self) -> Self {
        let gpu_service = self.gpu_service.clone().or_else(|| Some("off".into()));
        Self { gpu_service, ..self.clone() }
    }
}

impl Default for EngineArgs {
    fn default() -> Self {
        Self {
            processor: "auto".into(),
            fallback: "allow".into(),
            memory_limit: None,
            spill_folder: None,
            spill_limit: None,
            threads: None,
            device_cache: None,
            device_memory: None,
            gpu_service: Some("off".into()),
            access: "auto".into(),
            devices: "all".into(),
            gpu_for: Vec::new(),
            trace: None,
        }
    }
}

/// What another program takes.
#[derive(Debug, Args)]
pub struct WordsArgs {
    /// What that program takes; it says so by --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub words: Vec<OsString>,
}

/// Everything else.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Star Schema Benchmark.
    #[command(subcommand)]
    Ssb(SuiteCommand<SeededGenerateArgs>),
    /// The tables and the 22 queries of TPC-H; what is measured is no TPC-H result.
    #[command(subcommand)]
    Tpch(SuiteCommand<GenerateArgs>),
    /// The tables and the 99 queries of TPC-DS; what is measured is no TPC-DS result.
    #[command(subcommand)]
    Tpcds(SuiteCommand<GenerateArgs>),
    /// The table and the 43 queries of ClickBench over generated rows; what is measured is no ClickBench result.
    #[command(subcommand, name = "clickbench")]
    ClickBench(SuiteCommand<SeededGenerateArgs>),
    /// Fingerprints of compounds and embeddings, and 9 queries for the nearest of them; scale 10 is 10 million compounds.
    #[command(subcommand)]
    Similarity(SuiteCommand<SeededGenerateArgs>),
    /// Generate SSB once, run its 13 queries on every processor present, check the answers.
    Demo(DemoArgs),
    /// Write a Parquet, CSV, JSON or Arrow file as an Arrow file that Headrace streams.
    Convert(ConvertArgs),
    /// Tables of a PostgreSQL server.
    #[command(subcommand)]
    Pg(PgCommand),
    /// Keys that two sorted lists have in common.
    Intersect(Box<SetArgs>),
    /// Keys that either of two sorted lists has.
    Union(Box<SetArgs>),
    /// Keys of the first of two sorted lists that the second does not have.
    Difference(Box<SetArgs>),
    /// Keys that one of two sorted lists has and the other does not.
    SymmetricDifference(Box<SetArgs>),
    /// Keep an index of a few bytes a block beside a sorted list, so that more of it need not be read.
    Fences(FencesArgs),
    /// Sort a file of records of a fixed width, or an Arrow table by columns.
    Sort(Box<SortArgs>),
    /// Multiply a dense matrix in a file with vectors.
    Matvec(Box<MatvecArgs>),
    /// Multiply a sparse matrix in files with vectors.
    Spmv(Box<SpmvArgs>),
    /// Rank the vertices of a graph in files.
    Pagerank(Box<PagerankArgs>),
    /// Find how many edges the vertices of a graph in files are away from one of them.
    Bfs(Box<BfsArgs>),
    /// Compute the largest eigenvalues of a symmetric matrix in files, and their vectors.
    Eigen(Box<EigenArgs>),
    /// Write files for the out-of-core operators to work on.
    #[command(subcommand)]
    Generate(GenerateCommand),
    /// Measure how fast storage feeds the GPU or the host.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// What stands between storage and the GPU: tries every way, measures, says what to do.
    Doctor(DoctorArgs),
    /// The GPUs with their properties and what lies in their memory.
    Gpu(GpuArgs),
    /// Serve tables to many users: PostgreSQL's protocol, HTTP, Arrow Flight SQL (by the program headrace-server).
    #[command(disable_help_flag = true)]
    Serve(WordsArgs),
    /// Answer an assistant's questions about tables, by the Model Context Protocol (by the program headrace-server).
    #[command(disable_help_flag = true)]
    Mcp(WordsArgs),
    /// Start, stop or examine the process that owns the GPUs, and runs the pipelines of other processes. The sessions of
    /// a PostgreSQL cluster start theirs by themselves, with --data.
    GpuService(GpuServiceArgs),
    /// Predict how long a scan takes, and what is the limit.
    Model(Box<ModelArgs>),
    /// Put traces of several runs into one file.
    Trace(TraceArgs),
    /// Every setting, flag and environment variable, as Markdown.
    Settings,
    /// The functions of SQL with examples and their answers, as Markdown.
    Functions,
    /// Completions for a shell: `source <(headrace completions bash)`.
    Completions(CompletionsArgs),
    /// Pages of the manual: `headrace man | man -l -`.
    Man(ManArgs),
}

/// The subcommands of a benchmark suite, whose generator takes `G`.
#[derive(Debug, Subcommand)]
pub enum SuiteCommand<G: Args> {
    /// Generate the tables.
    Generate(G),
    /// Run the queries.
    Run(Box<RunArgs>),
    /// Print the queries as a JSON object from name to SQL.
    Queries,
}

/// `generate` of a suite whose values depend on a seed.
#[derive(Debug, Args)]
pub struct SeededGenerateArgs {
    #[command(flatten)]
    pub tables: GenerateArgs,
    /// Another seed gives other data of the same shape.
    #[arg(long, default_value_t = DEFAULT_SEED)]
    pub seed: u64,
}

/// `generate` of any suite.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Scale factor: 1 is 6 million rows of the largest table, of TPC-DS 3 million, of ClickBench and of
    /// similarity search 1 million.
    #[arg(long, value_name = "S")]
    pub scale: f64,
    /// Folder to write to.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Generator threads (default: all cores).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Write the largest table as a folder of N files instead of one file (several are written at once).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub files: Option<u32>,
    /// Rows of a record batch. Of 2 Mi rows, a column of 4 bytes is a copy of 8 MiB, which uses the
    /// link to a GPU better.
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub batch_rows: u64,
    /// No progress bar.
    #[arg(short, long)]
    pub quiet: bool,
}

/// `run` of any suite.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Folder that `generate` wrote.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Queries, such as 1.1,3.4 of SSB and 1,15 of the others (default: all).
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub queries: Vec<String>,
    /// Hot runs of each query.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub runs: u32,
    /// Drop the files from the page cache before each query's first run.
    #[arg(long)]
    pub cold: bool,
    /// Compare each answer with the planner's own plan.
    #[arg(long)]
    pub check: bool,
    /// Write the measurements as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Scale factor.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// A large table joined with a small one and grouped, instead: without pipelines, on the cores and on a GPU.
    #[arg(long, conflicts_with = "scale")]
    pub join: bool,
    /// Rows of that table, of 21 bytes each.
    #[arg(long, value_name = "N", requires = "join", default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(100_000..=1_000_000_000_000))]
    pub rows: u64,
    /// Where the tables are kept between runs.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// `convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// Parquet, CSV, JSON or Arrow file, or a folder of files of one kind.
    pub input: PathBuf,
    /// Arrow file to write; with --partition-by, a folder.
    pub output: PathBuf,
    /// Write repeated text as a dictionary (text with few distinct values streams fastest so).
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub dictionary: Vec<String>,
    /// Write decimals in 4 or 8 bytes instead of 16 and signed integers in 1, 2 or 4, where all values fit: fewer bytes to
    /// read. They stay what they are for Headrace; other programs read decimals so with Arrow's libraries of version 19
    /// (2025) and later. Input without statistics is read twice.
    #[arg(long)]
    pub narrow: bool,
    /// As --narrow, and integers, dates and decimals in as few bytes as the range of their values asks for: 1 to 4, as
    /// differences from the smallest. Half the bytes, or less; other programs see such columns as binary values.
    #[arg(long)]
    pub packed: bool,
    /// Sort by columns, such as date,price:desc,name:asc:nulls-first.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub sort_by: Vec<SortKey>,
    /// Write a folder of Arrow files: a file for each combination of values of these columns, in folders
    /// that they name (year=2024/month=1/part.arrow).
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub partition_by: Vec<String>,
    /// Limit of host memory, such as 512MB or 4GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    pub memory_limit: Option<u64>,
    /// Replace an existing output file, or a folder of partitions.
    #[arg(long)]
    pub force: bool,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
