//! Chunks of a table: which byte ranges hold the needed rows and columns.

use std::sync::Arc;

use headrace_ir::layout::ROW_ALIGNMENT;
use headrace_ir::{Chunk, Encoding, Segment};

use super::file::{Bounds, encoding};
use super::table::ArrowTable;
use crate::error::{FormatError, Result};

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
    /// Rows of a chunk at most.
    pub chunk_rows_max: u64,
    /// Bytes of a chunk's extents at most. A chunk of one segment may be larger where it cannot
    /// be split: [`ROW_ALIGNMENT`] rows that are wider, or text (see [`ChunkPlan`]).
    pub chunk_bytes_max: u64,
    /// Segments of a chunk at most.
    pub chunk_segments_max: usize,
}

impl Default for ChunkOptions {
    fn default() -> Self {
        Self { chunk_rows_max: 1 << 24, chunk_bytes_max: 64 << 20, chunk_segments_max: 1024 }
    }
}

/// What to read, in the order of the table's rows.
///
/// A record batch that does not fit a chunk is split at multiples of [`ROW_ALIGNMENT`] rows into
/// parts of about equal size; small batches share a chunk. Offsets of text count from the start
/// of the batch's text, so every part of a split batch has the text of the whole batch among its
/// extents: a batch whose text alone exceeds the limit is not split for its bytes, and
/// [`bytes_max`](Self::bytes_max) says how large chunks really get.
#[derive(Clone, Debug, Default)]
pub struct ChunkPlan {
    /// The chunks.
    pub chunks: Vec<Chunk>,
    /// Code translation tables, see [`headrace_ir::ColumnExtents::remap`].
    pub remaps: Vec<Arc<[i32]>>,
    /// Rows of the chunks.
    pub rows: u64,
    /// Bytes of the chunks' extents.
    pub bytes: u64,
    /// Bytes of the largest chunk.
    pub bytes_max: u64,
    /// Record batches that the conditions rule out.
    pub pruned_batches: u64,
    /// Their rows.
    pub pruned_rows: u64,
}

impl ArrowTable {
    /// Plans the reading of columns (in register order; none to only count rows), leaving out
    /// record batches in which no row can meet the conditions.
    ///
    /// # Errors
    /// [`FormatError::Argument`] for a column that does not exist, is not supported (with the
    /// reason of [`column_support`](Self::column_support)), or options of 0.
    pub fn plan_chunks(
        &self,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<ChunkPlan> {
        self.check_arguments(columns, conditions, options)?;
        let mut planner = Planner { table: self, columns, options, plan: ChunkPlan::default() };
        for (number, file) in self.files().iter().enumerate() {
            for batch in 0..file.batches() {
                let rows = file.batch_rows(batch);
                if rows == 0 {
                    continue;
                }
                if conditions.iter().any(|c| self.rules_out(c, number, batch)) {
                    planner.plan.pruned_batches += 1;
                    planner.plan.pruned_rows += rows;
                } else {
                    planner.add_batch(number, batch)?;
                }
            }
        }
        Ok(planner.finish())
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
        if options.chunk_rows_max == 0
            || options.chunk_bytes_max == 0
            || options.chunk_segments_max == 0
        {
            return Err(FormatError::Argument(format!("chunks of nothing: {options:?}")));
        }
        Ok(())
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

struct Planner<'a> {
    table: &'a ArrowTable,
    columns: &'a [usize],
    options: ChunkOptions,
    plan: ChunkPlan,
}

impl Planner<'_> {
    fn add_batch(&mut self, file: usize, batch: usize) -> Result<()> {
        let rows = self.table.files()[file].batch_rows(batch);
        let step = self.rows_per_part(file, batch, rows);
        let mut first_row = 0;
        while first_row < rows {
            let count = step.min(rows - first_row);
            let segment = self.segment(file, batch, first_row, count)?;
            self.add_segment(segment);
            first_row += count;
        }
        Ok(())
    }

    /// Rows of each part of a batch: all, or a multiple of [`ROW_ALIGNMENT`].
    fn rows_per_part(&self, file: usize, batch: usize, rows: u64) -> u64 {
        let (row_bits, text_bytes) = self.row_size(file, batch);
        let rows_by_bytes = match self.options.chunk_bytes_max.checked_sub(text_bytes) {
            // In 128 bits: neither the limit nor the width is bounded.
            Some(left) if row_bits > 0 => {
                u64::try_from(u128::from(left) * 8 / u128::from(row_bits)).unwrap_or(u64::MAX)
            }
            _ => u64::MAX,
        };
        let limit = rows_by_bytes.min(self.options.chunk_rows_max).min(SEGMENT_ROWS_MAX);
        if rows <= limit {
            return rows;
        }
        let limit = (limit / ROW_ALIGNMENT).max(1) * ROW_ALIGNMENT;
        // Parts of about equal size rather than full ones and a rest.
        rows.div_ceil(rows.div_ceil(limit)).next_multiple_of(ROW_ALIGNMENT)
    }

    /// Bits that a row of the batch takes, and bytes that every part of it takes besides.
    fn row_size(&self, file: usize, batch: usize) -> (u64, u64) {
        let source = &self.table.files()[file];
        let (mut row_bits, mut text_bytes) = (0, 0);
        for &column in self.columns {
            let field = self.table.fields[file][column];
            let Some(extents) = source.extents(batch, field, 0, 1) else { continue };
            row_bits += u64::from(extents.validity.is_some());
            row_bits += match encoding(source.fields[field].data_type()) {
                Some(Encoding::Bits) => 1,
                Some(Encoding::Offsets { offset_bytes }) => {
                    text_bytes += extents.values.bytes + u64::from(offset_bytes);
                    u64::from(offset_bytes) * 8
                }
                _ => extents.values.bytes * 8,
            };
        }
        (row_bits, text_bytes)
    }

    fn segment(&mut self, file: usize, batch: usize, first_row: u64, rows: u64) -> Result<Segment> {
        let source = &self.table.files()[file];
        let mut columns = Vec::with_capacity(self.columns.len());
        for &column in self.columns {
            let field = self.table.fields[file][column];
            let Some(mut extents) = source.extents(batch, field, first_row, rows) else {
                let name = self.table.schema().field(column).name();
                return Err(FormatError::column(name, "its values have no place in the file"));
            };
            let dictionary = self.table.table_dictionary(column);
            if let Some(remap) = dictionary.and_then(|d| d.remaps[file].as_ref()) {
                extents.remap = Some(remap_index(&mut self.plan.remaps, remap));
            }
            columns.push(extents);
        }
        Ok(Segment {
            file: index(file, "files")?,
            batch: index(batch, "record batches")?,
            first_row,
            rows: index(rows as usize, "rows")?,
            columns,
        })
    }

    fn add_segment(&mut self, segment: Segment) {
        let rows = u64::from(segment.rows);
        let bytes: u64 = segment.extents().map(|e| e.bytes).sum();
        let options = self.options;
        self.plan.rows += rows;
        self.plan.bytes += bytes;
        if let Some(last) = self.plan.chunks.last_mut()
            && last.segments.len() < options.chunk_segments_max
            && last.rows() + rows <= options.chunk_rows_max
            && last.bytes() + bytes <= options.chunk_bytes_max
        {
            last.segments.push(segment);
            return;
        }
        self.plan.chunks.push(Chunk { segments: vec![segment] });
    }

    fn finish(mut self) -> ChunkPlan {
        self.plan.bytes_max = self.plan.chunks.iter().map(Chunk::bytes).max().unwrap_or(0);
        self.plan
    }
}

fn index(value: usize, what: &str) -> Result<u32> {
    u32::try_from(value).map_err(|_| FormatError::Argument(format!("more than 2^32 {what}")))
}

fn remap_index(remaps: &mut Vec<Arc<[i32]>>, remap: &Arc<[i32]>) -> u32 {
    let known = remaps.iter().position(|known| Arc::ptr_eq(known, remap));
    known.unwrap_or_else(|| {
        remaps.push(remap.clone());
        remaps.len() - 1
    }) as u32
}
