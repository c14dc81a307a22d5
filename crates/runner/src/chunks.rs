//! From a table and bounds to chunks: what is read, and what the processors know before.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Poll, Waker};

use headrace_flow::{BoxError, ChunkFeed, ChunkSpec, FedChunk, FeedBounds, ReadSpec};
use headrace_format::arrow::{ChunkOptions, ColumnBound};
use headrace_format::{ChunkTotals, Feed, FormatError, Table};
use headrace_io::{EXTENT_ALIGN_BYTES, ReadAt};
use headrace_ir::{Chunk, Segment, SourceKind, ValueRange};
use headrace_pipeline::{ColumnView, SegmentView, SourceColumn, SourceInfo};
use parking_lot::Mutex;

use crate::bounds::bounds;
use crate::error::RunError;
use crate::task::Task;

/// What a task reads, before anything of it is.
pub struct Planned {
    /// The chunks.
    pub feed: Box<dyn Feed>,
    /// What is known of the columns.
    pub info: SourceInfo,
}

/// Plans what a task reads.
pub fn plan(task: &Task<'_>, options: ChunkOptions) -> Result<Planned, RunError> {
    let ordinals = &task.pipeline.source.ordinals;
    let conditions: Vec<_> = bounds(task.pipeline, task.builds)
        .into_iter()
        .map(|(register, interval)| ColumnBound {
            column: ordinals[register],
            min: interval.min,
            max: interval.max,
        })
        .collect();
    // A slot holds extents widened to blocks at both ends.
    let options = ChunkOptions { extent_extra_bytes: 2 * EXTENT_ALIGN_BYTES as u64, ..options };
    let feed = Arc::clone(task.table.source()).feed(ordinals, &conditions, options)?;
    let info = source_info(task, &*feed);
    Ok(Planned { feed, info })
}

fn source_info(task: &Task<'_>, feed: &dyn Feed) -> SourceInfo {
    let table = task.table;
    let columns = task.pipeline.source.ordinals.iter().map(|&column| {
        let stats = table.source().column_stats(column);
        let range = match (stats.min, stats.max) {
            (Some(min), Some(max)) => Some(ValueRange { min, max }),
            _ => None,
        };
        SourceColumn {
            dictionary: table.dictionary(column),
            range,
            may_have_nulls: stats.null_count != Some(0),
        }
    });
    SourceInfo {
        columns: columns.collect(),
        rows_max: feed.bounds().rows.unwrap_or(u64::MAX),
        remaps: feed.remaps().to_vec(),
    }
}

/// The files of a table that chunks read from, each opened once.
#[derive(Debug)]
pub struct Files {
    table: Arc<dyn Table>,
    opened: HashMap<u32, Arc<dyn ReadAt>>,
}

impl Files {
    /// None yet.
    pub fn of(table: &Arc<dyn Table>) -> Self {
        Self { table: Arc::clone(table), opened: HashMap::new() }
    }

    /// A file, by its number in the table.
    pub fn get(&mut self, file: u32) -> Result<Arc<dyn ReadAt>, FormatError> {
        if let Some(opened) = self.opened.get(&file) {
            return Ok(Arc::clone(opened));
        }
        let opened = self.table.open_file(file as usize)?;
        self.opened.insert(file, Arc::clone(&opened));
        Ok(opened)
    }
}

/// Chunks that were given to a race and are not consumed yet, and what was given in all.
#[derive(Debug, Default)]
pub struct Book {
    chunks: Mutex<HashMap<usize, Chunk>>,
    totals: Mutex<ChunkTotals>,
}

impl Book {
    /// A chunk, for the one who consumes it.
    pub fn take(&self, number: usize) -> Option<Chunk> {
        self.chunks.lock().remove(&number)
    }

    /// What was given.
    pub fn totals(&self) -> ChunkTotals {
        *self.totals.lock()
    }
}

/// A table's chunks as a race on the host takes them.
#[derive(Debug)]
pub struct HostFeed {
    feed: Box<dyn Feed>,
    files: Files,
    book: Arc<Book>,
    given: usize,
}

impl HostFeed {
    /// The chunks that were planned, with the book that they are entered in.
    pub fn new(task: &Task<'_>, feed: Box<dyn Feed>) -> (Self, Arc<Book>) {
        let book = Arc::new(Book::default());
        let files = Files::of(task.table.source());
        (Self { feed, files, book: Arc::clone(&book), given: 0 }, book)
    }

    /// What the race has to know before the first chunk.
    pub fn bounds(&self, task: &Task<'_>) -> FeedBounds {
        let bounds = self.feed.bounds();
        let source = task.table.source();
        // Batches in memory are consumed where they lie.
        let in_place = source.kind() == SourceKind::Batches && !source.policy().copy_first;
        FeedBounds {
            bytes: bounds.bytes,
            chunks: bounds.chunks,
            slot_bytes: if in_place { 0 } else { bounds.chunk_bytes as usize },
        }
    }

    fn fed(&mut self, fed: headrace_format::FedChunk) -> Result<FedChunk, FormatError> {
        let headrace_format::FedChunk { chunk, memory } = fed;
        let (mut spec, mut files) = (ChunkSpec::default(), Vec::new());
        for segment in &chunk.segments {
            let file = match &memory {
                Some(memory) => Arc::clone(memory),
                None => self.files.get(segment.file)?,
            };
            for extent in segment.extents() {
                let (file_number, offset) = (segment.file as usize, extent.offset);
                spec.reads.push(ReadSpec { file: file_number, offset, bytes: extent.bytes });
                files.push(Arc::clone(&file));
            }
        }
        self.book.chunks.lock().insert(self.given, chunk);
        self.given += 1;
        Ok(FedChunk { spec, files, ..FedChunk::default() })
    }
}

impl ChunkFeed for HostFeed {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<FedChunk, BoxError>>> {
        let polled = self.feed.poll_next(waker);
        *self.book.totals.lock() = self.feed.totals();
        polled.map(|next| next.map(|fed| fed.and_then(|fed| self.fed(fed)).map_err(BoxError::from)))
    }
}

/// One segment over its buffers, which stand in the order of [`Segment::extents`].
pub fn segment_view<'a>(
    segment: &Segment,
    buffers: &mut impl Iterator<Item = &'a [u8]>,
    remaps: &'a [Arc<[i32]>],
) -> SegmentView<'a> {
    let columns = segment
        .columns
        .iter()
        .map(|column| {
            let mut next = || buffers.next().unwrap_or_default();
            let values = next();
            let offsets = column.offsets.map(|_| next());
            let validity = column.validity.map(|_| next());
            let remap = column.remap.and_then(|r| remaps.get(r as usize)).map(|r| &**r);
            ColumnView { encoding: column.encoding.clone(), values, offsets, validity, remap }
        })
        .collect();
    SegmentView { rows: segment.rows as usize, columns }
}
