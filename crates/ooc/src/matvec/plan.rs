//! Which bytes of the matrix form a chunk, and in which order their products are summed.
//!
//! ```text
//!            span 0    span 1    span 2          a tile: rows x columns that a chunk brings
//!          ┌─────────┬─────────┬──────┐          a band: some of its rows    ┐ block: band x span,
//!  band 0  │         │         │      │          a span: some of its columns ┘ stays in cache
//!          ├─────────┼─────────┼──────┤
//!  band 1  │         │         │      │          A x:  a sum for each row and span
//!          └─────────┴─────────┴──────┘          Aᵀx:  a sum for each band and column
//! ```
//!
//! For a matrix of rows, bands and spans depend on its shape and type alone. A sum over a span, or over a band,
//! is computed within one chunk; these sums are added in the order of spans, or of bands, whichever thread
//! computed them. So the result has the same bits for any number of threads and any chunk size.

use std::sync::Arc;

use headrace_flow::{ChunkSpec, ReadSpec};
use headrace_io::{EXTENT_ALIGN_BYTES, MemoryBudget};

use super::columns::Parts;
use super::matrix::Matrix;
use crate::Result;

/// Minimum rows of a band, so that the sums of a band are few beside its values.
const BAND_ROWS: usize = 64;

/// Approximate bytes of a band with short rows.
const BAND_BYTES: usize = 64 << 10;

/// Bytes of a row's part in a span: its part of a vector stays in the first-level caches.
const SPAN_BYTES: usize = 16 << 10;

/// A part of the matrix in one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tile {
    pub first_row: usize,
    pub rows: usize,
    pub first_column: usize,
    pub columns: usize,
    /// Whether each row is its own buffer; else one buffer has all of them.
    pub by_row: bool,
    /// Rows of its bands; the last may have fewer.
    pub band_rows: usize,
    /// Columns of its spans; the last may have fewer.
    pub span_columns: usize,
}

impl Tile {
    pub fn bands(&self) -> usize {
        self.rows.div_ceil(self.band_rows)
    }

    pub fn spans(&self) -> usize {
        self.columns.div_ceil(self.span_columns)
    }

    pub fn buffers(&self) -> usize {
        if self.by_row { self.rows } else { 1 }
    }

    /// Sums for each vector of a product.
    pub fn forward_sums(&self) -> usize {
        self.spans() * self.rows
    }

    /// Like `forward_sums`, for the product with the transpose.
    pub fn transposed_sums(&self) -> usize {
        self.bands() * self.columns
    }
}

/// A matrix cut into chunks, one tile each: whole bands, or parts of one band if its rows are long. The chunks of a
/// table are parts of its record batches, with bands and spans counted anew in each.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    parts: Option<Arc<Parts>>,
    offset: u64,
    rows: usize,
    columns: usize,
    value_bytes: usize,
    band_rows: usize,
    span_columns: usize,
    /// Whole bands of a chunk; 1 if a band is cut.
    bands: usize,
    /// Spans of a chunk: all, unless a band is cut.
    spans: usize,
}

impl Plan {
    /// Chunks of about `chunk_bytes`, at least the part of a band in a span.
    ///
    /// # Errors
    /// Those of a table.
    pub fn new(matrix: &Matrix, chunk_bytes: usize, memory: &Arc<MemoryBudget>) -> Result<Plan> {
        let path = matrix.file.path();
        let parts = |table| Parts::of(table, path, chunk_bytes, memory);
        let parts = matrix.table.as_ref().map(parts).transpose()?;
        let plan = Plan::of_rows(matrix, chunk_bytes);
        let band_rows =
            if parts.is_some() { BAND_ROWS.min(plan.rows.max(1)) } else { plan.band_rows };
        Ok(Plan { parts, band_rows, ..plan })
    }

    fn of_rows(matrix: &Matrix, chunk_bytes: usize) -> Plan {
        let Matrix { rows, columns, offset, .. } = *matrix;
        let value_bytes = matrix.number.bytes();
        let row_bytes = matrix.row_bytes().max(1);
        let longer = (BAND_BYTES / row_bytes / BAND_ROWS).max(1);
        let band_rows = (BAND_ROWS << longer.ilog2()).min(rows.max(1));
        let span_columns = SPAN_BYTES / value_bytes;
        let all_spans = columns.div_ceil(span_columns).max(1);
        let band_bytes = band_rows * row_bytes;
        let (bands, spans) = if band_bytes <= chunk_bytes {
            (chunk_bytes / band_bytes, all_spans)
        } else {
            let spans_max = (chunk_bytes / (band_rows * SPAN_BYTES)).max(1);
            // Of about equal size rather than full ones and a rest.
            (1, all_spans.div_ceil(all_spans.div_ceil(spans_max)))
        };
        let parts = None;
        Plan { parts, offset, rows, columns, value_bytes, band_rows, span_columns, bands, spans }
    }

    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Chunks of each band.
    fn across(&self) -> usize {
        self.columns.div_ceil(self.spans * self.span_columns)
    }

    pub fn chunks(&self) -> usize {
        if let Some(parts) = &self.parts {
            return parts.parts.len();
        }
        self.rows.div_ceil(self.bands * self.band_rows) * self.across()
    }

    pub fn tile(&self, chunk: usize) -> Tile {
        let Plan { band_rows, span_columns, .. } = *self;
        if let Some(parts) = &self.parts {
            let part = &parts.parts[chunk];
            let (first_row, rows, by_row) = (0, self.rows, true);
            let (first_column, columns) = (part.first, part.rows);
            return Tile {
                first_row,
                rows,
                first_column,
                columns,
                by_row,
                band_rows,
                span_columns,
            };
        }
        let (rows, columns) = (self.bands * self.band_rows, self.spans * self.span_columns);
        let first_row = chunk / self.across() * rows;
        let first_column = chunk % self.across() * columns;
        let rows = rows.min(self.rows - first_row);
        let columns = columns.min(self.columns - first_column);
        let by_row = columns < self.columns && rows > 1;
        Tile { first_row, rows, first_column, columns, by_row, band_rows, span_columns }
    }

    /// The reads of a chunk, from the race's file 0.
    pub fn spec(&self, chunk: usize) -> ChunkSpec {
        let tile = self.tile(chunk);
        let rows_a_buffer = tile.rows / tile.buffers();
        let bytes = (rows_a_buffer * tile.columns * self.value_bytes) as u64;
        let read = |buffer: usize| {
            let offset = match &self.parts {
                Some(parts) => parts.parts[chunk].offsets[buffer],
                None => {
                    let value = (tile.first_row + buffer) * self.columns + tile.first_column;
                    self.offset + (value * self.value_bytes) as u64
                }
            };
            ReadSpec { file: 0, offset, bytes }
        };
        ChunkSpec { reads: (0..tile.buffers()).map(read).collect() }
    }

    /// The largest tile, if there is any.
    fn largest(&self) -> Option<Tile> {
        let largest = match &self.parts {
            Some(parts) => (0..parts.parts.len()).max_by_key(|part| parts.parts[*part].rows)?,
            None => 0,
        };
        (self.chunks() > 0).then(|| self.tile(largest))
    }

    /// Bytes of a slot that fits any chunk.
    pub fn slot_bytes(&self) -> usize {
        self.largest().map_or(0, |tile| {
            let rows_a_buffer = tile.rows / tile.buffers();
            let widened = rows_a_buffer * tile.columns * self.value_bytes + 2 * EXTENT_ALIGN_BYTES;
            tile.buffers() * (widened / EXTENT_ALIGN_BYTES * EXTENT_ALIGN_BYTES)
        })
    }

    /// Bytes of the largest chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.largest().map_or(0, |tile| tile.rows * tile.columns * self.value_bytes)
    }

    /// The largest chunk's sums for this many vectors of each product.
    pub fn sums(&self, forward: usize, transposed: usize) -> usize {
        let sums = |tile: Tile| tile.forward_sums() * forward + tile.transposed_sums() * transposed;
        self.largest().map_or(0, sums)
    }
}
