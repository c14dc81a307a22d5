//! Chunks over batches, as they come.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use arrow_array::{RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use headrace_io::{
    BoxError, ChunkFeed, FedChunk, FeedBounds, FileIdentity, HeldBytes, InputPolicy, MemoryFile,
    NextChunk, ReadAt,
};
use headrace_ir::layout::ROW_ALIGNMENT;
use headrace_ir::{Chunk, Encoding, Segment};

use super::column::Column;
use super::stream::BatchStream;
use super::table::BatchTable;
use crate::arrow::{encoding, ir_type, row_bits};
use crate::error::Result;
use crate::feed::{ChunkTotals, Feed, FeedFacts, fed};
use crate::options::{CHUNK_EXTRA_SHARE, ChunkOptions, ColumnBound, Filling};
use crate::table::Table;

/// Chunks over batches: see [`BatchTable`].
pub(crate) struct BatchFeed {
    table: Arc<BatchTable>,
    /// Set when the first chunk is requested.
    stream: Option<Box<dyn BatchStream>>,
    columns: Vec<usize>,
    options: ChunkOptions,
    /// The batch that chunks are cut from.
    batch: Option<Batch>,
    batches: u32,
    rows: u64,
    has_ended: bool,
    totals: ChunkTotals,
}

/// A batch with remaining rows.
struct Batch {
    columns: Vec<Column>,
    number: u32,
    rows: u64,
    next_row: u64,
    part_rows: u64,
}

/// A chunk under construction.
#[derive(Default)]
struct Gathered {
    segments: Vec<Segment>,
    buffers: Vec<HeldBytes>,
    filling: Filling,
}

impl fmt::Debug for BatchFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchFeed({:?}, {:?})", self.table, self.totals)
    }
}

impl BatchFeed {
    pub fn new(table: Arc<BatchTable>, columns: &[usize], options: ChunkOptions) -> Self {
        Self {
            table,
            stream: None,
            columns: columns.to_vec(),
            options,
            batch: None,
            batches: 0,
            rows: 0,
            has_ended: false,
            totals: ChunkTotals::default(),
        }
    }

    /// Ensures that there is a batch with remaining rows; `false` after the last.
    fn poll_batch(&mut self, waker: &Waker) -> Poll<Result<bool>> {
        while self.batch.is_none() {
            let stream = match &mut self.stream {
                Some(stream) => stream,
                None => match self.table.take_stream() {
                    Ok(stream) => self.stream.insert(stream),
                    Err(error) => return Poll::Ready(Err(error)),
                },
            };
            match stream.poll_next(waker) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(false)),
                Poll::Ready(Some(Err(cause))) => return Poll::Ready(Err(self.table.failed(cause))),
                Poll::Ready(Some(Ok(batch))) => match self.prepared(&batch) {
                    Ok(batch) => self.batch = batch,
                    Err(error) => return Poll::Ready(Err(error)),
                },
            }
        }
        Poll::Ready(Ok(true))
    }

    /// A batch, unless it is empty.
    fn prepared(&mut self, batch: &RecordBatch) -> Result<Option<Batch>> {
        let wanted = self.table.fields.fields();
        let types = |fields: &arrow_schema::Fields| -> Vec<String> {
            fields.iter().map(|field| field.data_type().to_string()).collect()
        };
        let own = batch.schema_ref().fields();
        let is_same = own.len() == wanted.len()
            && own.iter().zip(wanted).all(|(own, wanted)| own.data_type() == wanted.data_type());
        if !is_same {
            let cause = format!("a batch of {:?} among those of {:?}", types(own), types(wanted));
            return Err(self.table.failed(cause));
        }
        let rows = batch.num_rows() as u64;
        self.rows += rows;
        if let Some(rows_max) = self.table.rows_max.filter(|rows_max| self.rows > *rows_max) {
            return Err(self
                .table
                .failed(format!("{} rows where {rows_max} were promised", self.rows)));
        }
        if rows == 0 {
            return Ok(None);
        }
        let column = |&column: &usize| {
            let name = wanted[column].name();
            Column::of(name, batch.column(column), self.table.dictionaries[column].as_ref())
        };
        let columns = self.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
        let number = self.batches;
        self.batches =
            number.checked_add(1).ok_or_else(|| self.table.failed("more than 2^32 batches"))?;
        let part_rows = self.part_rows(rows, &columns);
        Ok(Some(Batch { columns, number, rows, next_row: 0, part_rows }))
    }

    /// Rows of each part of a batch: a multiple of [`ROW_ALIGNMENT`], as many as fit a chunk, but
    /// at least one.
    fn part_rows(&self, rows: u64, columns: &[Column]) -> u64 {
        let row_bits: u64 = columns.iter().map(Column::row_bits).sum();
        let fitting = self.options.chunk_bytes_max.saturating_mul(8) / row_bits.max(1);
        let rows_max = self.options.segment_rows_max().min(fitting / ROW_ALIGNMENT * ROW_ALIGNMENT);
        let parts = rows.div_ceil(rows_max.max(ROW_ALIGNMENT));
        rows.div_ceil(parts).next_multiple_of(ROW_ALIGNMENT)
    }

    /// Adds the next part to a chunk; returns whether it fitted.
    fn take_part(&mut self, gathered: &mut Gathered) -> bool {
        let Some(batch) = &mut self.batch else { return false };
        let rows = batch.part_rows.min(batch.rows - batch.next_row);
        let first_row = batch.next_row;
        let segment = Segment {
            file: 0,
            batch: batch.number,
            first_row,
            // Parts have at most 2^31 rows.
            rows: rows as u32,
            columns: batch.columns.iter().map(|c| c.extents(first_row, rows)).collect(),
        };
        let bytes = segment.extents().map(|extent| extent.bytes).sum::<u64>();
        let extents = segment.extents().count() as u64;
        if !gathered.filling.takes(&self.options, rows, bytes, extents) {
            return false;
        }
        let is_new = gathered.segments.last().is_none_or(|last| last.batch != batch.number);
        if is_new {
            gathered.buffers.extend(batch.columns.iter().flat_map(Column::held));
        }
        gathered.segments.push(segment);
        batch.next_row += rows;
        if batch.next_row >= batch.rows {
            self.batch = None;
        }
        true
    }

    fn poll_gathered(&mut self, waker: &Waker) -> Poll<Result<Gathered>> {
        let mut gathered = Gathered::default();
        loop {
            match self.poll_batch(waker) {
                // What came so far need not wait for the rest.
                Poll::Pending if gathered.segments.is_empty() => return Poll::Pending,
                Poll::Pending | Poll::Ready(Ok(false)) => return Poll::Ready(Ok(gathered)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(true)) => {
                    if !self.take_part(&mut gathered) {
                        return Poll::Ready(Ok(gathered));
                    }
                }
            }
        }
    }

    /// As [`ChunkFeed::poll_next`].
    pub fn poll(&mut self, waker: &Waker) -> Poll<Option<Result<FedChunk<Chunk>>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let gathered = match self.poll_gathered(waker) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(gathered) => gathered,
        };
        self.has_ended = gathered.as_ref().map_or(true, |gathered| gathered.segments.is_empty());
        if self.has_ended {
            // The producer need not be kept waiting.
            self.stream = None;
        }
        let gathered = match gathered {
            Ok(gathered) if gathered.segments.is_empty() => return Poll::Ready(None),
            Ok(gathered) => gathered,
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        let chunk = Chunk { segments: gathered.segments };
        self.totals.add(chunk.segments.len() as u64, gathered.filling.rows, chunk.bytes());
        let memory: Arc<dyn ReadAt> = MemoryFile::new(&self.table.name, gathered.buffers);
        Poll::Ready(Some(fed(chunk, |_| Ok(Arc::clone(&memory)))))
    }
}

impl ChunkFeed<Chunk> for BatchFeed {
    fn poll_next(&mut self, waker: &Waker) -> NextChunk<Chunk> {
        self.poll(waker).map(|next| next.map(|fed| fed.map_err(BoxError::from)))
    }
}

impl Feed for BatchFeed {
    /// The size of a chunk follows from the widths of its columns, except for text: its limit comes
    /// from the options, and a batch with more text cannot be copied.
    fn facts(&self) -> FeedFacts {
        let options = self.options;
        let fields = self.table.schema().fields();
        let types = self.columns.iter().map(|&column| fields[column].data_type());
        let encodings: Vec<Encoding> = types.clone().filter_map(encoding).collect();
        let has_text = encodings.iter().any(|e| matches!(e, Encoding::Offsets { .. }));
        let extra = 3 * encodings.len() as u64 * options.extent_extra_bytes;
        let rows = options.segment_rows_max();
        // Values, and bitmaps that end in the middle of a byte.
        let widths = types.filter_map(row_bits).map(|bits| bits / 8);
        let row_bytes = widths.sum::<u64>() + encodings.len() as u64;
        let fitting = rows.saturating_mul(row_bytes).min(options.chunk_bytes_max);
        let part = fitting.max(ROW_ALIGNMENT * row_bytes);
        let part = if has_text { options.chunk_bytes_max } else { part } + extra;
        let wanted = options.chunk_bytes_wanted.max(1);
        let extras = (options.chunk_segments_max as u64).saturating_mul(extra);
        let room = wanted.saturating_mul(CHUNK_EXTRA_SHARE).min(wanted.saturating_add(extras));
        let chunk = room.saturating_add(part).min(options.chunk_bytes_max);
        let slot_bytes = chunk.max(part) as usize;
        FeedFacts {
            bounds: FeedBounds { slot_bytes, ..FeedBounds::default() },
            rows: self.table.rows_max,
            segment_bytes: part,
            encodings,
        }
    }

    fn remaps(&self) -> &[Arc<[i32]>] {
        &[]
    }

    fn totals(&self) -> ChunkTotals {
        self.totals
    }
}

impl Table for BatchTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn comes_once(&self) -> bool {
        true
    }

    fn policy(&self) -> InputPolicy {
        self.policy
    }

    fn rows(&self) -> Option<u64> {
        self.rows_max
    }

    fn column_support(&self, column: usize) -> std::result::Result<(), String> {
        let Some(field) = self.schema.fields().get(column) else {
            return Err(format!("there is no column {column}"));
        };
        let data_type = field.data_type();
        match ir_type(data_type).is_some() && encoding(data_type).is_some() {
            true => Ok(()),
            false => Err(format!("pipelines do not know type {data_type}")),
        }
    }

    fn dictionary(&self, column: usize) -> Option<&Arc<StringArray>> {
        Some(&self.dictionaries.get(column)?.as_ref()?.values)
    }

    /// Nothing is pulled before the first chunk is requested; the first feed that does so owns the
    /// batches, and any other gets an error.
    fn feed(
        self: Arc<Self>,
        columns: &[usize],
        _conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<Box<dyn Feed>> {
        self.check_columns(columns)?;
        options.check()?;
        Ok(Box::new(BatchFeed::new(self, columns, options)))
    }

    fn file_count(&self) -> usize {
        0
    }

    fn file_identity(&self, _file: usize) -> FileIdentity {
        self.name.identity()
    }
}
