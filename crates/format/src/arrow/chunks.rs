//! Chunks of a table: which byte ranges hold the needed rows and columns.
//!
//! Only rows decide where a batch is split, never the columns that a query needs. So a column has the same pieces
//! in every query and is found again in the host cache and in device memory.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::task::{Poll, Waker};

use headrace_io::{BoxError, ChunkFeed, NextChunk, SourceFile, try_map};
use headrace_ir::layout::ROW_ALIGNMENT;
use headrace_ir::{Chunk, ColumnExtents, Segment};

use super::file::Bounds;
use super::message::METADATA_THREADS_MAX;
use super::table::ArrowTable;
use crate::error::{FormatError, Result};
use crate::feed::{ChunkTotals, Feed, FeedFacts, FirstBy, Opened, fed};
use crate::options::{ChunkOptions, ColumnBound, Filling};
use crate::ranges::BatchRanges;

impl ArrowTable {
    /// The reads for columns (in register order; none to only count rows), without record batches
    /// in which no row can meet the conditions.
    ///
    /// # Errors
    /// [`FormatError::Argument`] for a column that does not exist or is not supported (with the
    /// reason of [`column_support`](Self::column_support)), or options of 0.
    pub fn feed(
        &self,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<ArrowFeed<&ArrowTable>> {
        ArrowFeed::new(self, columns, conditions, options)
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

    fn bounds_of(&self, column: usize, file: usize, batch: usize) -> Bounds {
        match self.constant(file, column) {
            Some(value) => self.constant_bounds(column, value),
            None => self.files()[file].bounds(batch, self.fields[file][column]),
        }
    }

    /// Whether no row of a batch can meet the condition, by the statistics that passed the checks
    /// at opening.
    fn rules_out(&self, condition: &ColumnBound, file: usize, batch: usize) -> bool {
        if condition.min.is_none() && condition.max.is_none() {
            return false;
        }
        match self.bounds_of(condition.column, file, batch) {
            Bounds::Unknown => false,
            Bounds::NoValues => true,
            Bounds::Range(min, max) => {
                condition.min.is_some_and(|bound| max < bound.into())
                    || condition.max.is_some_and(|bound| min > bound.into())
            }
        }
    }
}

/// Chunks of a table, borrowed or shared, in row order: each is made on demand, and none is
/// retained. See [`ArrowTable::feed`].
///
/// A record batch that does not fit a chunk is split at multiples of [`ROW_ALIGNMENT`] rows into
/// parts of about equal size; small batches share a chunk. Only the file knows where the texts of a
/// part lie: the end offset of each part is read when the part is made, or beforehand for batches
/// whose texts may exceed a chunk.
#[derive(Debug)]
pub struct ArrowFeed<T> {
    pub(super) parts: Parts<T>,
    /// By column of the plan: the first of its dictionary's remaps among `remaps`.
    first_remaps: Vec<u32>,
    remaps: Vec<Arc<[i32]>>,
    /// The part that did not fit the previous chunk.
    next: Option<Part>,
    totals: ChunkTotals,
    /// The files that chunks were given of, each opened once.
    opened: Opened,
}

impl<T: Deref<Target = ArrowTable>> ArrowFeed<T> {
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
        Self::of_batches(table, None, columns, conditions, options)
    }

    /// The same of some record batches alone.
    pub(super) fn of_batches(
        table: T,
        batches: Option<&Arc<BatchRanges>>,
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
        let mut parts = Parts::new(table, columns.to_vec(), conditions.to_vec(), options);
        parts.batches = batches.cloned();
        parts.long_texts = parts.parts_of_long_texts()?;
        Ok(Self {
            parts,
            first_remaps,
            remaps,
            next: None,
            totals: ChunkTotals::default(),
            opened: Opened::default(),
        })
    }

    /// Totals of all chunks. Walks through the metadata without making chunks.
    ///
    /// # Errors
    /// As for the chunks.
    pub fn survey(&self) -> Result<ChunkTotals> {
        let mut feed = ArrowFeed {
            parts: self.parts.anew(),
            first_remaps: Vec::new(),
            remaps: Vec::new(),
            next: None,
            totals: ChunkTotals::default(),
            opened: Opened::default(),
        };
        while feed.gather(|_| ())? {}
        Ok(feed.totals)
    }

    /// Collects the parts of the next chunk; returns whether there are any.
    fn gather(&mut self, mut take: impl FnMut(Part)) -> Result<bool> {
        let mut filling = Filling::default();
        loop {
            let part = match self.next.take() {
                Some(part) => part,
                None => match self.parts.next(&mut self.totals)? {
                    Some(part) => part,
                    None => break,
                },
            };
            if !filling.takes(&self.parts.options, part.rows, part.size.bytes, part.size.extents) {
                self.next = Some(part);
                break;
            }
            take(part);
        }
        self.totals.add(filling.segments as u64, filling.rows, filling.bytes);
        Ok(filling.segments > 0)
    }

    fn chunk(&mut self) -> Result<Option<Chunk>> {
        let mut parts = Vec::new();
        if !self.gather(|part| parts.push(part))? {
            return Ok(None);
        }
        let segments = parts.iter().map(|part| self.segment(part)).collect::<Result<_>>()?;
        Ok(Some(Chunk { segments }))
    }

    fn segment(&self, part: &Part) -> Result<Segment> {
        let table = &self.parts.table;
        let (file, batch) = (part.file, part.batch);
        let column = |(at, (&column, &first_remap)): (usize, (&usize, &u32))| {
            let mut extents = self.parts.extents(part, at).ok_or_else(|| {
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
            columns: columns.enumerate().map(column).collect::<Result<_>>()?,
        })
    }
}

impl<T: Deref<Target = ArrowTable>> Iterator for ArrowFeed<T> {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Result<Chunk>> {
        let chunk = self.chunk();
        if chunk.is_err() {
            self.parts.end();
        }
        chunk.transpose()
    }
}

impl<T: Deref<Target = ArrowTable> + Send + std::fmt::Debug> ChunkFeed<Chunk> for ArrowFeed<T> {
    fn poll_next(&mut self, _waker: &Waker) -> NextChunk<Chunk> {
        let next = self.next();
        let (opened, table) = (&mut self.opened, &self.parts.table);
        let open =
            |file| Ok(table.files()[file as usize].source_as(table.policy().check_identity) as _);
        let with_files = |chunk| fed(chunk, |file| opened.file(file, || open(file)));
        Poll::Ready(next.map(|chunk| chunk.and_then(with_files).map_err(BoxError::from)))
    }
}

impl<T: Deref<Target = ArrowTable> + Send + std::fmt::Debug> Feed for ArrowFeed<T> {
    fn facts(&self) -> FeedFacts {
        self.parts.facts()
    }

    fn remaps(&self) -> &[Arc<[i32]>] {
        &self.remaps
    }

    fn totals(&self) -> ChunkTotals {
        self.totals
    }

    fn first_by(&mut self, first: FirstBy) {
        self.parts.first_by(first);
    }
}

/// A row range of a record batch.
#[derive(Clone, Debug)]
struct Part {
    file: usize,
    batch: usize,
    first_row: u64,
    rows: u64,
    /// By column of the feed: the bytes of these rows among the batch's texts. Empty for all rows of a
    /// batch, or without text columns.
    texts: Vec<Range<u64>>,
    /// For all extents.
    size: Size,
}

#[derive(Clone, Copy, Debug, Default)]
struct Size {
    bytes: u64,
    extents: u64,
}

/// Start of the next part.
#[derive(Clone, Debug, Default)]
struct Place {
    file: usize,
    batch: usize,
    row: u64,
    /// Maximum rows of each part of the batch; 0: not determined yet.
    part_rows: u64,
    /// By column of the feed: start of the row's texts, in a batch that is split.
    texts: Vec<u64>,
}

/// The parts of batches whose texts may exceed a chunk: their number, and bytes of the largest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LongTexts {
    pub(super) parts: u64,
    pub(super) part_bytes_max: u64,
}

/// The parts of all record batches that are not ruled out, in order.
#[derive(Debug)]
pub(super) struct Parts<T> {
    pub(super) table: T,
    pub(super) columns: Vec<usize>,
    conditions: Vec<ColumnBound>,
    /// The record batches that are read; `None`: all.
    batches: Option<Arc<BatchRanges>>,
    pub(super) options: ChunkOptions,
    pub(super) long_texts: LongTexts,
    at: Place,
    first: Option<FirstBy>,
    /// The order of files and batches after `at`, if it is not their own.
    turns: Option<std::vec::IntoIter<(usize, usize)>>,
    /// The file whose offsets were read last.
    source: Option<(usize, Arc<SourceFile>)>,
}

impl<T: Deref<Target = ArrowTable>> Parts<T> {
    fn new(
        table: T,
        columns: Vec<usize>,
        conditions: Vec<ColumnBound>,
        options: ChunkOptions,
    ) -> Self {
        let (long_texts, at) = (LongTexts::default(), Place::default());
        let (batches, first, turns, source) = (None, None, None, None);
        Self { table, columns, conditions, batches, options, long_texts, at, first, turns, source }
    }

    /// The same from the first on.
    fn anew(&self) -> Parts<&ArrowTable> {
        let (columns, conditions) = (self.columns.clone(), self.conditions.clone());
        let batches = self.batches.clone();
        Parts { batches, ..Parts::new(&*self.table, columns, conditions, self.options) }
    }

    /// The end was reached.
    fn end(&mut self) {
        self.at = Place { file: self.table.files().len(), ..Place::default() };
        self.turns = None;
    }

    /// See [`Feed::first_by`].
    fn first_by(&mut self, first: FirstBy) {
        let files = self.table.files().iter().enumerate();
        let batches = files.flat_map(|(file, it)| (0..it.batches()).map(move |b| (file, b)));
        // What is not known has to be read anyhow.
        let mut turns: Vec<_> = batches
            .map(|(file, batch)| {
                let best = match self.table.bounds_of(first.column, file, batch) {
                    Bounds::Range(_, max) if first.descending => Some(-max),
                    Bounds::Range(min, _) => Some(min),
                    Bounds::NoValues | Bounds::Unknown => None,
                };
                (best.is_none(), best, (file, batch))
            })
            .collect();
        turns.sort();
        let turns: Vec<_> = turns.into_iter().map(|(_, _, place)| place).collect();
        self.first = Some(first);
        if !turns.is_sorted() {
            self.turns = Some(turns.into_iter());
            self.at = self.after(0, 0);
        }
    }

    /// The start of the batch after this one.
    fn after(&mut self, file: usize, batch: usize) -> Place {
        let (file, batch) = match &mut self.turns {
            Some(turns) => turns.next().unwrap_or((self.table.files().len(), 0)),
            None => (file, batch + 1),
        };
        Place { file, batch, ..Place::default() }
    }

    fn next(&mut self, totals: &mut ChunkTotals) -> Result<Option<Part>> {
        loop {
            let Place { file, batch, row, part_rows, .. } = self.at;
            let Some(source) = self.table.files().get(file) else { return Ok(None) };
            let rows = source.batch_rows(batch);
            if batch >= source.batches() {
                self.at = Place { file: file + 1, ..Place::default() };
            } else if row >= rows || !self.is_read(file, batch) {
                self.at = self.after(file, batch);
            } else if part_rows > 0 && self.is_of_no_use(file, batch) {
                totals.pruned_rows += rows - row;
                self.at.row = rows;
            } else if part_rows > 0 {
                let part = self.part(rows)?;
                self.at.row += part.rows;
                return Ok(Some(part));
            } else if self.is_ruled_out(file, batch) || self.is_of_no_use(file, batch) {
                totals.pruned_batches += 1;
                totals.pruned_rows += rows;
                self.at.row = rows;
            } else {
                self.at.part_rows = self.part_rows(file, batch, rows);
                if self.at.part_rows < rows {
                    self.at.texts = self.text_offsets(0)?;
                }
            }
        }
    }

    fn is_read(&self, file: usize, batch: usize) -> bool {
        self.batches.as_ref().is_none_or(|batches| batches.has(file, batch))
    }

    fn is_ruled_out(&self, file: usize, batch: usize) -> bool {
        self.conditions.iter().any(|condition| self.table.rules_out(condition, file, batch))
    }

    /// Whether all rows of a batch come after the wanted first rows.
    fn is_of_no_use(&self, file: usize, batch: usize) -> bool {
        let first = self.first.as_ref();
        first.is_some_and(|first| self.table.rules_out(&first.condition(), file, batch))
    }

    /// The next part of a batch with this many rows: halved until its texts fit too.
    fn part(&mut self, batch_rows: u64) -> Result<Part> {
        let Place { file, batch, row: first_row, part_rows, .. } = self.at;
        let rows = part_rows.min(batch_rows - first_row);
        let (texts, size) = (Vec::new(), Size::default());
        let mut part = Part { file, batch, first_row, rows, texts, size };
        if self.at.texts.is_empty() {
            part.size = self.size(&part);
            return Ok(part);
        }
        loop {
            let ends = self.text_offsets(first_row + part.rows)?;
            part.texts = self.texts_between(&ends)?;
            part.size = self.size(&part);
            if part.size.bytes <= self.options.chunk_bytes_max || part.rows <= ROW_ALIGNMENT {
                self.at.texts = ends;
                return Ok(part);
            }
            part.rows = (part.rows / 2).next_multiple_of(ROW_ALIGNMENT);
        }
    }

    /// The bytes of the next part's texts.
    fn texts_between(&self, ends: &[u64]) -> Result<Vec<Range<u64>>> {
        let Place { file, batch, row, .. } = self.at;
        let column = |(at, (&from, &to)): (usize, (&u64, &u64))| {
            if from <= to {
                return Ok(from..to);
            }
            let name = self.table.schema().field(self.columns[at]).name();
            let place = format!("record batch {batch}, column {name}, after row {row}");
            let cause = format!("offsets of texts fall from {from} to {to}");
            Err(FormatError::corrupt(self.table.files()[file].path(), 0, place, cause))
        };
        self.at.texts.iter().zip(ends).enumerate().map(column).collect()
    }

    /// By column of the feed: the start of a row's texts in the current batch, read from the file.
    /// Empty without text columns.
    fn text_offsets(&mut self, row: u64) -> Result<Vec<u64>> {
        let Place { file, batch, .. } = self.at;
        let known = &self.table.files()[file];
        if self.texts_bytes(file, batch).is_none() {
            return Ok(Vec::new());
        }
        let source = match self.source.take() {
            Some((number, source)) if number == file => source,
            _ => known.source(),
        };
        let offset = |&column: &usize| {
            let Some(&field) = self.table.fields[file].get(column) else { return Ok(0) };
            Ok(known.text_offset(&*source, (batch, field), row)?.unwrap_or(0))
        };
        let offsets = self.columns.iter().map(offset).collect();
        self.source = Some((file, source));
        offsets
    }

    /// The location of a column's values.
    fn extents(&self, part: &Part, at: usize) -> Option<ColumnExtents> {
        let column = *self.columns.get(at)?;
        if let Some(value) = self.table.constant(part.file, column) {
            return Some(ColumnExtents::constant(value));
        }
        let field = self.table.fields[part.file][column];
        let rows = (part.first_row, part.rows);
        self.table.files()[part.file].extents(part.batch, field, rows, part.texts.get(at))
    }

    fn size(&self, part: &Part) -> Size {
        let extents = (0..self.columns.len()).filter_map(|at| self.extents(part, at));
        extents.fold(Size::default(), |size, extents| {
            extents.extents().fold(size, |size, extent| Size {
                bytes: size.bytes + extent.bytes,
                extents: size.extents + 1,
            })
        })
    }

    /// Rows of each part of a batch: all, or a multiple of [`ROW_ALIGNMENT`].
    fn part_rows(&self, file: usize, batch: usize, rows: u64) -> u64 {
        let texts_bytes = self.texts_bytes(file, batch).unwrap_or(0);
        // Of about equal size rather than full ones and a rest; halved by doubling their number.
        let mut parts = rows.div_ceil(self.options.segment_rows_max());
        loop {
            let part_rows = rows.div_ceil(parts).next_multiple_of(ROW_ALIGNMENT).min(rows);
            // Texts are not spread evenly: these rows may have a quarter more than their share.
            let share = (u128::from(texts_bytes) * u128::from(part_rows) / u128::from(rows)) as u64;
            let texts_bytes = texts_bytes.min(share.saturating_add(share / 4));
            if self.fixed_bytes(file, batch, part_rows).saturating_add(texts_bytes)
                <= self.options.chunk_bytes_max
                || part_rows <= ROW_ALIGNMENT
            {
                return part_rows;
            }
            parts *= 2;
        }
    }

    /// Bytes of the first rows of a batch, without texts.
    fn fixed_bytes(&self, file: usize, batch: usize, rows: u64) -> u64 {
        let texts = vec![0..0; self.columns.len()];
        self.size(&Part { file, batch, first_row: 0, rows, texts, size: Size::default() }).bytes
    }

    /// Bytes of all texts of a batch; `None` without text columns.
    fn texts_bytes(&self, file: usize, batch: usize) -> Option<u64> {
        let fields = &self.table.fields[file];
        let of_column = |&c: &usize| self.table.files()[file].text_bytes(batch, *fields.get(c)?);
        self.columns.iter().filter_map(of_column).reduce(u64::saturating_add)
    }

    /// Examines the parts of the batches whose texts may exceed a chunk.
    fn parts_of_long_texts(&self) -> Result<LongTexts> {
        let (table, bytes_max) = (&*self.table, self.options.chunk_bytes_max);
        let texts_max = self.columns.iter().map(|&column| table.text_bytes_max(column));
        let texts_max = texts_max.fold(0, u64::saturating_add);
        if texts_max == 0 || self.largest_part_bytes().saturating_add(texts_max) <= bytes_max {
            return Ok(LongTexts::default());
        }
        let anew = self.anew();
        let batches = table.files().iter().enumerate();
        let batches =
            batches.flat_map(|(file, known)| (0..known.batches()).map(move |b| (file, b)));
        let is_long = |&(file, batch): &(usize, usize)| {
            let rows = table.files()[file].batch_rows(batch);
            let rows = rows.min(self.options.segment_rows_max());
            let texts_bytes = anew.texts_bytes(file, batch).unwrap_or(0);
            texts_bytes > 0
                && anew.is_read(file, batch)
                && anew.fixed_bytes(file, batch, rows).saturating_add(texts_bytes) > bytes_max
                && !anew.is_ruled_out(file, batch)
        };
        let long: Vec<_> = batches.filter(is_long).collect();
        let found = try_map(long.len(), (1, METADATA_THREADS_MAX), |i| {
            let (file, batch) = long[i];
            let mut parts = anew.anew();
            parts.at = Place { file, batch, ..Place::default() };
            parts.rest_of_batch()
        })?;
        Ok(found.iter().fold(LongTexts::default(), |all, one| LongTexts {
            parts: all.parts + one.parts,
            part_bytes_max: all.part_bytes_max.max(one.part_bytes_max),
        }))
    }

    fn rest_of_batch(&mut self) -> Result<LongTexts> {
        let rows = self.table.files()[self.at.file].batch_rows(self.at.batch);
        let mut found = LongTexts::default();
        let mut totals = ChunkTotals::default();
        while self.at.row < rows
            && let Some(part) = self.next(&mut totals)?
        {
            found.parts += 1;
            found.part_bytes_max = found.part_bytes_max.max(part.size.bytes);
        }
        Ok(found)
    }
}

fn index(value: usize, what: &str) -> Result<u32> {
    u32::try_from(value).map_err(|_| FormatError::Argument(format!("more than 2^32 {what}")))
}
