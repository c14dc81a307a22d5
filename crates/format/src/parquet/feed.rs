//! Chunks of row groups.

use std::sync::Arc;
use std::task::{Poll, Waker};

use headrace_io::{BoxError, ChunkFeed, FeedBounds, NextChunk, ReadAt, ReadSpec};
use headrace_ir::layout::ROW_ALIGNMENT;
use headrace_ir::{Chunk, ColumnExtents, Encoding, Extent, Segment};

use super::plain::PlainFile;
use super::table::{ParquetTable, chunk_bytes};
use crate::Result;
use crate::arrow::encoding;
use crate::feed::{ChunkTotals, Feed, FeedFacts, FirstBy, fed, reads_of};
use crate::options::{ChunkOptions, ColumnBound, Filling};
use crate::ranges::BatchRanges;

/// Rows that are worth reading a row group once more.
const SHARED_ROWS_MIN: u64 = 64 << 10;
/// Readers of one row group at most.
const SHARES_MAX: u64 = 8;

/// A range of rows of a row group.
#[derive(Clone, Copy, Debug)]
struct Part {
    file: u32,
    group: u32,
    first_row: u64,
    rows: u32,
}

/// Chunks of a [`ParquetTable`].
#[derive(Debug)]
pub(super) struct ParquetFeed {
    table: Arc<ParquetTable>,
    /// What is read.
    files: Vec<Arc<dyn ReadAt>>,
    /// Whether columns are plain when they are read.
    is_plain: bool,
    columns: Vec<usize>,
    options: ChunkOptions,
    parts: std::vec::IntoIter<Part>,
    facts: FeedFacts,
    first: Option<FirstBy>,
    totals: ChunkTotals,
}

impl ParquetFeed {
    /// Of some row groups, or of all.
    pub fn new(
        table: Arc<ParquetTable>,
        groups_read: Option<&BatchRanges>,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Self {
        let is_read = |file: u32, group: u32| {
            groups_read.is_none_or(|groups| groups.has(file as usize, group as usize))
        };
        let mut totals = ChunkTotals::default();
        let mut groups = Vec::new();
        for (number, file) in (0..).zip(&table.files) {
            let all = 0..file.metadata.num_row_groups() as u32;
            for group in all.filter(|group| is_read(number, *group)) {
                let rows = file.group(group).num_rows() as u64;
                let meets =
                    |bound: &ColumnBound| file.claims(group, bound.column).may_meet(bound, rows);
                if !conditions.iter().filter(|bound| bound.column < file.columns.len()).all(meets) {
                    totals.pruned_batches += 1;
                    totals.pruned_rows += rows;
                } else if rows > 0 {
                    groups.push(Part { file: number, group, first_row: 0, rows: rows as u32 });
                }
            }
        }
        let is_plain = options.is_plain && table.has_plain(columns);
        let shares = options.readers.div_ceil(groups.len().max(1) as u64).min(SHARES_MAX);
        let shares = |group: &Part| match is_plain {
            // The same, whatever a query reads: columns that stay on a device are found again.
            true => u64::from(group.rows).div_ceil(options.segment_rows_max()),
            false => shares.min(u64::from(group.rows) / SHARED_ROWS_MIN),
        };
        let parts: Vec<_> = groups.iter().flat_map(|group| shared(*group, shares(group))).collect();
        let files = (0..).zip(&table.files).map(|(number, file)| match is_plain {
            true => Arc::new(PlainFile::new(Arc::clone(&table), number)) as Arc<dyn ReadAt>,
            false => Arc::clone(&file.source) as Arc<dyn ReadAt>,
        });
        let mut feed = Self {
            files: files.collect(),
            is_plain,
            table,
            columns: columns.to_vec(),
            options,
            facts: FeedFacts::default(),
            parts: Vec::new().into_iter(),
            first: None,
            totals,
        };
        feed.facts = feed.facts_of(&parts);
        feed.parts = parts.into_iter();
        feed
    }

    /// All of them become chunks of at most so many bytes: what does not fit one any more begins the next.
    fn facts_of(&self, parts: &[Part]) -> FeedFacts {
        let segments = parts.iter().map(|part| self.segment(*part));
        let (mut slot_bytes, mut bytes) = (0, 0);
        for segment in segments {
            let reads: Vec<_> = reads_of(&segment).collect();
            slot_bytes = slot_bytes.max(ReadSpec::slot_bytes_of(&reads));
            bytes += reads.iter().map(|read| read.bytes).sum::<u64>();
        }
        let schema = &self.table.schema;
        let lies = |&column: &usize| match self.is_plain {
            true => self.table.plain_encoding(0, column),
            false if self.table.texts_of(column).is_some() => {
                Encoding::Dictionary { code_bytes: 4 }
            }
            false => encoding(schema.field(column).data_type()).unwrap_or(Encoding::Plain),
        };
        FeedFacts {
            bounds: FeedBounds { bytes: Some(bytes), chunks: Some(parts.len() as u64), slot_bytes },
            rows: Some(parts.iter().map(|part| u64::from(part.rows)).sum()),
            segment_bytes: slot_bytes as u64,
            encodings: self.columns.iter().map(lies).collect(),
        }
    }

    fn segment(&self, part: Part) -> Segment {
        let file = &self.table.files[part.file as usize];
        let extents = |&column: &usize| {
            if self.is_plain {
                let rows = (part.first_row, u64::from(part.rows));
                return self.table.plain_extents((part.file, part.group), column, rows);
            }
            let bytes = chunk_bytes(file.chunk(part.group, column)).unwrap_or(0..0);
            ColumnExtents {
                encoding: Encoding::ColumnPages,
                values: Extent { offset: bytes.start, bytes: bytes.end - bytes.start },
                offsets: None,
                offsets_base: 0,
                validity: None,
                remap: None,
            }
        };
        let columns = self.columns.iter().map(extents).collect();
        let Part { file, group: batch, first_row, rows } = part;
        Segment { file, batch, first_row, rows, columns }
    }

    /// The next row group in which a row can be among the first.
    fn next_part(&mut self) -> Option<Part> {
        loop {
            let part = *self.parts.as_slice().first()?;
            let Some(first) = &self.first else { return Some(part) };
            let (condition, rows) = (first.condition(), u64::from(part.rows));
            let claims = self.table.files[part.file as usize].claims(part.group, condition.column);
            let says_nothing = condition.min.is_none() && condition.max.is_none();
            if says_nothing || claims.may_meet(&condition, 0) {
                return Some(part);
            }
            self.parts.next();
            self.totals.pruned_batches += 1;
            self.totals.pruned_rows += rows;
        }
    }

    fn next_chunk(&mut self) -> Result<Option<headrace_io::FedChunk<Chunk>>> {
        let (mut chunk, mut filling, mut slot_bytes) = (Chunk::default(), Filling::default(), 0);
        while let Some(part) = self.next_part() {
            let segment = self.segment(part);
            let reads: Vec<_> = reads_of(&segment).collect();
            let bytes = reads.iter().map(|read| read.bytes).sum();
            slot_bytes += ReadSpec::slot_bytes_of(&reads);
            let fits = slot_bytes <= self.facts.bounds.slot_bytes;
            let rows = u64::from(part.rows);
            if !fits || !filling.takes(&self.options, rows, bytes, reads.len() as u64) {
                break;
            }
            self.parts.next();
            chunk.segments.push(segment);
        }
        if chunk.segments.is_empty() {
            return Ok(None);
        }
        self.totals.add(chunk.segments.len() as u64, filling.rows, filling.bytes);
        fed(chunk, |file| Ok(Arc::clone(&self.files[file as usize]))).map(Some)
    }
}

/// A row group as so many parts, one at least.
fn shared(group: Part, shares: u64) -> impl Iterator<Item = Part> {
    let rows = u64::from(group.rows);
    let each = rows.div_ceil(shares.max(1)).next_multiple_of(ROW_ALIGNMENT);
    let shares = rows.div_ceil(each.max(1));
    (0..shares).map(move |share| {
        let first_row = share * each;
        Part { first_row, rows: each.min(rows - first_row) as u32, ..group }
    })
}

impl ChunkFeed<Chunk> for ParquetFeed {
    fn poll_next(&mut self, _: &Waker) -> NextChunk<Chunk> {
        Poll::Ready(self.next_chunk().map_err(BoxError::from).transpose())
    }
}

impl Feed for ParquetFeed {
    fn facts(&self) -> FeedFacts {
        self.facts.clone()
    }

    fn remaps(&self) -> &[Arc<[i32]>] {
        &[]
    }

    fn totals(&self) -> ChunkTotals {
        self.totals
    }

    fn first_by(&mut self, first: FirstBy) {
        let key = |part: &Part| {
            let claims = self.table.files[part.file as usize].claims(part.group, first.column);
            match first.descending {
                true => claims.max.map_or(i64::MIN, |max| max.saturating_neg()),
                false => claims.min.unwrap_or(i64::MIN),
            }
        };
        let mut parts: Vec<_> = self.parts.as_slice().to_vec();
        parts.sort_by_key(key);
        self.parts = parts.into_iter();
        self.first = Some(first);
    }
}
