//! The written content: words that name their positions, so that each can be checked when read
//! back.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use headrace_flow::ChunkSpec;
use headrace_io::write::SinkFile;
use headrace_io::{AlignedBuffer, IoError, ReadMode};

use crate::transfer::checksum::PLACE_FACTOR;
use crate::transfer::record::{Mismatch, Verification};
use crate::transfer::{BenchError, Checksum};

/// Longest single read; a multiple of 8.
const PIECE_BYTES: usize = 4 << 20;

/// Mismatches that are described; all are counted.
const MISMATCHES_SHOWN_MAX: usize = 16;

/// Fills `bytes`, which begin at `offset` (a multiple of 8) of their file: word i of the file is
/// (i + 1) · 0x9e3779b97f4a7c15 with its halves exchanged, little-endian. No two words of a file
/// are the same, and storage that compresses or deduplicates finds nothing to save.
pub(super) fn fill(offset: u64, bytes: &mut [u8]) {
    let mut word = (offset / 8).wrapping_add(1).wrapping_mul(PLACE_FACTOR);
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&word.rotate_left(32).to_le_bytes()[..part.len()]);
        word = word.wrapping_add(PLACE_FACTOR);
    }
}

/// A descriptor of the written file, for syncing and reading back.
pub(super) fn open_again(sink: &SinkFile) -> Result<File, BenchError> {
    let fail = |cause| {
        let action = "open what was written".to_string();
        BenchError::Io(IoError::Open { path: sink.path().to_path_buf(), action, cause })
    };
    let fd = sink.raw_fd(ReadMode::Buffered).map_err(fail)?;
    // SAFETY: the descriptor belongs to the sink, which is borrowed for this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned().map(File::from).map_err(fail)
}

/// Reads chunks back, from storage as far as the kernel evicts its pages, and compares them with
/// the expected content.
pub(super) fn verify(
    files: &[(String, File)],
    chunks: &[(usize, &ChunkSpec)],
) -> Result<Verification, BenchError> {
    let start = Instant::now();
    for (_, file) in files {
        drop_pages(file);
    }
    let mut buffer = AlignedBuffer::allocate(PIECE_BYTES)?;
    let mut wanted = vec![0u8; PIECE_BYTES];
    let mut all = Checksum::default();
    let mut mismatches = Vec::new();
    let (mut bytes, mut mismatch_count) = (0, 0);
    for &(chunk, spec) in chunks {
        for read in &spec.reads {
            let (path, file) = &files[read.file];
            let (mut found, mut expected) = (Checksum::default(), Checksum::default());
            let mut done = 0;
            while done < read.bytes {
                let length = (read.bytes - done).min(PIECE_BYTES as u64) as usize;
                let offset = read.offset + done;
                let piece = &mut buffer.as_mut_slice()[..length];
                file.read_exact_at(piece, offset).map_err(|cause| {
                    let path = path.into();
                    IoError::Read { path, offset, bytes: length as u64, cause }
                })?;
                found += Checksum::of(offset, piece);
                fill(offset, &mut wanted[..length]);
                expected += Checksum::of(offset, &wanted[..length]);
                done += length as u64;
            }
            bytes += read.bytes;
            all += found;
            if found != expected {
                mismatch_count += 1;
                if mismatches.len() < MISMATCHES_SHOWN_MAX {
                    let (file, offset, bytes) = (path.clone(), read.offset, read.bytes);
                    mismatches.push(Mismatch { chunk, file, offset, bytes, found, expected });
                }
            }
        }
    }
    Ok(Verification {
        chunks: chunks.len() as u64,
        bytes,
        mismatch_count,
        mismatches,
        checksum: format!("{:016x}{:016x}", all.plain, all.mixed),
        reference: "what was to be written",
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// So that the bytes come from storage. Remaining pages do no harm: the comparison is then with the
/// kernel's copy.
fn drop_pages(file: &File) {
    use std::os::fd::AsRawFd;
    // SAFETY: a plain call on an open descriptor; its failure is of no consequence.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_depends_on_the_place_alone() {
        let mut whole = vec![0u8; 1003];
        fill(0, &mut whole);
        let mut part = vec![0u8; 403];
        fill(600, &mut part);
        assert_eq!(part, whole[600..]);
        assert_eq!(whole[8..16], PLACE_FACTOR.wrapping_mul(2).rotate_left(32).to_le_bytes());
    }
}
