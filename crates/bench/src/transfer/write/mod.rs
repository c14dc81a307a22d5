//! Writing from host or device memory to storage.
//!
//! ```text
//!  content ──► ring of buffers ──► pwrite threads | io_uring ──► SinkFile ──► fsync
//!  (a GPU: kernel ──► D2H)                                          │
//!                                                                   └─► read back, compared (verify)
//! ```
//!
//! The clock runs until the bytes are on stable storage (fsync), because a page cache accepts any
//! number of bytes at memory speed. Files are hidden temporaries and vanish afterwards, however the
//! run ends, unless they are to be kept.

mod content;
mod job;
mod ring;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use headrace_flow::{CancelToken, ChunkSpec, RaceError};
use headrace_io::write::{SinkFile, WriteAt};

use super::counters::{Counted, Watched};
use super::gpu::Gpus;
use super::record::{BytesMoved, Latency, StageRecord, Verification, per_ns, share};
use super::stop::{Early, StopSignal, watched};
use super::{BenchError, BenchPlan, Operation, Pattern, Progress, Target, chunks};
pub(crate) use job::{WriteJob, Written};

/// Chunks in which a file is laid out.
const LAYOUT_CHUNK_BYTES: u64 = 16 << 20;

/// Name of a kept file in a folder.
const FILE_NAME: &str = "headrace-bench.bin";

/// The result of writing.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub bytes: u64,
    pub chunks: u64,
    pub files: usize,
    pub file_bytes: u64,
    pub early: Option<Early>,
    /// Writing and syncing.
    pub wall_ns: u64,
    pub by_path: BytesMoved,
    pub latency: Latency,
    pub stages: Vec<StageRecord>,
    pub short_writes: u64,
    pub direct_refused_bytes: u64,
    pub mean_request_bytes: u64,
    pub engines: Vec<String>,
    pub reasons: Vec<String>,
    pub notes: Vec<String>,
    pub verification: Option<Verification>,
    /// The machine's counters from the first write to the end of syncing.
    pub counted: Counted,
}

/// Writes the plan's bytes, spread evenly over its paths.
pub(crate) fn run(
    plan: &BenchPlan,
    progress: &Progress,
    watch: &Watched,
    gpus: &mut Gpus,
) -> Result<Outcome, BenchError> {
    let Operation::Write { bytes, overwrite, keep } = plan.operation else {
        return Err(BenchError::plan("nothing is to be written", "--write"));
    };
    let is_random = matches!(plan.pattern, Pattern::Random { .. });
    // In random order the limit is one of blocks, not of the file that they lie in.
    let (size_bytes, limit_bytes) = match (plan.limit_bytes, is_random) {
        (Some(limit), false) => (limit.min(bytes), None),
        (limit, _) => (bytes, limit),
    };
    let sinks = open(&plan.paths, size_bytes, overwrite, keep)?;
    let sizes_bytes: Vec<u64> = sinks.iter().map(|sink| sink.size_bytes()).collect();
    chunks::check_count(&sizes_bytes, plan.pattern, limit_bytes)?;
    let chunks = chunks::cut(&sizes_bytes, plan.pattern, limit_bytes);
    let writers: Vec<Arc<dyn WriteAt>> = sinks.iter().map(|sink| wrapped(plan, sink)).collect();
    let opened: Vec<(String, File)> = sinks
        .iter()
        .map(|sink| Ok((sink.path().display().to_string(), content::open_again(sink)?)))
        .collect::<Result<_, BenchError>>()?;

    if is_random {
        lay_out(plan, &writers, &opened, progress, watch)?;
    }
    progress.begin("writing", chunks.iter().map(ChunkSpec::bytes).sum());
    let (signal, token) = (StopSignal::default(), CancelToken::new());
    let cancel = plan.hooks.cancel.as_ref();
    let (written, counters) = watched(cancel, plan.time_limit, &signal, &token, || {
        let job = WriteJob {
            plan,
            sinks: &writers,
            chunks: &chunks,
            signal: &signal,
            token: &token,
            progress,
            watch,
        };
        match plan.target {
            Target::Host => ring::write(&job),
            Target::Gpus(_) => gpus.write(&job),
        }
    })
    .map_err(|error| interrupted(error, &signal))?;
    let early = signal.asked().filter(|_| written.chunks.len() < chunks.len());
    if early == Some(Early::Interrupted) && written.bytes == 0 {
        return Err(BenchError::Interrupted);
    }
    let sync = Instant::now();
    // Whoever interrupts does not want to wait for gigabytes of dirty pages.
    let synced = early != Some(Early::Interrupted);
    if synced {
        opened.iter().try_for_each(|(path, file)| sync_file(path, file))?;
    }
    let sync_ns = sync.elapsed().as_nanos() as u64;
    let counted = counters.finish(written.wall_ns + sync_ns);
    let mut notes = Vec::new();
    if !synced {
        notes.push("interrupted: not synced, so some of it may still be in memory".to_string());
    }
    let verification = match (plan.verify, early) {
        (true, Some(Early::Interrupted)) => {
            notes.push("interrupted: not verified".to_string());
            None
        }
        (true, _) => {
            let done: Vec<(usize, &ChunkSpec)> =
                written.chunks.iter().map(|&chunk| (chunk, &chunks[chunk])).collect();
            Some(content::verify(&opened, &done)?)
        }
        (false, _) => None,
    };
    drop(opened);
    if keep && early.is_none() {
        writers.iter().try_for_each(|sink| sink.commit(true))?;
    } else if keep {
        notes.push("not kept: it was not written to its end".to_string());
    }
    let outcome = outcome(written, &plan.target, &sizes_bytes, early, sync_ns);
    Ok(Outcome { notes, verification, counted, ..outcome })
}

/// Writes files once in sequence: blocks of a file that has none yet would be new ones, which take another time.
fn lay_out(
    plan: &BenchPlan,
    sinks: &[Arc<dyn WriteAt>],
    opened: &[(String, File)],
    progress: &Progress,
    watch: &Watched,
) -> Result<(), BenchError> {
    let pattern = Pattern::Sequential { chunk_bytes: LAYOUT_CHUNK_BYTES };
    let plan = &BenchPlan { pattern, slots: None, verify: false, ..plan.clone() };
    let sizes_bytes: Vec<u64> = sinks.iter().map(|sink| sink.size_bytes()).collect();
    let chunks = &chunks::cut(&sizes_bytes, pattern, None);
    progress.begin("laying out", sizes_bytes.iter().sum());
    let (signal, token) = (StopSignal::default(), CancelToken::new());
    watched(plan.hooks.cancel.as_ref(), None, &signal, &token, || {
        let (signal, token) = (&signal, &token);
        ring::write(&WriteJob { plan, sinks, chunks, signal, token, progress, watch })
    })
    .map_err(|error| interrupted(error, &signal))?;
    if signal.asked().is_some() {
        return Err(BenchError::Interrupted);
    }
    opened.iter().try_for_each(|(path, file)| sync_file(path, file))
}

fn outcome(
    written: Written,
    target: &Target,
    sizes_bytes: &[u64],
    early: Option<Early>,
    sync_ns: u64,
) -> Outcome {
    let wall_ns = written.wall_ns + sync_ns;
    let stage = |(stage, busy_ns, bytes): (&'static str, u64, u64)| StageRecord {
        stage,
        busy_share: share(busy_ns, wall_ns),
        gb_per_s: per_ns(bytes, busy_ns),
        ceiling_gb_per_s: None,
        ceiling_share: None,
    };
    let all = written.stages.iter().copied().chain([("sync", sync_ns, written.bytes)]);
    let stages = all.filter(|(_, busy_ns, _)| *busy_ns > 0).map(stage).collect();
    let (host2ssd, gpu2ssd) = match target {
        Target::Host => (written.bytes, 0),
        Target::Gpus(_) => (0, written.bytes),
    };
    Outcome {
        bytes: written.bytes,
        chunks: written.chunks.len() as u64,
        files: sizes_bytes.len(),
        file_bytes: sizes_bytes.iter().sum(),
        early,
        wall_ns,
        by_path: BytesMoved {
            host2ssd,
            gpu2ssd,
            buffered: written.buffered_bytes,
            direct: written.direct_bytes,
            ..BytesMoved::default()
        },
        latency: written.latency,
        stages,
        short_writes: written.short_writes,
        direct_refused_bytes: written.direct_refused_bytes,
        mean_request_bytes: written.bytes.checked_div(written.requests).unwrap_or(0),
        engines: written.engines,
        reasons: written.reasons,
        notes: Vec::new(),
        verification: None,
        counted: Counted::default(),
    }
}

/// A race that was interrupted is not a failure.
fn interrupted(error: BenchError, signal: &StopSignal) -> BenchError {
    match error {
        BenchError::Race(RaceError::Cancelled) if signal.asked().is_some() => {
            BenchError::Interrupted
        }
        error => error,
    }
}

impl Outcome {
    /// The busiest stage in words.
    pub fn bottleneck(&self) -> Option<String> {
        let busiest = self.stages.iter().max_by(|a, b| a.busy_share.total_cmp(&b.busy_share))?;
        let name = match busiest.stage {
            "fill" => "cpu-bound (filling buffers to be verified)",
            "d2h" => "d2h-bound",
            "execute" => "kernel-bound",
            "sync" => "storage-bound (syncing)",
            _ if self.by_path.direct >= self.by_path.buffered => "write-bound",
            _ => "page-cache-bound",
        };
        let (speed, share) = (busiest.gb_per_s, busiest.busy_share * 100.0);
        Some(format!("{name}: {speed:.2} GB/s, busy {share:.0}% of the time"))
    }
}

fn wrapped(plan: &BenchPlan, sink: &Arc<SinkFile>) -> Arc<dyn WriteAt> {
    match &plan.hooks.wrap_sink {
        Some(wrap) => wrap(sink.clone()),
        None => sink.clone(),
    }
}

fn sync_file(path: &str, file: &File) -> Result<(), BenchError> {
    file.sync_all().map_err(|cause| {
        let action = "bring it to stable storage".to_string();
        headrace_io::IoError::Sink { path: path.into(), action, cause }.into()
    })
}

/// A file to be written for each path, equal parts of `bytes`; the last may be shorter.
fn open(
    paths: &[PathBuf],
    bytes: u64,
    overwrite: bool,
    keep: bool,
) -> Result<Vec<Arc<SinkFile>>, BenchError> {
    let part_bytes = bytes.div_ceil(paths.len().max(1) as u64).next_multiple_of(1 << 20);
    let mut left_bytes = bytes;
    paths
        .iter()
        .map(|path| {
            let size_bytes = part_bytes.min(left_bytes);
            left_bytes -= size_bytes;
            open_one(path, size_bytes, overwrite, keep)
        })
        .collect()
}

fn open_one(
    path: &Path,
    size_bytes: u64,
    overwrite: bool,
    keep: bool,
) -> Result<Arc<SinkFile>, BenchError> {
    use std::os::unix::fs::FileTypeExt;
    let found = std::fs::metadata(path).ok();
    if found.as_ref().is_some_and(|found| found.file_type().is_block_device()) {
        if !overwrite {
            return Err(BenchError::path(
                path,
                "it is a block device, and all that lies on it would be lost",
                "--overwrite, if that is what you want",
            ));
        }
        return Ok(SinkFile::block_device(path, size_bytes, true)?);
    }
    let target = match &found {
        Some(found) if found.is_dir() => path.join(FILE_NAME),
        _ => path.to_path_buf(),
    };
    // Without `keep` the target is never touched: what is written is another, hidden file.
    if keep && !overwrite && std::fs::symlink_metadata(&target).is_ok() {
        return Err(BenchError::path(
            target,
            "there is a file already",
            "--overwrite replaces it; without --keep it is not touched",
        ));
    }
    Ok(SinkFile::create(&target, size_bytes)?)
}
