//! The page cache before a run: evicted, loaded, or only examined.

use std::sync::Arc;

use headrace_flow::ChunkSpec;
use headrace_io::{ReadAt, SourceFile, drop_cache, residency_sampled};

use super::plain::read_chunks;
use super::record::CacheRecord;
use super::{BenchError, BenchPlan, CacheState};

/// Sampled stretches of 64 KiB per file: all of a file up to 64 MiB.
const SAMPLES: u64 = 1024;

/// With more than this share in the page cache a run is not called cold.
const COLD_SHARE_MAX: f64 = 0.01;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Brings the cache into the planned state, and returns the result.
pub(crate) fn prepare(
    plan: &BenchPlan,
    files: &[Arc<SourceFile>],
    chunks: &[ChunkSpec],
) -> Result<CacheRecord, BenchError> {
    let mut notes = Vec::new();
    match plan.cache {
        CacheState::AsIs => {}
        CacheState::Cold => drop_files(files, &mut notes)?,
        CacheState::ColdEverything => {
            drop_files(files, &mut notes)?;
            drop_everything()?;
        }
        CacheState::Hot => warm(plan, files, chunks)?,
    }
    let resident_share_before = resident_share(files, &mut notes);
    let warm_share =
        resident_share_before.filter(|share| plan.cache.is_cold() && *share > COLD_SHARE_MAX);
    if let Some(share) = warm_share {
        notes.push(format!(
            "not cold: {:.0}% of the bytes stayed in memory (pages that are mapped or in use by \
             others cannot be dropped)",
            share * 100.0
        ));
    }
    let is_as_asked = warm_share.is_none();
    Ok(CacheRecord { asked: plan.cache, resident_share_before, is_as_asked, notes })
}

fn drop_files(files: &[Arc<SourceFile>], notes: &mut Vec<String>) -> Result<(), BenchError> {
    let mut in_memory = 0;
    for file in files {
        if file.is_memory_backed() {
            in_memory += 1;
        } else {
            drop_cache(&**file)?;
        }
    }
    if in_memory > 0 {
        notes.push(format!("{in_memory} files lie in memory (tmpfs) and are never cold"));
    }
    Ok(())
}

fn drop_everything() -> Result<(), BenchError> {
    // SAFETY: a plain call without arguments.
    unsafe { libc::sync() };
    std::fs::write(DROP_CACHES, "3\n").map_err(|cause| {
        BenchError::path(
            DROP_CACHES,
            format!("the machine's caches cannot be dropped: {cause}"),
            "only root may; --cold alone drops the files' own pages",
        )
    })
}

fn warm(
    plan: &BenchPlan,
    files: &[Arc<SourceFile>],
    chunks: &[ChunkSpec],
) -> Result<(), BenchError> {
    let progress = plan.hooks.progress.as_deref();
    if let Some(progress) = progress {
        progress.begin("warming", chunks.iter().map(ChunkSpec::bytes).sum());
    }
    let numbered: Vec<(usize, &ChunkSpec)> = chunks.iter().enumerate().collect();
    read_chunks(files, &numbered, plan.threads, plan.hooks.cancel.as_ref(), &|_, _, piece| {
        if let Some(progress) = progress {
            progress.add(piece.len() as u64);
        }
    })
}

/// Share of the files' bytes in memory; `None` if there are no bytes, or the kernel does not say.
fn resident_share(files: &[Arc<SourceFile>], notes: &mut Vec<String>) -> Option<f64> {
    let (mut bytes, mut resident_bytes) = (0.0, 0.0);
    for file in files.iter().filter(|file| file.size_bytes() > 0) {
        let size_bytes = file.size_bytes() as f64;
        let share = if file.is_memory_backed() {
            1.0
        } else {
            match residency_sampled(&**file, 0, file.size_bytes(), SAMPLES) {
                Ok(residency) => residency.share(),
                Err(error) => {
                    notes.push(format!("what is in the page cache is not known: {error}"));
                    return None;
                }
            }
        };
        bytes += size_bytes;
        resident_bytes += size_bytes * share;
    }
    (bytes > 0.0).then(|| resident_bytes / bytes)
}
