//! The service's options.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use headrace_ceilings::model::parse_bytes;
use headrace_runner::Processor;

/// How the service runs, for whoever starts it.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The cluster's data directory: where the socket, the lock and the log lie, and the files of tables.
    #[arg(long, value_name = "FOLDER")]
    pub data: PathBuf,
    /// What runs pipelines: cuda (a GPU; what it does not take is refused, and the session runs it),
    /// auto (a GPU, and this process's own threads for what it does not take), cpu (those alone, for tests).
    #[arg(long, default_value = "cuda", value_parser = processor)]
    pub processor: Processor,
    /// What it may take.
    #[command(flatten)]
    pub limits: Limits,
    /// Seconds without a session after which it ends; 0: never.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub idle_exit: u32,
    /// It ends when this process does (default: the one that postmaster.pid names, if there is one).
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub postmaster: Option<i32>,
    /// Where its messages go, from the data directory; stderr: to where they go anyway. (default with
    /// --detach: headrace-service.log, else stderr)
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Opens the GPUs at once; otherwise the first run does.
    #[arg(long)]
    pub open_devices: bool,
    /// Goes on in a process of its own, and returns when that can be asked.
    #[arg(long)]
    pub detach: bool,
}

/// Whose functions in CUDA it runs. Their code can read and write whatever the service has of anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CudaFunctions {
    /// Those of all who may ask it at all, which are processes of its own user: the kernel says whose a connection is.
    Owner,
    /// Nobody's.
    Off,
}

/// What it may take.
#[derive(Args, Clone, Debug)]
pub struct Limits {
    /// Runs at a time; others wait, first come, first served.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub runs: u16,
    /// Limit of host memory, such as 16GiB (default: half of what is available at the start).
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory_limit: Option<u64>,
    /// Limit of the memory of each GPU (default: nine tenths of what is free at its first use).
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub device_memory_limit: Option<u64>,
    /// Whose functions in CUDA it runs: its owner's (no other user's processes may ask it), or nobody's.
    #[arg(
        long,
        value_enum,
        default_value = "owner",
        hide_possible_values = true,
        value_name = "owner|off"
    )]
    pub cuda_functions: CudaFunctions,
}

fn processor(text: &str) -> Result<Processor, String> {
    match text.parse() {
        Ok(Processor::Off) | Err(_) => Err("valid values are cuda, auto, cpu".into()),
        Ok(processor) => Ok(processor),
    }
}
