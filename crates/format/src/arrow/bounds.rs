//! What is known of a feed's chunks before any is made.

use std::ops::Deref;

use headrace_ir::Encoding;
use headrace_ir::layout::ROW_ALIGNMENT;

use super::chunks::{CHUNK_EXTRA_SHARE, Parts};
use super::file::{encoding, row_bits};
use super::table::ArrowTable;
use crate::feed::FeedBounds;

/// How much a column has of a part.
struct ColumnSize {
    encoding: Encoding,
    /// Values, codes or offsets, and validity.
    row_bits: u64,
    /// Text of one record batch, of which every part has all.
    text_bytes: u64,
    extents: u64,
}

impl ColumnSize {
    fn of(table: &ArrowTable, column: usize) -> Option<Self> {
        let data_type = table.schema().field(column).data_type();
        // Codes are as wide as the widest of all files.
        let value_bits = row_bits(data_type)?;
        let has_nulls = u64::from(table.column_stats(column).null_count != Some(0));
        let in_first = table
            .files()
            .first()
            .map(|file| encoding(file.schema.fields[table.fields[0][column]].data_type()));
        let encoding = in_first.flatten().or_else(|| encoding(data_type))?;
        let has_text = u64::from(matches!(encoding, Encoding::Offsets { .. }));
        Some(Self {
            encoding,
            row_bits: value_bits + has_nulls,
            text_bytes: table.text_bytes_max(column),
            extents: 1 + has_nulls + has_text,
        })
    }
}

impl<T: Deref<Target = ArrowTable>> Parts<T> {
    /// Upper bounds from what is known of the table as a whole.
    pub(super) fn bounds(&self) -> FeedBounds {
        let (table, options) = (&*self.table, self.options);
        let columns: Vec<ColumnSize> =
            self.columns.iter().filter_map(|&c| ColumnSize::of(table, c)).collect();
        let text_bytes: u64 = columns.iter().map(|c| c.text_bytes).sum();
        let extents: u64 = columns.iter().map(|c| c.extents).sum();
        // Offsets have one more, and bits end in the middle of a byte.
        let row_bytes = |rows: u64| -> u64 {
            columns.iter().map(|c| (rows + 1) * c.row_bits / 8 + 2).sum::<u64>()
        };
        let part_rows = options.segment_rows_max();
        let largest_rows = part_rows.min(table.batch_rows_max());
        let mut part_bytes = row_bytes(largest_rows) + text_bytes;
        if text_bytes < options.chunk_bytes_max && part_bytes > options.chunk_bytes_max {
            part_bytes = options.chunk_bytes_max.max(row_bytes(ROW_ALIGNMENT) + text_bytes);
        }
        let stored = self.columns.iter().map(|&c| table.column_stats(c).bytes).sum::<u64>();
        // Every part of a batch has all of its text.
        let repeated = match text_bytes {
            0 => 1,
            _ => table.batch_rows_max().div_ceil(part_rows.max(1)).max(1),
        };
        let by_bytes = 2 * stored / options.chunk_bytes_max;
        let parts = table.batches() + table.rows() / part_rows + by_bytes;
        let bytes =
            stored.saturating_mul(repeated + by_bytes * text_bytes.min(1)) + 2 * parts * extents;
        let extra = extents * options.extent_extra_bytes;
        let wanted = options.chunk_bytes_wanted.max(1);
        let room_max = options.chunk_bytes_max.min(wanted.saturating_mul(CHUNK_EXTRA_SHARE));
        let segments = parts.min(options.chunk_segments_max as u64);
        let segment_bytes = (part_bytes + extra).min(bytes + parts * extra);
        let chunk_bytes = room_max
            .min(wanted.saturating_add(segments * extra))
            .saturating_add(segment_bytes)
            .min(options.chunk_bytes_max)
            .min(bytes + segments * extra)
            .max(segment_bytes);
        // Two chunks in a row are more than one may be.
        let pairs = bytes / wanted
            + table.rows() / options.chunk_rows_max
            + parts / options.chunk_segments_max as u64
            + (bytes + parts * extra) / room_max.max(1);
        FeedBounds {
            rows: Some(table.rows()),
            bytes: Some(bytes),
            chunks: Some(parts.min(1 + 2 * pairs)),
            chunk_bytes,
            segment_bytes,
            encodings: columns.into_iter().map(|c| c.encoding).collect(),
        }
    }
}
