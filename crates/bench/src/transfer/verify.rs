//! Checksums of a race against checksums of plain reads of the same extents.

use std::sync::Arc;
use std::time::Instant;

use headrace_flow::ChunkSpec;
use headrace_io::{ReadAt, SourceFile};
use parking_lot::Mutex;

use super::plain::read_chunks;
use super::record::{Mismatch, Verification};
use super::{BenchError, BenchPlan, Checksum};

/// Mismatches that are described; all are counted.
const MISMATCHES_SHOWN_MAX: usize = 16;

/// Compares the consumers' checksums, by chunk, with the host's own reads of the files.
///
/// # Errors
/// Those of reading.
pub(crate) fn against_plain_reads(
    plan: &BenchPlan,
    files: &[Arc<SourceFile>],
    chunks: &[ChunkSpec],
    found: &[(usize, Checksum)],
) -> Result<Verification, BenchError> {
    let start = Instant::now();
    let consumed: Vec<(usize, &ChunkSpec)> =
        found.iter().map(|(chunk, _)| (*chunk, &chunks[*chunk])).collect();
    let progress = plan.hooks.progress.as_deref();
    if let Some(progress) = progress {
        progress.begin("verifying", consumed.iter().map(|(_, chunk)| chunk.bytes()).sum());
    }
    let expected: Mutex<Vec<Checksum>> = Mutex::new(vec![Checksum::default(); chunks.len()]);
    // Whoever interrupts the race wants what was measured to be checked as well, so far as it goes.
    read_chunks(files, &consumed, plan.threads, None, &|chunk, offset, piece| {
        let sum = Checksum::of(offset, piece);
        expected.lock()[chunk] += sum;
        if let Some(progress) = progress {
            progress.add(piece.len() as u64);
        }
    })?;
    let expected = expected.into_inner();
    let mut all = Checksum::default();
    let mut mismatches = Vec::new();
    let mut mismatch_count = 0;
    for &(chunk, sum) in found {
        all += sum;
        if sum == expected[chunk] {
            continue;
        }
        mismatch_count += 1;
        mismatches.push(describe(files, chunks, chunk, sum, expected[chunk]));
    }
    // Chunks were consumed in any order.
    mismatches.sort_by_key(|mismatch: &Mismatch| mismatch.chunk);
    mismatches.truncate(MISMATCHES_SHOWN_MAX);
    Ok(Verification {
        chunks: found.len() as u64,
        bytes: consumed.iter().map(|(_, chunk)| chunk.bytes()).sum(),
        mismatch_count,
        mismatches,
        checksum: format!("{:016x}{:016x}", all.plain, all.mixed),
        reference: "plain reads through the page cache",
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn describe(
    files: &[Arc<SourceFile>],
    chunks: &[ChunkSpec],
    chunk: usize,
    found: Checksum,
    expected: Checksum,
) -> Mismatch {
    let read = chunks[chunk].reads.first();
    Mismatch {
        chunk,
        file: read.map(|read| files[read.file].path().display().to_string()).unwrap_or_default(),
        offset: read.map_or(0, |read| read.offset),
        bytes: chunks[chunk].bytes(),
        found,
        expected,
    }
}
