//! Files cut into the chunks of a race.

use headrace_flow::{ChunkSpec, ReadSpec};
use headrace_io::random::Random;

use super::{BenchError, Pattern};

/// Default number of random blocks: 1 GiB in blocks of 4 KiB.
const RANDOM_BLOCKS: u64 = 262_144;

/// Maximum chunks of a race: each costs some dozens of bytes of bookkeeping.
const CHUNKS_MAX: u64 = 16 << 20;

/// # Errors
/// [`BenchError::Plan`] if there would be too many chunks.
pub(crate) fn check_count(
    sizes_bytes: &[u64],
    pattern: Pattern,
    limit_bytes: Option<u64>,
) -> Result<(), BenchError> {
    let all_bytes: u64 = sizes_bytes.iter().sum();
    let wanted_bytes = match pattern {
        Pattern::Sequential { .. } => limit_bytes.unwrap_or(u64::MAX).min(all_bytes),
        Pattern::Random { .. } => limit_bytes.unwrap_or(0),
    };
    let count = wanted_bytes.div_ceil(pattern.bytes()) + sizes_bytes.len() as u64;
    if count > CHUNKS_MAX {
        return Err(BenchError::plan(
            format!("{count} chunks are more than the {CHUNKS_MAX} that one run can have"),
            "choose a larger --chunk, or a --limit",
        ));
    }
    Ok(())
}

/// One extent per chunk, whole files in order; chunks of several files alternate, so that reads
/// spread over their devices. Every offset is a multiple of 8.
pub(crate) fn cut(
    sizes_bytes: &[u64],
    pattern: Pattern,
    limit_bytes: Option<u64>,
) -> Vec<ChunkSpec> {
    let reads = match pattern {
        Pattern::Sequential { chunk_bytes } => sequential(sizes_bytes, chunk_bytes, limit_bytes),
        Pattern::Random { block_bytes } => random(sizes_bytes, block_bytes, limit_bytes),
    };
    reads.into_iter().map(|read| ChunkSpec { reads: vec![read] }).collect()
}

fn sequential(sizes_bytes: &[u64], chunk_bytes: u64, limit_bytes: Option<u64>) -> Vec<ReadSpec> {
    let mut left_bytes = limit_bytes.unwrap_or(u64::MAX);
    let mut reads = Vec::new();
    let largest = sizes_bytes.iter().copied().max().unwrap_or(0);
    for round in 0..largest.div_ceil(chunk_bytes) {
        let offset = round * chunk_bytes;
        if left_bytes == 0 {
            break;
        }
        for (file, &size_bytes) in sizes_bytes.iter().enumerate() {
            let bytes = size_bytes.saturating_sub(offset).min(chunk_bytes).min(left_bytes);
            if bytes > 0 {
                left_bytes -= bytes;
                reads.push(ReadSpec { file, offset, bytes });
            }
        }
    }
    reads
}

fn random(sizes_bytes: &[u64], block_bytes: u64, limit_bytes: Option<u64>) -> Vec<ReadSpec> {
    // Whole blocks only, but a file below one block counts as one.
    let blocks_of = |size: u64| if size == 0 { 0 } else { (size / block_bytes).max(1) };
    let total_blocks: u64 = sizes_bytes.iter().map(|&size| blocks_of(size)).sum();
    if total_blocks == 0 {
        return Vec::new();
    }
    let count = limit_bytes.map_or(RANDOM_BLOCKS, |limit| limit.div_ceil(block_bytes));
    let mut dice = Random(42);
    (0..count)
        .filter_map(|_| {
            let mut block = dice.below(total_blocks);
            let (file, size_bytes) =
                sizes_bytes.iter().copied().enumerate().find(|(_, size)| {
                    let blocks = blocks_of(*size);
                    let here = block < blocks;
                    if !here {
                        block -= blocks;
                    }
                    here
                })?;
            let offset = block * block_bytes;
            Some(ReadSpec { file, offset, bytes: block_bytes.min(size_bytes - offset) })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_take_turns_and_nothing_is_empty() {
        let chunks = cut(&[2500, 0, 1000], Pattern::Sequential { chunk_bytes: 1024 }, None);
        let reads: Vec<(usize, u64, u64)> =
            chunks.iter().map(|c| (c.reads[0].file, c.reads[0].offset, c.reads[0].bytes)).collect();
        assert_eq!(reads, [(0, 0, 1024), (2, 0, 1000), (0, 1024, 1024), (0, 2048, 452)]);
        assert!(cut(&[0, 0], Pattern::Sequential { chunk_bytes: 1024 }, None).is_empty());
        assert!(cut(&[], Pattern::Random { block_bytes: 4096 }, None).is_empty());
    }

    proptest! {
        #[test]
        fn sequential_chunks_cover_each_file_once(
            sizes in prop::collection::vec(0u64..100_000, 0..5),
            chunk in 1u64..20,
            limit in prop::option::of(0u64..200_000),
        ) {
            let pattern = Pattern::Sequential { chunk_bytes: chunk * 512 };
            let chunks = cut(&sizes, pattern, limit);
            let bytes: u64 = chunks.iter().map(ChunkSpec::bytes).sum();
            let all: u64 = sizes.iter().sum();
            prop_assert_eq!(bytes, all.min(limit.unwrap_or(u64::MAX)));
            for (file, size) in sizes.iter().enumerate() {
                let mut end = 0;
                for read in chunks.iter().map(|c| c.reads[0]).filter(|r| r.file == file) {
                    prop_assert_eq!(read.offset, end);
                    end += read.bytes;
                }
                prop_assert!(end <= *size);
            }
        }

        #[test]
        fn random_blocks_lie_inside_their_files(
            sizes in prop::collection::vec(0u64..100_000, 1..5),
        ) {
            let chunks = cut(&sizes, Pattern::Random { block_bytes: 4096 }, Some(400_000));
            if sizes.iter().any(|size| *size > 0) {
                prop_assert_eq!(chunks.len(), 98);
            }
            for read in chunks.iter().map(|c| c.reads[0]) {
                prop_assert!(read.bytes > 0 && read.offset % 4096 == 0);
                prop_assert!(read.offset + read.bytes <= sizes[read.file]);
            }
        }
    }

    #[test]
    fn random_blocks_reach_all_of_a_file() {
        let size = 64 * 4096;
        let chunks = cut(&[size], Pattern::Random { block_bytes: 4096 }, Some(64 * 4096 * 20));
        let mut seen = [false; 64];
        for chunk in &chunks {
            seen[(chunk.reads[0].offset / 4096) as usize] = true;
        }
        assert!(seen.iter().all(|seen| *seen));
    }
}
