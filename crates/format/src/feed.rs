//! What a table gives to whoever streams it: chunks one by one, and what is known before the first.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use headrace_io::ReadAt;
use headrace_ir::{Chunk, Encoding};

use crate::Result;

/// Chunks of a table, in the order of its rows, made as they are asked for. Nothing is kept of those
/// that were taken.
pub trait Feed: Send + fmt::Debug {
    /// What is known before the first chunk.
    fn bounds(&self) -> FeedBounds;

    /// Code translation tables of all chunks, see [`headrace_ir::ColumnExtents::remap`].
    fn remaps(&self) -> &[Arc<[i32]>];

    /// The next chunk; `None` after the last. Never waits: where a producer has nothing yet, `waker`
    /// is woken when it has.
    ///
    /// # Errors
    /// An extent that has no place, a producer that failed, a batch that is not of the table's
    /// columns. Nothing comes after an error.
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<FedChunk>>>;

    /// What was yielded and left out so far.
    fn totals(&self) -> ChunkTotals;
}

/// A chunk as a feed gives it.
#[derive(Clone, Debug)]
pub struct FedChunk {
    /// What to read.
    pub chunk: Chunk,
    /// Where its extents lie, if that is not the table's files.
    pub memory: Option<Arc<dyn ReadAt>>,
}

/// What is known of a feed before its first chunk. All are upper bounds, and none takes a walk
/// through the metadata of all record batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedBounds {
    /// Rows of all chunks; `None`: nobody knows.
    pub rows: Option<u64>,
    /// Bytes of all chunks; `None`: nobody knows.
    pub bytes: Option<u64>,
    /// Number of chunks; `None`: nobody knows.
    pub chunks: Option<u64>,
    /// Bytes of the largest chunk, with [`ChunkOptions::extent_extra_bytes`] for each extent.
    ///
    /// [`ChunkOptions::extent_extra_bytes`]: crate::arrow::ChunkOptions::extent_extra_bytes
    pub chunk_bytes: u64,
    /// As `chunk_bytes`, of the largest segment.
    pub segment_bytes: u64,
    /// How the columns lie in the first chunks, those of pages once they are decoded: the codes of
    /// a dictionary may be of another width in later ones.
    pub encodings: Vec<Encoding>,
}

/// What a feed has yielded and left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkTotals {
    /// Chunks.
    pub chunks: u64,
    /// Their segments.
    pub segments: u64,
    /// Their rows.
    pub rows: u64,
    /// Bytes of their extents.
    pub bytes: u64,
    /// Bytes of the largest.
    pub bytes_max: u64,
    /// Record batches that the conditions rule out.
    pub pruned_batches: u64,
    /// Their rows.
    pub pruned_rows: u64,
}

impl ChunkTotals {
    /// Takes note of one more chunk.
    pub(crate) fn add(&mut self, segments: u64, rows: u64, bytes: u64) {
        self.chunks += u64::from(segments > 0);
        self.segments += segments;
        self.rows += rows;
        self.bytes += bytes;
        self.bytes_max = self.bytes_max.max(bytes);
    }
}
