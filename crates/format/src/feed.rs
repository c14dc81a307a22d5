//! A table's interface to streaming readers: chunks one by one, and their bounds before the first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use headrace_io::{ChunkFeed, FedChunk, FeedBounds, ReadAt, ReadSpec};
use headrace_ir::{Chunk, Encoding, Extent, Segment};

use crate::Result;
use crate::options::ColumnBound;

/// Chunks of a table, in row order, made on demand, with what a plan wants to know of them. None is retained.
///
/// An error is a [`FormatError`](crate::FormatError): an invalid extent, a failed producer, a batch without the
/// table's columns.
pub trait Feed: ChunkFeed<Chunk> {
    /// What is known before the first chunk.
    fn facts(&self) -> FeedFacts;

    /// Code translation tables of all chunks, see [`headrace_ir::ColumnExtents::remap`].
    fn remaps(&self) -> &[Arc<[i32]>];

    /// What was yielded and omitted so far.
    fn totals(&self) -> ChunkTotals;

    /// From now on chunks come best first, as far as statistics tell, and record batches without useful rows are
    /// omitted. Called before the first chunk; data without statistics is not affected.
    fn first_by(&mut self, first: FirstBy) {
        drop(first);
    }
}

/// Only the first rows by a column are wanted, so that more and more of the others become useless.
#[derive(Clone, Debug)]
pub struct FirstBy {
    /// Column of the table, of an integer-like type. Rows with a NULL there are never wanted.
    pub column: usize,
    /// Whether the largest values come first.
    pub descending: bool,
    /// The last useful value (days, ticks, unscaled decimal), which moves earlier while chunks are consumed: see
    /// [`FirstBy::new`].
    pub last: Arc<AtomicI64>,
}

impl FirstBy {
    /// Nothing known yet: `last` is the very last of all values.
    pub fn new(column: usize, descending: bool) -> Self {
        let last = if descending { i64::MIN } else { i64::MAX };
        Self { column, descending, last: Arc::new(AtomicI64::new(last)) }
    }

    /// The current bounds of useful rows in the column.
    pub(crate) fn condition(&self) -> ColumnBound {
        // The very last says nothing: NULLs, too, may be of use.
        let last = Some(self.last.load(Ordering::Relaxed));
        let last = last.filter(|last| ![i64::MIN, i64::MAX].contains(last));
        let (min, max) = if self.descending { (last, None) } else { (None, last) };
        ColumnBound { column: self.column, min, max }
    }
}

/// What is read of a segment.
pub(crate) fn reads_of(segment: &Segment) -> impl Iterator<Item = ReadSpec> + '_ {
    let file = segment.file as usize;
    segment.extents().map(move |Extent { offset, bytes }| ReadSpec { file, offset, bytes })
}

/// A chunk with what is read of it: each extent of each segment, from the file that the segment lies in.
pub(crate) fn fed(
    chunk: Chunk,
    mut file_of: impl FnMut(u32) -> Result<Arc<dyn ReadAt>>,
) -> Result<FedChunk<Chunk>> {
    let (mut reads, mut files) = (Vec::new(), Vec::new());
    for segment in &chunk.segments {
        let from = file_of(segment.file)?;
        for read in reads_of(segment) {
            reads.push(read);
            files.push(Arc::clone(&from));
        }
    }
    Ok(FedChunk { reads, files, payload: chunk, ..FedChunk::default() })
}

/// Files of a table by number, each opened once.
#[derive(Debug, Default)]
pub(crate) struct Opened(HashMap<u32, Arc<dyn ReadAt>>);

impl Opened {
    pub(crate) fn file(
        &mut self,
        number: u32,
        open: impl FnOnce() -> Result<Arc<dyn ReadAt>>,
    ) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::clone(match self.0.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(open()?),
        }))
    }
}

/// Facts about a feed before its first chunk. Bounds are upper bounds that need no walk through the
/// metadata of all record batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedFacts {
    /// Of its chunks, with [`ChunkOptions::extent_extra_bytes`] for each extent in a slot.
    ///
    /// [`ChunkOptions::extent_extra_bytes`]: crate::ChunkOptions::extent_extra_bytes
    pub bounds: FeedBounds,
    /// Rows of all chunks; `None`: unknown.
    pub rows: Option<u64>,
    /// Like the slot of the largest chunk, for the largest segment.
    pub segment_bytes: u64,
    /// The encodings of the columns in the first chunks (for pages, after decoding): later chunks
    /// may have dictionary codes of another width.
    pub encodings: Vec<Encoding>,
}

/// What a feed has yielded and omitted.
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
    /// Record batches that the conditions ruled out.
    pub pruned_batches: u64,
    /// Their rows.
    pub pruned_rows: u64,
}

impl ChunkTotals {
    /// Counts one more chunk.
    pub(crate) fn add(&mut self, segments: u64, rows: u64, bytes: u64) {
        self.chunks += u64::from(segments > 0);
        self.segments += segments;
        self.rows += rows;
        self.bytes += bytes;
        self.bytes_max = self.bytes_max.max(bytes);
    }
}
