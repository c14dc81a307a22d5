//! From a table and bounds to chunks: what is read, and what the processors know before.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::task::Waker;

use headrace_columns::segment::{ColumnView, SegmentView};
use headrace_format::{ChunkOptions, ChunkTotals, ColumnBound, Feed, FeedFacts, FirstBy, Table};
use headrace_io::{ChunkFeed, EXTENT_ALIGN_BYTES, NextChunk};
use headrace_ir::{Chunk, DataType, Pipeline, Segment, ValueRange};
use headrace_pipeline::bound::Bound;
use headrace_pipeline::{SourceColumn, SourceInfo};
use parking_lot::Mutex;

use crate::bounds::bounds;
use crate::error::RunError;
use crate::progress::Share;
use crate::table::StreamTable;
use crate::task::Task;

/// What a task reads, before anything of it is.
pub struct Planned {
    /// The chunks.
    pub feed: TableFeed,
    /// What is known of the columns.
    pub info: SourceInfo,
}

/// Plans what a task reads.
pub fn plan(task: &Task<'_>, options: ChunkOptions) -> Result<Planned, RunError> {
    let ordinals = &task.pipeline.source.ordinals;
    let conditions = conditions(task);
    // A slot holds extents widened to blocks at both ends.
    let options = ChunkOptions { extent_extra_bytes: 2 * EXTENT_ALIGN_BYTES as u64, ..options };
    let feed = Arc::clone(task.table.source()).feed(ordinals, &conditions, options)?;
    let info = source_info(task.pipeline, task.table, &*feed);
    let share = match task.settings.behind {
        true => Share::of(&Arc::default()),
        false => Share::of(task.runner.progress()),
    };
    Ok(Planned { feed: TableFeed::new(Arc::clone(task.table.source()), feed, share), info })
}

/// What every row of use meets.
pub fn conditions(task: &Task<'_>) -> Vec<ColumnBound> {
    let ordinals = &task.pipeline.source.ordinals;
    let bounds = bounds(task.pipeline, task.builds).into_iter();
    let bound = bounds.map(|(register, interval)| ColumnBound {
        column: ordinals[register],
        min: interval.min,
        max: interval.max,
    });
    bound.collect()
}

/// What is known of the columns that a pipeline reads of a table.
pub fn source_info(pipeline: &Pipeline, table: &StreamTable, feed: &dyn Feed) -> SourceInfo {
    let columns = pipeline.source.ordinals.iter().map(|&column| {
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
        rows_max: feed.facts().rows.unwrap_or(u64::MAX),
        remaps: feed.remaps().to_vec(),
    }
}

/// A table's chunks, and what was given of them so far.
#[derive(Debug)]
pub struct TableFeed {
    table: Arc<dyn Table>,
    feed: Box<dyn Feed>,
    totals: Arc<Mutex<ChunkTotals>>,
    share: Share,
}

impl TableFeed {
    fn new(table: Arc<dyn Table>, feed: Box<dyn Feed>, share: Share) -> Self {
        Self { table, feed, totals: Arc::default(), share }
    }

    /// What is known before the first chunk.
    pub fn facts(&self) -> FeedFacts {
        self.feed.facts()
    }

    /// Says which rows come first, if a pipeline wants no others and the column's statistics tell; answers what its workers are
    /// to move on.
    pub fn first_by(&mut self, bound: &Bound, ordinals: &[usize]) -> Option<Arc<AtomicI64>> {
        let (register, key) = bound.first_by()?;
        let data_type = &bound.registers[register].data_type;
        let is_decimal = matches!(data_type, DataType::Decimal128 { .. });
        let column = ordinals[register];
        let stats = self.table.column_stats(column);
        let nulls_are_last = !key.nulls_first || stats.null_count == Some(0);
        if !nulls_are_last || !(is_decimal || data_type.integer_range().is_some()) {
            return None;
        }
        let first = FirstBy::new(column, key.descending);
        let last = Arc::clone(&first.last);
        self.feed.first_by(first);
        Some(last)
    }

    /// What was given so far, while others take the chunks.
    pub fn totals(&self) -> Arc<Mutex<ChunkTotals>> {
        Arc::clone(&self.totals)
    }
}

impl ChunkFeed<Chunk> for TableFeed {
    fn poll_next(&mut self, waker: &Waker) -> NextChunk<Chunk> {
        let polled = self.feed.poll_next(waker);
        let totals = self.feed.totals();
        *self.totals.lock() = totals;
        self.share.update(totals);
        polled
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
            let values = if column.is_constant() { &[] } else { next() };
            let offsets = column.offsets.map(|_| next());
            let validity = column.validity.map(|_| next());
            let remap = column.remap.and_then(|r| remaps.get(r as usize)).map(|r| &**r);
            let (encoding, offsets_base) = (column.encoding.clone(), column.offsets_base);
            ColumnView { encoding, values, offsets, offsets_base, validity, remap }
        })
        .collect();
    SegmentView { rows: segment.rows as usize, columns }
}
