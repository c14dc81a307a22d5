//! How a feed makes chunks: what is needed of a table, and how large its parts are.

use headrace_ir::layout::ROW_ALIGNMENT;

use crate::error::{FormatError, Result};

/// Rows of a segment fit 31 bits.
const SEGMENT_ROWS_MAX: u64 = (i32::MAX as u64) / ROW_ALIGNMENT * ROW_ALIGNMENT;

/// A condition that every needed row satisfies: the column is not NULL and lies within the bounds.
/// Several conditions hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnBound {
    /// Column of the table with an integer-like type; for another type the condition prunes
    /// nothing.
    pub column: usize,
    /// Lower bound of the needed values (days, ticks, unscaled decimal).
    pub min: Option<i64>,
    /// Upper bound of the needed values.
    pub max: Option<i64>,
}

/// Limits of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkOptions {
    /// A record batch with more rows is split into parts of about equal size, independently of the
    /// requested columns, so that cached columns of one query are found by another.
    pub part_rows_max: u64,
    /// Maximum rows of a chunk; a larger batch is split too.
    pub chunk_rows_max: u64,
    /// Maximum bytes of a chunk's extents. A larger part is halved until it fits, so other columns
    /// may then have other parts. A chunk of one segment may be larger if it cannot be split:
    /// [`ROW_ALIGNMENT`] wide rows, or text (see [`ArrowFeed`](crate::arrow::ArrowFeed)).
    pub chunk_bytes_max: u64,
    /// A chunk with this many bytes gets no further segment.
    pub chunk_bytes_wanted: u64,
    /// Maximum segments of a chunk.
    pub chunk_segments_max: usize,
    /// Readers that are to have chunks: parts of a file that are cheap to read only as a whole are read by several of
    /// them where there are fewer.
    pub readers: u64,
    /// Columns lie in segments as a device takes them: what must be decoded is decoded when it is read, if the table
    /// [can](crate::Table::is_decoded_by_readers).
    pub is_plain: bool,
    /// Overhead of each extent in the holder of a chunk: counted if a further segment would make a
    /// chunk too large, or make it [`CHUNK_EXTRA_SHARE`] times the wanted bytes.
    pub extent_extra_bytes: u64,
}

/// A chunk of many small extents takes at most this multiple of the wanted bytes, including the
/// overhead of extents.
pub const CHUNK_EXTRA_SHARE: u64 = 8;

/// A chunk that is being filled with segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filling {
    pub(crate) segments: usize,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Including the overhead of extents.
    room_bytes: u64,
}

impl Filling {
    /// Adds a segment if it fits, as the first one always does; returns whether it was added.
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
            readers: 1,
            is_plain: false,
            extent_extra_bytes: 0,
        }
    }
}

impl ChunkOptions {
    /// Maximum rows of a segment, whatever its bytes: a multiple of [`ROW_ALIGNMENT`].
    pub(crate) fn segment_rows_max(&self) -> u64 {
        let limit = self.part_rows_max.min(self.chunk_rows_max).min(SEGMENT_ROWS_MAX);
        (limit / ROW_ALIGNMENT).max(1) * ROW_ALIGNMENT
    }

    /// # Errors
    /// [`FormatError::Argument`] for zero limits.
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
