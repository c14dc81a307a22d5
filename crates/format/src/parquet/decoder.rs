//! Segments of column chunks to batches.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use headrace_io::ReadAt;

use super::bad::Bad;
use super::codec::Codec;
use super::column::ColumnReader;
use super::table::{KnownFile, ParquetTable, chunk_bytes};
use super::target::Target;
use crate::error::{FormatError, Result};
use crate::pages::{Encoded, SegmentDecoder};

/// About what the columns of a batch take: a core's own cache.
const BATCH_BYTES: u64 = 512 << 10;
const BATCH_ROWS_MIN: u64 = 1 << 10;
const BATCH_ROWS_MAX: u64 = 1 << 16;
/// About what a text takes if the file has codes of it.
const TEXT_BYTES_MIN: u64 = 16;

/// Reads the columns of a feed.
pub(super) struct Decoder {
    table: Arc<ParquetTable>,
    /// As the table numbers them.
    columns: Vec<usize>,
    /// With what each makes of values.
    readers: Vec<(Target, ColumnReader)>,
    batch_rows: u64,
}

impl Decoder {
    pub fn new(table: Arc<ParquetTable>, columns: &[usize]) -> Self {
        Self { table, columns: columns.to_vec(), readers: Vec::new(), batch_rows: BATCH_ROWS_MIN }
    }

    /// Begins with a segment.
    fn begin(&mut self, encoded: &Encoded<'_>) -> Result<()> {
        let segment = encoded.segment;
        let file = &self.table.files[segment.file as usize];
        let mut row_bytes = 0;
        for (at, &column) in self.columns.iter().enumerate() {
            let chunk = file.chunk(segment.batch, column);
            let target = &file.columns[column].target;
            let codec = Codec::new(chunk.compression());
            let codec = codec.map_err(|bad| corrupt(file, segment.batch, column, 0, bad))?;
            row_bytes += match target {
                Target::Fixed { bytes, .. } => *bytes as u64,
                Target::Bytes { .. } => {
                    let rows = (chunk.num_values() as u64).max(1);
                    (chunk.uncompressed_size() as u64 / rows).max(TEXT_BYTES_MIN)
                }
            };
            // Files of a table may have a column in different ways.
            if self.readers.get(at).is_none_or(|(known, _)| known != target) {
                let values = target.values(self.table.texts_of(column));
                self.readers.truncate(at);
                self.readers.push((target.clone(), ColumnReader::new(values)));
            }
            let may_have_nulls = chunk.column_descr().max_def_level() > 0;
            self.readers[at].1.begin(codec, may_have_nulls, segment.first_row as usize);
        }
        self.batch_rows = (BATCH_BYTES / row_bytes.max(1)).clamp(BATCH_ROWS_MIN, BATCH_ROWS_MAX);
        Ok(())
    }

    /// The columns of the next rows.
    fn read(&mut self, encoded: &Encoded<'_>, rows: usize) -> Result<Vec<ArrayRef>> {
        let group = encoded.segment.batch;
        let file = &self.table.files[encoded.segment.file as usize];
        let mut arrays = Vec::with_capacity(self.columns.len());
        let columns = self.readers.iter_mut().zip(&self.columns).zip(encoded.buffers);
        for (((_, reader), &column), buffer) in columns {
            let read = reader.read(buffer, rows);
            read.map_err(|bad| corrupt(file, group, column, reader.at(), bad))?;
            let made = reader.finish().map_err(|cause| Bad::new(cause.to_string()));
            arrays.push(made.map_err(|bad| corrupt(file, group, column, reader.at(), bad))?);
        }
        Ok(arrays)
    }
}

fn corrupt(file: &KnownFile, group: u32, column: usize, at: usize, bad: Bad) -> FormatError {
    let chunk = file.chunk(group, column);
    let from = chunk_bytes(chunk).map_or(0, |bytes| bytes.start);
    let place = format!("row group {group}, column {}", chunk.column_path().string());
    FormatError::corrupt(file.source.path(), from + at as u64, place, bad.0)
}

impl SegmentDecoder for Decoder {
    fn next_batch(&mut self, encoded: &mut Encoded<'_>) -> Result<Option<RecordBatch>> {
        if encoded.taken == 0 {
            self.begin(encoded)?;
        }
        let rows = self.batch_rows.min(u64::from(encoded.segment.rows) - encoded.taken);
        if rows == 0 {
            return Ok(None);
        }
        let arrays = self.read(encoded, rows as usize)?;
        encoded.taken += rows;
        let names = self.columns.iter().map(|&column| self.table.name_of(column));
        let fields =
            names.zip(&arrays).map(|(name, it)| Field::new(name, it.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let made = RecordBatch::try_new(schema, arrays);
        made.map(Some).map_err(|cause| FormatError::arrow("rows of a Parquet file", cause))
    }

    fn rest(&mut self) -> Result<Option<RecordBatch>> {
        Ok(None)
    }
}
