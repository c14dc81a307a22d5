//! Chunks of a table: which byte ranges hold the needed rows and columns.

use std::ops::Deref;
use std::sync::Arc;
use std::task::{Poll, Waker};

use headrace_ir::layout::ROW_ALIGNMENT;
use headrace_ir::{Chunk, ColumnExtents, Segment};

use super::file::Bounds;
use super::table::ArrowTable;
use crate::error::{FormatError, Result};
use crate::feed::{ChunkTotals, FedChunk, Feed, FeedBounds};

/// Rows of a segment fit 31 bits.
const SEGMENT_ROWS_MAX: u64 = (i32::MAX as u64) / ROW_ALIGNMENT * ROW_ALIGNMENT;

/// A condition that every needed row meets: the column is not NULL and lies within the bounds
/// given. Several conditions hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnBound {
    /// Column of the table, of an integer-like type; of another type, the condition prunes
    /// nothing.
    pub column: usize,
    /// No needed value is smaller (days, ticks, unscaled decimal).
    pub min: Option<i64>,
    /// No needed value is larger.
    pub max: Option<i64>,
}

/// How large chunks may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkOptions {
    /// A record batch of more rows is split into parts of about equal size, whatever columns are
    /// asked for: what was read of a column for one query is found again by another.
    pub part_rows_max: u64,
    /// Rows of a chunk at most; more than this split a batch too.
    pub chunk_rows_max: u64,
    /// Bytes of a chunk's extents at most. A part that is larger is halved until it fits, and
    /// then other columns may have other parts. A chunk of one segment may be larger where it
    /// cannot be split: [`ROW_ALIGNMENT`] rows that are wider, or text (see [`ChunkFeed`]).
    pub chunk_bytes_max: u64,
    /// A chunk that has so many bytes gets no further segment.
    pub chunk_bytes_wanted: u64,
    /// Segments of a chunk at most.
    pub chunk_segments_max: usize,
    /// What each extent takes besides its bytes of whatever holds a chunk: counted where a further
    /// segment would make a chunk too large, and where it makes it [`CHUNK_EXTRA_SHARE`] times what
    /// is wanted.
    pub extent_extra_bytes: u64,
}

/// A chunk of many small extents has at most so many times the bytes that are wanted, what extents
/// take besides their bytes included.
pub const CHUNK_EXTRA_SHARE: u64 = 8;

/// A chunk that segments are put into until it is full.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filling {
    pub(crate) segments: usize,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// With what the extents take besides.
    room_bytes: u64,
}

impl Filling {
    /// Takes a segment in if it fits, as the first one always does; whether it did.
    pub(crate) fn takes(
        &mut self,
        options: &ChunkOptions,
        rows: u64,
        bytes: u64,
        extents: u64,
    ) -> bool {
        let room_bytes = bytes + extents * options.extent_extra_bytes;
        let wanted = options.chunk_bytes_wanted.max(1);
        let fits = self.segments < options.chunk_segments_max
            && self.rows + rows <= options.chunk_rows_max
            && self.room_bytes + room_bytes <= options.chunk_bytes_max
            && self.room_bytes < wanted.saturating_mul(CHUNK_EXTRA_SHARE)
            && self.bytes < wanted;
        if !fits && self.segments > 0 {
            return false;
        }
        self.segments += 1;
        self.rows += rows;
        self.bytes += bytes;
        self.room_bytes += room_bytes;
        true
    }
}

impl Default for ChunkOptions {
    fn default() -> Self {
        Self {
            part_rows_max: 1 << 24,
            chunk_rows_max: 1 << 24,
            chunk_bytes_max: 64 << 20,
            chunk_bytes_wanted: 64 << 20,
            chunk_segments_max: 1024,
            extent_extra_bytes: 0,
        }
    }
}

impl ChunkOptions {
    /// Rows of a segment at most, whatever its bytes: a multiple of [`ROW_ALIGNMENT`].
    pub(crate) fn segment_rows_max(&self) -> u64 {
        let limit = self.part_rows_max.min(self.chunk_rows_max).min(SEGMENT_ROWS_MAX);
        (limit / ROW_ALIGNMENT).max(1) * ROW_ALIGNMENT
    }

    /// # Errors
    /// [`FormatError::Argument`] for chunks of nothing.
    pub(crate) fn check(&self) -> Result<()> {
        if self.part_rows_max == 0
            || self.chunk_rows_max == 0
            || self.chunk_bytes_max == 0
            || self.chunk_segments_max == 0
        {
            return Err(FormatError::Argument(format!("chunks of nothing: {self:?}")));
        }
        Ok(())
    }
}

impl ArrowTable {
    /// What to read of columns (in register order; none to only count rows), leaving out record
    /// batches in which no row can meet the conditions.
    ///
    /// # Errors
    /// [`FormatError::Argument`] for a column that does not exist, is not supported (with the
    /// reason of [`column_support`](Self::column_support)), or options of 0.
    pub fn feed(
        &self,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<ChunkFeed<&ArrowTable>> {
        ChunkFeed::new(self, columns, conditions, options)
    }

    fn check_arguments(
        &self,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<()> {
        let width = self.schema().fields().len();
        for column in columns.iter().copied().chain(conditions.iter().map(|c| c.column)) {
            if column >= width {
                return Err(FormatError::Argument(format!("column {column} of {width}")));
            }
        }
        for &column in columns {
            self.column_support(column).map_err(|reason| {
                FormatError::Argument(format!(
                    "column {}: {reason}",
                    self.schema().field(column).name()
                ))
            })?;
        }
        options.check()
    }

    /// Whether no row of a batch can meet the condition, going by statistics that were believed
    /// when the file was opened.
    fn rules_out(&self, condition: &ColumnBound, file: usize, batch: usize) -> bool {
        if condition.min.is_none() && condition.max.is_none() {
            return false;
        }
        let field = self.fields[file][condition.column];
        match self.files()[file].bounds(batch, field) {
            Bounds::Unknown => false,
            Bounds::NoValues => true,
            Bounds::Range(min, max) => {
                condition.min.is_some_and(|bound| max < bound.into())
                    || condition.max.is_some_and(|bound| min > bound.into())
            }
        }
    }
}

/// Chunks of a table, which it borrows or shares, in the order of its rows: none is made before it
/// is asked for, and nothing is kept of those that were taken. See [`ArrowTable::feed`].
///
/// A record batch that does not fit a chunk is split at multiples of [`ROW_ALIGNMENT`] rows into
/// parts of about equal size; small batches share a chunk. Offsets of text count from the start
/// of the batch's text, so every part of a split batch has the text of the whole batch among its
/// extents: a batch whose text alone exceeds the limit is not split for its bytes, and
/// [`bytes_max`](ChunkTotals::bytes_max) says how large chunks really get.
#[derive(Debug)]
pub struct ChunkFeed<T> {
    pub(super) parts: Parts<T>,
    /// By column of the plan: where its dictionary's remaps begin among `remaps`.
    first_remaps: Vec<u32>,
    remaps: Vec<Arc<[i32]>>,
    /// The part that did not fit the chunk before.
    next: Option<Part>,
    totals: ChunkTotals,
}

impl<T: Deref<Target = ArrowTable>> ChunkFeed<T> {
    /// As [`ArrowTable::feed`].
    ///
    /// # Errors
    /// As there.
    pub fn new(
        table: T,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<Self> {
        table.check_arguments(columns, conditions, options)?;
        let mut remaps: Vec<Arc<[i32]>> = Vec::new();
        let mut first_remaps = Vec::with_capacity(columns.len());
        for &column in columns {
            first_remaps.push(index(remaps.len(), "dictionaries")?);
            let dictionary = table.table_dictionary(column).into_iter();
            remaps.extend(dictionary.flat_map(|d| d.remaps.clone()));
        }
        index(remaps.len(), "dictionaries")?;
        let (columns, conditions) = (columns.to_vec(), conditions.to_vec());
        let parts = Parts { table, columns, conditions, options, at: Place::default() };
        Ok(Self { parts, first_remaps, remaps, next: None, totals: ChunkTotals::default() })
    }

    /// Code translation tables of all chunks, see [`headrace_ir::ColumnExtents::remap`].
    pub fn remaps(&self) -> &[Arc<[i32]>] {
        &self.remaps
    }

    /// What was yielded so far.
    pub fn totals(&self) -> ChunkTotals {
        self.totals
    }

    /// What all chunks together will be. Walks through the metadata, and makes no chunk.
    pub fn survey(&self) -> ChunkTotals {
        let Parts { table, columns, conditions, options, .. } = &self.parts;
        let parts = Parts {
            table: &**table,
            columns: columns.clone(),
            conditions: conditions.clone(),
            options: *options,
            at: Place::default(),
        };
        let mut feed = ChunkFeed {
            parts,
            first_remaps: Vec::new(),
            remaps: Vec::new(),
            next: None,
            totals: ChunkTotals::default(),
        };
        while feed.gather(|_| ()) {}
        feed.totals
    }

    /// Takes the parts of the next chunk; whether there are any.
    fn gather(&mut self, mut take: impl FnMut(&Part)) -> bool {
        let mut filling = Filling::default();
        while let Some(part) = self.next.take().or_else(|| self.parts.next(&mut self.totals)) {
            if !filling.takes(&self.parts.options, part.rows, part.size.bytes, part.size.extents) {
                self.next = Some(part);
                break;
            }
            take(&part);
        }
        self.totals.add(filling.segments as u64, filling.rows, filling.bytes);
        filling.segments > 0
    }

    fn segment(&self, part: &Part) -> Result<Segment> {
        let table = &self.parts.table;
        let (file, batch) = (part.file, part.batch);
        let column = |(&column, &first_remap): (&usize, &u32)| {
            let mut extents = self.parts.extents(part, column).ok_or_else(|| {
                let name = table.schema().field(column).name();
                FormatError::column(name, "its values have no place in the file")
            })?;
            let dictionary = table.table_dictionary(column);
            let remap = dictionary.and_then(|dictionary| dictionary.remap(file));
            extents.remap = remap.map(|(number, _)| first_remap + number);
            Ok(extents)
        };
        let columns = self.parts.columns.iter().zip(&self.first_remaps);
        Ok(Segment {
            file: index(file, "files")?,
            batch: index(batch, "record batches")?,
            first_row: part.first_row,
            rows: index(part.rows as usize, "rows")?,
            columns: columns.map(column).collect::<Result<_>>()?,
        })
    }
}

impl<T: Deref<Target = ArrowTable>> Iterator for ChunkFeed<T> {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Result<Chunk>> {
        let mut parts = Vec::new();
        if !self.gather(|part| parts.push(*part)) {
            return None;
        }
        let segments = parts.iter().map(|part| self.segment(part)).collect::<Result<Vec<_>>>();
        Some(segments.map(|segments| Chunk { segments }))
    }
}

impl<T: Deref<Target = ArrowTable> + Send + std::fmt::Debug> Feed for ChunkFeed<T> {
    fn bounds(&self) -> FeedBounds {
        self.parts.bounds()
    }

    fn remaps(&self) -> &[Arc<[i32]>] {
        self.remaps()
    }

    fn poll_next(&mut self, _waker: &Waker) -> Poll<Option<Result<FedChunk>>> {
        let fed = |chunk: Result<Chunk>| chunk.map(|chunk| FedChunk { chunk, memory: None });
        Poll::Ready(self.next().map(fed))
    }

    fn totals(&self) -> ChunkTotals {
        self.totals()
    }
}

/// A row range of a record batch.
#[derive(Clone, Copy, Debug)]
struct Part {
    file: usize,
    batch: usize,
    first_row: u64,
    rows: u64,
    /// Of all extents.
    size: Size,
}

#[derive(Clone, Copy, Debug, Default)]
struct Size {
    bytes: u64,
    extents: u64,
}

/// Where the next part begins.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    file: usize,
    batch: usize,
    row: u64,
    /// Rows of each part of the batch; 0: the batch was not looked at yet.
    part_rows: u64,
    /// Of the first part.
    part_size: Size,
}

/// The parts of all record batches that are not ruled out, in order.
#[derive(Clone, Debug)]
pub(super) struct Parts<T> {
    pub(super) table: T,
    pub(super) columns: Vec<usize>,
    conditions: Vec<ColumnBound>,
    pub(super) options: ChunkOptions,
    at: Place,
}

impl<T: Deref<Target = ArrowTable>> Parts<T> {
    fn next(&mut self, totals: &mut ChunkTotals) -> Option<Part> {
        loop {
            let Place { file, batch, row, part_rows, part_size } = self.at;
            let source = self.table.files().get(file)?;
            let rows = source.batch_rows(batch);
            if batch >= source.batches() {
                self.at = Place { file: file + 1, ..Place::default() };
            } else if row >= rows {
                self.at = Place { file, batch: batch + 1, ..Place::default() };
            } else if part_rows > 0 {
                self.at.row = row + part_rows;
                let rows = part_rows.min(rows - row);
                let mut part = Part { file, batch, first_row: row, rows, size: part_size };
                if row > 0 {
                    part.size = self.size(&part);
                }
                return Some(part);
            } else if self.conditions.iter().any(|c| self.table.rules_out(c, file, batch)) {
                totals.pruned_batches += 1;
                totals.pruned_rows += rows;
                self.at.row = rows;
            } else {
                let first = self.first_part(file, batch, rows);
                (self.at.part_rows, self.at.part_size) = (first.rows, first.size);
            }
        }
    }

    fn extents(&self, part: &Part, column: usize) -> Option<ColumnExtents> {
        let field = self.table.fields[part.file][column];
        self.table.files()[part.file].extents(part.batch, field, part.first_row, part.rows)
    }

    fn size(&self, part: &Part) -> Size {
        let extents = self.columns.iter().filter_map(|&column| self.extents(part, column));
        extents.fold(Size::default(), |size, extents| {
            let own = [Some(extents.values), extents.offsets, extents.validity];
            own.iter().flatten().fold(size, |size, extent| Size {
                bytes: size.bytes + extent.bytes,
                extents: size.extents + 1,
            })
        })
    }

    /// The first part of a batch: all rows, or a multiple of [`ROW_ALIGNMENT`] for each part.
    fn first_part(&self, file: usize, batch: usize, rows: u64) -> Part {
        let bytes_max = self.options.chunk_bytes_max;
        // Of about equal size rather than full ones and a rest; halved by doubling their number.
        let mut parts = rows.div_ceil(self.options.segment_rows_max());
        loop {
            let part_rows = rows.div_ceil(parts).next_multiple_of(ROW_ALIGNMENT);
            let (rows, size) = (part_rows.min(rows), Size::default());
            let mut part = Part { file, batch, first_row: 0, rows, size };
            part.size = self.size(&part);
            if part.size.bytes <= bytes_max
                || part_rows == ROW_ALIGNMENT
                || self.text_bytes(file, batch) >= bytes_max
            {
                return part;
            }
            parts *= 2;
        }
    }

    /// Bytes that every part of a batch takes, however small it is.
    fn text_bytes(&self, file: usize, batch: usize) -> u64 {
        let one = Part { file, batch, first_row: 0, rows: 1, size: Size::default() };
        let text = |&column: &usize| {
            let extents = self.extents(&one, column)?;
            extents.offsets.map(|_| extents.values.bytes)
        };
        self.columns.iter().filter_map(text).sum()
    }
}

fn index(value: usize, what: &str) -> Result<u32> {
    u32::try_from(value).map_err(|_| FormatError::Argument(format!("more than 2^32 {what}")))
}
