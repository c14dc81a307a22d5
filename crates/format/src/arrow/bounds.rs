//! Bounds of a feed's chunks before the first is made.

use std::ops::Deref;

use headrace_io::FeedBounds;
use headrace_ir::Encoding;
use headrace_ir::layout::ROW_ALIGNMENT;

use super::chunks::Parts;
use super::table::ArrowTable;
use super::types::encoding;
use crate::feed::FeedFacts;
use crate::options::CHUNK_EXTRA_SHARE;

/// A column's share of a part.
struct ColumnSize {
    encoding: Encoding,
    /// Values, codes or offsets, and validity.
    row_bits: u64,
    /// Maximum texts of one record batch.
    text_bytes: u64,
    extents: u64,
}

impl ColumnSize {
    fn of(table: &ArrowTable, column: usize) -> Option<Self> {
        if let Some(value) = table.constant(0, column) {
            let encoding = Encoding::Constant { value };
            return Some(Self { encoding, row_bits: 0, text_bytes: 0, extents: 0 });
        }
        let data_type = table.schema().field(column).data_type();
        let value_bits = table.row_bits(column)?;
        let has_nulls = u64::from(table.column_stats(column).null_count != Some(0));
        let in_first = table
            .files()
            .first()
            .map(|file| file.schema.fields[table.fields[0][column]].encoding());
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
    /// Upper bounds from the facts about the whole table.
    pub(super) fn facts(&self) -> FeedFacts {
        let (table, options) = (&*self.table, self.options);
        let columns = self.column_sizes();
        let text_bytes = columns.iter().map(|c| c.text_bytes).fold(0, u64::saturating_add);
        let extents: u64 = columns.iter().map(|c| c.extents).sum();
        // A part that cannot be halved may be larger than a chunk is to be.
        let part_bytes_max = options.chunk_bytes_max.max(rows_bytes(&columns, ROW_ALIGNMENT));
        let part_bytes = self.largest_part_bytes().saturating_add(text_bytes).min(part_bytes_max);
        let part_bytes = part_bytes.max(self.long_texts.part_bytes_max);
        let stored = self.columns.iter().map(|&c| table.column_stats(c).bytes).sum::<u64>();
        let by_bytes = 2 * stored / options.chunk_bytes_max + self.long_texts.parts;
        let parts = table.batches() + table.rows() / options.segment_rows_max() + by_bytes;
        // The offset where a part ends is the one where the next begins.
        let bytes = stored + 10 * parts * extents;
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
        let chunks = Some(parts.min(1 + 2 * pairs));
        FeedFacts {
            bounds: FeedBounds { bytes: Some(bytes), chunks, slot_bytes: chunk_bytes as usize },
            rows: Some(table.rows()),
            segment_bytes,
            encodings: columns.into_iter().map(|c| c.encoding).collect(),
        }
    }

    fn column_sizes(&self) -> Vec<ColumnSize> {
        self.columns.iter().filter_map(|&column| ColumnSize::of(&self.table, column)).collect()
    }

    /// Maximum bytes of a part as determined by rows alone, without texts.
    pub(super) fn largest_part_bytes(&self) -> u64 {
        let rows = self.options.segment_rows_max().min(self.table.batch_rows_max());
        rows_bytes(&self.column_sizes(), rows)
    }
}

/// Offsets have one more entry, and bits may end in the middle of a byte.
fn rows_bytes(columns: &[ColumnSize], rows: u64) -> u64 {
    columns.iter().map(|c| (rows + 1) * c.row_bits / 8 + 2).sum()
}
