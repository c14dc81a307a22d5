//! The command line of `headrace bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use headrace_bench::transfer::PathChoice;
use headrace_engine::Fallback;
use headrace_io::system::{GpuFor, Taker};

use super::ooc::OocArgs;
use crate::sizes::parse_bytes;
use crate::trace::TraceFileParser;

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// How fast storage feeds the GPU or the host, by which way, and what is the limit.
    #[command(after_help = "\
Examples:
  headrace bench io ./ssb10 --to gpu --verify
  headrace bench io /data/a.arrow /data2/b.arrow --cold --path uring --to host
  headrace bench io /data/a.arrow --random 4KiB --cold
  headrace bench io /data/a.arrow --to gpu --path cufile --fallback forbid
  headrace bench io /data/a.arrow --sweep --sweep-seconds 120 --json sweep.json
  headrace bench io /data/new.bin --write --size 8GiB
  headrace bench io /data/new.bin --write --size 8GiB --random 4KiB

Sizes: MB = 10^6, MiB = 2^20. Speeds: GB/s with GB = 10^9 bytes.")]
    Io(Box<IoArgs>),
    /// How fast out-of-core operators are, in core and out of core, on the cores and the GPU, beside
    /// plain reads of the same files and the model.
    #[command(after_help = "\
Examples:
  headrace bench ooc intersect --folder /data/tmp --max 100GB --markdown figures.md
  headrace bench ooc --folder . --max 200MB --quick --json record.json

Inputs are generated in a folder of their own below DIR, which is removed at the end, also after
Ctrl-C. Sizes: MB = 10^6, MiB = 2^20. Speeds: GB/s with GB = 10^9 bytes, of the input.")]
    Ooc(Box<OocArgs>),
}

/// `bench io`.
#[derive(Debug, Args)]
pub struct IoArgs {
    /// Files, folders (all files below) or block devices.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Where the bytes go: host, gpu (the first one), gpu:N or gpu:N,M. Default: the first GPU,
    /// or the host where there is none, and with --write.
    #[arg(long, value_name = "TARGET", value_parser = parse_target)]
    pub to: Option<TargetArg>,
    /// Way of the bytes: auto, uring (O_DIRECT, io_uring), direct (O_DIRECT, threads), pread (page
    /// cache, threads), mmap, and to a GPU registered (copied from the mapping itself) and cufile.
    /// Several with --sweep.
    #[arg(long, value_name = "WAY", value_delimiter = ',')]
    pub path: Vec<PathChoice>,
    /// Whether bytes may take another way than the named one: allow (the record says which), or forbid (then that is an error).
    #[arg(long, value_name = "F", default_value_t = Fallback::Allow)]
    pub fallback: Fallback,
    /// Copy to the GPU from pinned memory (the default).
    #[arg(long, conflicts_with = "pageable")]
    pub pinned: bool,
    /// Copy to the GPU from ordinary memory.
    #[arg(long)]
    pub pageable: bool,
    /// Bytes that are transferred at once, such as 16MiB. Several with --sweep.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = parse_bytes)]
    pub chunk: Vec<u64>,
    /// Chunks in flight (default: as many as fit 144 MiB).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub slots: Option<u32>,
    /// Reads in the kernel at once, with io_uring.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
    /// Reader threads (default: all cores, at most 16). Several with --sweep.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Vec<u32>,
    /// Read blocks of this size in random order, or write them into a file of --size, and report IOPS.
    #[arg(long, value_name = "BYTES", num_args = 0..=1, default_missing_value = "4KiB", value_parser = parse_bytes, conflicts_with = "chunk")]
    pub random: Option<u64>,
    /// Files below PATH go to GPU N, or to all.
    #[arg(long, value_name = "PATH=N", value_parser = GpuFor::one)]
    pub gpu_for: Vec<(PathBuf, Taker)>,

    /// Drop the files from the page cache first.
    #[arg(long, conflicts_with_all = ["hot", "write"])]
    pub cold: bool,
    /// With --cold: drop all caches of the machine as well. Only root may, and everybody notices.
    #[arg(long, requires = "cold")]
    pub drop_all_caches: bool,
    /// Read the files once first.
    #[arg(long, conflicts_with = "write")]
    pub hot: bool,
    /// Compare checksums of what arrived with plain reads; on a GPU it is the GPU that sums.
    #[arg(long)]
    pub verify: bool,
    /// Transfer at most this much.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub limit: Option<u64>,
    /// End each run after this long, with what it has (default with --random: 10).
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Repeat the run.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,

    /// Write instead of read: a file of --size at PATH (in PATH, if it is a folder), which is
    /// removed afterwards.
    #[arg(long)]
    pub write: bool,
    /// Bytes to write.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "write", default_value = "4GiB")]
    pub size: u64,
    /// Replace the file, or overwrite the block device, that is there. What it held is lost.
    #[arg(long, requires = "write")]
    pub overwrite: bool,
    /// Leave the file that was written.
    #[arg(long, requires = "write")]
    pub keep: bool,

    /// Measure a grid: ways, chunk sizes, threads, pinned and pageable, 1 to n paths and GPUs.
    #[arg(long, conflicts_with_all = ["runs", "trace"])]
    pub sweep: bool,
    /// Time for the whole sweep.
    #[arg(long, value_name = "S", default_value_t = 60.0, requires = "sweep", value_parser = parse_seconds)]
    pub sweep_seconds: f64,

    /// Write the record as JSON ("-": to standard output, in place of the text).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Record every stage of the race, as Chrome/Perfetto JSON.
    #[arg(long, value_name = "FILE", value_parser = TraceFileParser)]
    pub trace: Option<PathBuf>,
    /// Do not add to the record of this machine's ceilings.
    #[arg(long)]
    pub no_record: bool,
    /// No progress line.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Where the bytes go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetArg {
    /// Host memory.
    Host,
    /// These GPUs.
    Gpus(Vec<usize>),
}

fn parse_target(text: &str) -> Result<TargetArg, String> {
    let usage = || format!("{text:?} is no target; write host, gpu, gpu:1 or gpu:0,1");
    match text {
        "host" | "cpu" => return Ok(TargetArg::Host),
        "gpu" => return Ok(TargetArg::Gpus(vec![0])),
        _ => {}
    }
    let list = text.strip_prefix("gpu:").ok_or_else(usage)?;
    let gpus: Vec<usize> =
        list.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| usage())?;
    let mut distinct = gpus.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() != gpus.len() {
        return Err(format!("{text:?} names a GPU twice"));
    }
    Ok(TargetArg::Gpus(gpus))
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e6 => Ok(seconds),
        _ => Err(format!("{text:?} is no time; write seconds, such as 30 or 0.5")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn targets_and_ways() {
        assert_eq!(parse_target("host").unwrap(), TargetArg::Host);
        assert_eq!(parse_target("gpu").unwrap(), TargetArg::Gpus(vec![0]));
        assert_eq!(parse_target("gpu:1,3").unwrap(), TargetArg::Gpus(vec![1, 3]));
        for wrong in ["", "gpu:", "gpu:x", "gpu:0,0", "tpu", "gpu:-1"] {
            assert!(parse_target(wrong).is_err(), "{wrong}");
        }
        assert_eq!("uring".parse(), Ok(PathChoice::Uring));
        assert!("dma".parse::<PathChoice>().unwrap_err().contains("cufile"));
    }

    #[test]
    fn seconds_are_above_0() {
        assert_eq!(parse_seconds("0.5").unwrap(), 0.5);
        for wrong in ["0", "-1", "NaN", "soon", "1e9"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
