//! Chunks read through the page cache with plain reads: to load it, and for comparison.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use headrace_flow::ChunkSpec;
use headrace_io::{AlignedBuffer, ReadAt, SourceFile};
use parking_lot::Mutex;

use super::BenchError;

/// Longest single read; a multiple of 8.
const PIECE_BYTES: usize = 4 << 20;

/// Reads the extents of `chunks` from `files` by several threads; `take` gets the chunk's number,
/// the offset in the file and the bytes, piece by piece and in any order.
///
/// # Errors
/// The first error of a read; [`BenchError::Interrupted`] once `cancel` is set.
pub(crate) fn read_chunks(
    files: &[Arc<SourceFile>],
    chunks: &[(usize, &ChunkSpec)],
    threads: usize,
    cancel: Option<&Arc<AtomicBool>>,
    take: &(impl Fn(usize, u64, &[u8]) + Sync),
) -> Result<(), BenchError> {
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<BenchError>> = Mutex::new(None);
    let work = || {
        let mut buffer = match AlignedBuffer::allocate(PIECE_BYTES) {
            Ok(buffer) => buffer,
            Err(error) => return fail(&failure, error.into()),
        };
        while let Some((number, chunk)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            for read in &chunk.reads {
                let file = &files[read.file];
                let mut done = 0;
                while done < read.bytes {
                    if failure.lock().is_some() {
                        return;
                    }
                    if cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                        return fail(&failure, BenchError::Interrupted);
                    }
                    let bytes = (read.bytes - done).min(PIECE_BYTES as u64) as usize;
                    let piece = &mut buffer.as_mut_slice()[..bytes];
                    if let Err(error) = file.read_exact_at(read.offset + done, piece) {
                        return fail(&failure, error.into());
                    }
                    take(*number, read.offset + done, piece);
                    done += bytes as u64;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, 64).min(chunks.len().max(1)) {
            scope.spawn(|| {
                headrace_io::block_signals();
                work();
            });
        }
        work();
    });
    failure.into_inner().map_or(Ok(()), Err)
}

fn fail(failure: &Mutex<Option<BenchError>>, error: BenchError) {
    failure.lock().get_or_insert(error);
}
