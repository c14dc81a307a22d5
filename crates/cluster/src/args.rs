//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// One query on several machines.
#[derive(Debug, Parser)]
#[command(name = "headrace-cluster", version, about)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Deals out the tasks of queries to executors.
    Scheduler(SchedulerArgs),
    /// Runs tasks; its tables are files that lie under the same paths as where queries come from.
    Executor(ExecutorArgs),
    /// Runs a query: what can be divided on the executors, the rest here.
    Query(QueryArgs),
    /// What `headrace --cluster` becomes: that command line, whose queries are divided.
    #[command(hide = true)]
    Shell(ShellArgs),
}

#[derive(Debug, clap::Args)]
pub struct ShellArgs {
    /// The version of the `headrace` that became this.
    #[arg(long, value_name = "VERSION")]
    pub of: String,
    /// Its words.
    #[arg(last = true)]
    pub words: Vec<OsString>,
}

/// What a member shows to those who come.
#[derive(Debug, Default, clap::Args)]
pub struct CertificateArgs {
    /// The certificate, and those above it, for TLS; it holds for the address that others connect to.
    #[arg(long, requires = "tls_key", value_name = "PEM")]
    pub tls_certificate: Option<PathBuf>,
    /// The key of the certificate.
    #[arg(long, requires = "tls_certificate", value_name = "PEM")]
    pub tls_key: Option<PathBuf>,
}

/// How a member connects to others.
#[derive(Debug, Default, clap::Args)]
pub struct MemberArgs {
    /// Speak TLS with the others, whose certificates are of this authority.
    #[arg(long, value_name = "PEM")]
    pub tls_authority: Option<PathBuf>,
    /// The secret that all members share: the first line of a file, 16 letters at least.
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct SchedulerArgs {
    /// Where executors and queries come; port 0: one that is free.
    #[arg(long, default_value = "127.0.0.1:50050", value_name = "HOST:PORT")]
    pub listen: SocketAddr,
    /// Seconds without a word after which an executor counts as lost. A busy one is heard every 5 seconds.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(6..=3600), value_name = "SECONDS")]
    pub executor_timeout: u64,
    #[command(flatten)]
    pub certificate: CertificateArgs,
    /// The secret that all members share: the first line of a file, 16 letters at least.
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct ExecutorArgs {
    /// The scheduler.
    #[arg(long, value_name = "HOST:PORT")]
    pub scheduler: SocketAddr,
    /// Where other executors and queries fetch what it has made; port 0: one that is free.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    pub listen: SocketAddr,
    /// Host memory for tasks (512MB, 4GiB); half of what is there.
    #[arg(long, value_parser = headrace_cli::parse_memory, value_name = "SIZE")]
    pub memory_limit: Option<u64>,
    /// Folder for what tasks hand on to each other; a temporary one.
    #[arg(long, value_name = "FOLDER")]
    pub work_folder: Option<PathBuf>,
    #[command(flatten)]
    pub certificate: CertificateArgs,
    #[command(flatten)]
    pub member: MemberArgs,
}

#[derive(Debug, clap::Args)]
pub struct QueryArgs {
    /// The scheduler.
    #[arg(long, value_name = "HOST:PORT")]
    pub cluster: SocketAddr,
    /// Files and folders that become tables.
    #[arg(long, value_name = "PATH")]
    pub data: Vec<PathBuf>,
    /// How the answer is written: table, csv, tsv, json, ndjson, markdown, arrow, ..
    #[arg(long, default_value = "table")]
    pub format: String,
    /// What runs pipelines: auto, cpu, cuda, off.
    #[arg(long, default_value = "auto")]
    pub processor: String,
    /// Parts that a table is divided in; by its bytes.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536), value_name = "NUMBER")]
    pub shares: Option<u32>,
    #[command(flatten)]
    pub member: MemberArgs,
    /// The query.
    #[arg(allow_hyphen_values = true)]
    pub sql: String,
}
