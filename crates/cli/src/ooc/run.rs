//! Common options and output of the operators.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use headrace_bench::transfer::PathChoice;
use headrace_flow::Trace;
use headrace_ooc::{OocError, Options, Processor, Report};
use serde::Serialize;

use crate::error::{CliError, Result};
use crate::memory::give_back_what_is_free;
use crate::output::{is_stdout, print_json, put};
use crate::sizes::{parse_bytes, parse_memory};
use crate::trace::{self, SPANS_MAX, TraceFileParser};

/// How an operator runs.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Where the work is done: auto, cpu or cuda.
    #[arg(long, value_name = "P", default_value = "auto")]
    pub processor: Processor,
    /// Ordinal of the GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
    /// Limit of device memory (default: nine tenths of what is free).
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub device_limit: Option<u64>,
    /// Input that is worked on at once, such as 16MiB (default: what suits the operator).
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub chunk: Option<u64>,
    /// Chunks under way; on a GPU, 1 overlaps nothing (default: what suits the operator).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub slots: Option<u32>,
    /// How the input is read: auto, uring (O_DIRECT, io_uring), direct (O_DIRECT, threads), pread (page
    /// cache, threads), mmap, and into a GPU registered and cufile.
    #[arg(long, value_name = "WAY", default_value = "auto")]
    pub path: PathChoice,
    #[command(flatten)]
    pub any: AnyArgs,
}

/// What is asked of whatever reads or writes large files.
#[derive(Debug, Clone, Args)]
pub struct AnyArgs {
    /// Worker threads (default: all cores).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Limit of host memory, such as 512MB or 4GiB (default: half of what is free).
    #[arg(long, value_name = "BYTES", value_parser = parse_memory)]
    pub memory_limit: Option<u64>,
    /// Have the output on stable storage before the command ends.
    #[arg(long)]
    pub sync: bool,
    /// Write the record as JSON ("-": to standard output).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Record every stage of the race, as Chrome/Perfetto JSON.
    #[arg(long, value_name = "FILE", value_parser = TraceFileParser)]
    pub trace: Option<PathBuf>,
    /// Only data and errors.
    #[arg(short, long)]
    pub quiet: bool,
}

impl RunArgs {
    /// As an operators' option.
    pub fn options(&self, cancel: Arc<AtomicBool>) -> Options {
        let (access, direct_engine) = self.path.access();
        Options {
            processor: self.processor,
            device: self.device,
            device_limit_bytes: self.device_limit,
            chunk_bytes: self.chunk.map(|bytes| bytes as usize),
            slots: self.slots.map(|slots| slots as usize),
            access,
            direct_engine,
            ..self.any.options(cancel)
        }
    }
}

impl AnyArgs {
    /// As an operators' option.
    pub fn options(&self, cancel: Arc<AtomicBool>) -> Options {
        if self.memory_limit.is_some() {
            give_back_what_is_free();
        }
        Options {
            threads: self.threads.map(|threads| threads as usize),
            memory_limit_bytes: self.memory_limit,
            sync: self.sync,
            trace: self.trace.as_ref().map(|_| Trace::new("headrace", SPANS_MAX)),
            token: cancel.into(),
            ..Options::default()
        }
    }

    /// Reports the run beside the answer: for people, and in the requested files.
    pub fn tell(
        &self,
        options: &Options,
        summary: &str,
        report: &Report,
        record: &impl Serialize,
    ) -> Result<()> {
        if !self.quiet {
            say!("{summary}");
            report.lines().iter().for_each(|line| say!("{line}"));
            if let Some(peak) = headrace_io::system::peak_memory_bytes() {
                say!("peak resident memory {:.0} MB", peak as f64 / 1e6);
            }
        }
        if let (Some(file), Some(trace)) = (&self.trace, &options.trace) {
            trace::write(file, trace)?;
        }
        match &self.json {
            Some(file) if is_stdout(file) => print_json(record),
            Some(file) => {
                let text = serde_json::to_string_pretty(record).map_err(CliError::new)?;
                put(file, &(text + "\n"))
            }
            None => Ok(()),
        }
    }
}

/// The operators' errors in this command line's form.
pub fn failure(error: OocError) -> CliError {
    let is_usage = matches!(error, OocError::Usage { .. });
    let failure = CliError::carrying_hint(error);
    if is_usage { failure.into_usage() } else { failure }
}
