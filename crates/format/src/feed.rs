//! What a table gives to whoever streams it: chunks one by one, and what is known before the first.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Poll, Waker};

use headrace_io::ReadAt;
use headrace_ir::{Chunk, Encoding};

use crate::Result;
use crate::arrow::ColumnBound;

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

    /// Chunks come best first from now on, as far as statistics tell, and record batches that have no row of use any more
    /// are left out. Asked before the first chunk; what has no statistics goes on as it is.
    fn first_by(&mut self, first: FirstBy) {
        drop(first);
    }
}

/// That the first rows by a column are wanted alone, so that more and more of the others are of no use.
#[derive(Clone, Debug)]
pub struct FirstBy {
    /// Column of the table, of an integer-like type. Of rows with a NULL there nobody is to want one.
    pub column: usize,
    /// Whether the largest values come first.
    pub descending: bool,
    /// The last value of use (days, ticks, unscaled decimal), which comes ever earlier while chunks are consumed: see
    /// [`FirstBy::new`].
    pub last: Arc<AtomicI64>,
}

impl FirstBy {
    /// Nothing known yet: `last` is the very last of all values.
    pub fn new(column: usize, descending: bool) -> Self {
        let last = if descending { i64::MIN } else { i64::MAX };
        Self { column, descending, last: Arc::new(AtomicI64::new(last)) }
    }

    /// What rows of use have in the column, by what is known now.
    pub(crate) fn condition(&self) -> ColumnBound {
        // The very last says nothing: NULLs, too, may be of use.
        let last = Some(self.last.load(Ordering::Relaxed));
        let last = last.filter(|last| ![i64::MIN, i64::MAX].contains(last));
        let (min, max) = if self.descending { (last, None) } else { (None, last) };
        ColumnBound { column: self.column, min, max }
    }
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
