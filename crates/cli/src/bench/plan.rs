//! From the command line to plans.

use std::time::Duration;

use headrace_bench::transfer::{
    BenchPlan, CacheState, Grid, HostMemory, Operation, PathChoice, Pattern, SweepPlan, Target,
};
use headrace_engine::Fallback;
use headrace_flow::Trace;
use headrace_io::system::GpuFor;

use super::args::{IoArgs, TargetArg};
use crate::error::{CliError, Context, Result};
use crate::trace::SPANS_MAX;

/// Chunk sizes of a sweep.
const SWEEP_CHUNKS: [u64; 6] = [1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 512 << 20];

/// Block sizes of a random sweep.
const SWEEP_BLOCKS: [u64; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// Chunks that are copied in place need no slot and may be large: on a link of 55.4 GB/s, 16 MiB
/// reached 54.5 GB/s and 64 MiB 55.2.
const REGISTERED_CHUNK_BYTES: u64 = 64 << 20;

/// Seconds of a random run.
const RANDOM_S: f64 = 10.0;

/// The plan of one run; for a sweep, the common part of its points.
pub fn base(args: &IoArgs) -> Result<BenchPlan> {
    let plain = BenchPlan::new(args.paths.clone());
    if !args.sweep {
        one("--path", args.path.len())?;
        one("--chunk", args.chunk.len())?;
        one("--threads", args.threads.len())?;
    }
    let pattern = match (args.random, args.chunk.first()) {
        (Some(block_bytes), _) => Pattern::Random { block_bytes },
        (None, Some(&chunk_bytes)) => Pattern::Sequential { chunk_bytes },
        (None, None) if args.path.first() == Some(&PathChoice::Registered) => {
            Pattern::Sequential { chunk_bytes: REGISTERED_CHUNK_BYTES }
        }
        (None, None) => plain.pattern,
    };
    let seconds = args.seconds.or(args.random.map(|_| RANDOM_S));
    Ok(BenchPlan {
        operation: operation(args),
        target: target(args),
        path: args.path.first().copied().unwrap_or(PathChoice::Auto),
        forbids_other_paths: args.fallback == Fallback::Forbid,
        memory: if args.pageable { HostMemory::Pageable } else { HostMemory::Pinned },
        pattern,
        slots: args.slots.map(|slots| slots as usize),
        depth: args.depth,
        threads: args.threads.first().map_or(plain.threads, |threads| *threads as usize),
        cache: cache(args),
        verify: args.verify,
        limit_bytes: args.limit,
        time_limit: seconds.map(Duration::from_secs_f64),
        gpu_for: GpuFor::of(args.gpu_for.clone()).at("--gpu-for")?,
        trace: args.trace.as_ref().map(|_| Trace::new("headrace bench io", SPANS_MAX)),
        ..plain
    })
}

fn one(flag: &str, values: usize) -> Result<()> {
    if values <= 1 {
        return Ok(());
    }
    Err(CliError::usage(format!("{flag} has {values} values and there is one run"))
        .hint("--sweep measures all of them"))
}

fn operation(args: &IoArgs) -> Operation {
    if args.write {
        Operation::Write { bytes: args.size, overwrite: args.overwrite, keep: args.keep }
    } else {
        Operation::Read
    }
}

fn cache(args: &IoArgs) -> CacheState {
    match (args.cold, args.drop_all_caches, args.hot) {
        (true, true, _) => CacheState::ColdEverything,
        (true, false, _) => CacheState::Cold,
        (false, _, true) => CacheState::Hot,
        _ => CacheState::AsIs,
    }
}

/// The default target: the first GPU, or the host, and why.
fn target(args: &IoArgs) -> Target {
    match &args.to {
        Some(TargetArg::Host) => Target::Host,
        Some(TargetArg::Gpus(gpus)) => Target::Gpus(gpus.clone()),
        None if args.write => Target::Host,
        None => match headrace_gpu::probe().reason {
            None => Target::Gpus(vec![0]),
            Some(reason) => {
                if !args.quiet {
                    let reason = reason.lines().next().unwrap_or_default();
                    say!("to the host: {reason}");
                }
                Target::Host
            }
        },
    }
}

/// The grid: the given values, or else the usual ones.
pub fn sweep(args: &IoArgs, base: BenchPlan) -> SweepPlan {
    let gpus = match &base.target {
        Target::Host => 0,
        Target::Gpus(gpus) => gpus.len(),
    };
    let sizes = if args.random.is_some() { &SWEEP_BLOCKS[..] } else { &SWEEP_CHUNKS[..] };
    let memory = match (gpus, args.pinned, args.pageable) {
        (0, ..) => Vec::new(),
        // Written from a GPU, bytes pass pinned memory only.
        _ if args.write => Vec::new(),
        (_, true, _) => vec![HostMemory::Pinned],
        (_, _, true) => vec![HostMemory::Pageable],
        _ => vec![HostMemory::Pinned, HostMemory::Pageable],
    };
    let grid = Grid {
        paths: or_default(&args.path, || ways(gpus > 0, args.write)),
        chunk_bytes: match args.random {
            // A stated block size is the only one.
            Some(block) if block != SWEEP_BLOCKS[0] => vec![block],
            _ => or_default(&args.chunk, || sizes.to_vec()),
        },
        threads: match args.threads.is_empty() {
            true => powers_up_to(base.threads),
            false => args.threads.iter().map(|threads| *threads as usize).collect(),
        },
        memory,
        path_counts: powers_up_to(base.paths.len()),
        gpu_counts: if gpus == 0 { Vec::new() } else { powers_up_to(gpus) },
    };
    SweepPlan { base, grid, time: Duration::from_secs_f64(args.sweep_seconds) }
}

fn ways(to_gpu: bool, write: bool) -> Vec<PathChoice> {
    let mut ways = vec![PathChoice::Uring, PathChoice::Direct, PathChoice::Pread];
    if !write {
        ways.push(PathChoice::Mmap);
    }
    if to_gpu && !write {
        ways.extend([PathChoice::Registered, PathChoice::Cufile]);
    }
    ways
}

fn or_default<T: Clone>(named: &[T], default: impl FnOnce() -> Vec<T>) -> Vec<T> {
    if named.is_empty() { default() } else { named.to_vec() }
}

/// 1, 2, 4, … and `last` itself.
fn powers_up_to(last: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1usize), |n| n.checked_mul(2));
    powers.take_while(|n| *n < last).chain([last]).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::{Cli, Command};
    use crate::bench::args::BenchCommand;
    use clap::Parser;

    fn args(line: &str) -> IoArgs {
        let line = format!("headrace bench io {line}");
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let Some(Command::Bench(BenchCommand::Io(args))) = cli.command else { panic!("{line}") };
        *args
    }

    #[test]
    fn flags_become_a_plan() {
        let plan =
            base(&args("/a /b --to gpu:0,1 --path uring --chunk 4MiB --threads 3 --cold")).unwrap();
        assert_eq!(plan.paths.len(), 2);
        assert_eq!(plan.target, Target::Gpus(vec![0, 1]));
        assert_eq!((plan.path, plan.threads), (PathChoice::Uring, 3));
        assert_eq!(plan.pattern, Pattern::Sequential { chunk_bytes: 4 << 20 });
        assert_eq!((plan.cache, plan.memory), (CacheState::Cold, HostMemory::Pinned));
        let plan = base(&args("/a --to host --random")).unwrap();
        assert_eq!(plan.pattern, Pattern::Random { block_bytes: 4096 });
        assert_eq!(plan.time_limit, Some(Duration::from_secs(10)));
        let plan = base(&args("/a --to host --write --size 1GiB --keep")).unwrap();
        let wanted = Operation::Write { bytes: 1 << 30, overwrite: false, keep: true };
        assert_eq!(plan.operation, wanted);
        let plan = base(&args("/a --to host --write --size 1GiB --random 16KiB")).unwrap();
        assert_eq!(plan.pattern, Pattern::Random { block_bytes: 16 << 10 });
        assert!(base(&args("/a --to host --chunk 1MiB,2MiB")).is_err());
        assert!(!plan.forbids_other_paths);
        let plan = base(&args("/a --to gpu --path cufile --fallback forbid")).unwrap();
        assert!(plan.forbids_other_paths);
    }

    #[test]
    fn a_sweep_has_the_named_values_or_the_usual_ones() {
        let args = args("/a /b /c --to host --sweep --path pread,mmap --threads 4");
        let plan = sweep(&args, base(&args).unwrap());
        assert_eq!(plan.grid.paths, [PathChoice::Pread, PathChoice::Mmap]);
        assert_eq!((plan.grid.threads, plan.grid.path_counts), (vec![4], vec![1, 2, 3]));
        assert_eq!((plan.grid.memory.len(), plan.grid.chunk_bytes.len()), (0, 6));
        assert_eq!(powers_up_to(1), [1]);
        assert_eq!(powers_up_to(6), [1, 2, 4, 6]);
    }
}
