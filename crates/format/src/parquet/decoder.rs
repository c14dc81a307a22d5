//! Segments of column chunks to batches.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use headrace_io::ReadAt;

use super::bad::Bad;
use super::codec::Codec;
use super::column::{ChunkFacts, ColumnReader};
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

/// Rows that are read before anything is known of the dictionaries of a column chunk.
const FIRST_ROWS: u64 = 64;
/// What texts of a dictionary may take that are read together, if all of them are the longest.
const TEXTS_BYTES: u64 = 4 << 20;
/// Of a page, whatever its column chunk claims to have.
const PAGE_BYTES: usize = 16 << 20;

/// What helps against a file that cannot be read.
pub const REPAIR: &str =
    "it is damaged or not whole: write it again, or move it out of its table's folder";

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
            let facts = chunk_facts(file, segment.batch, column)?;
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
            self.readers[at].1.begin(facts, segment.first_row as usize);
        }
        self.batch_rows = (BATCH_BYTES / row_bytes.max(1)).clamp(BATCH_ROWS_MIN, BATCH_ROWS_MAX);
        Ok(())
    }

    /// Reads the next rows of all columns: as many as fill a batch, which with codes of long texts may be few.
    fn read(&mut self, encoded: &Encoded<'_>) -> Result<u64> {
        let left = u64::from(encoded.segment.rows) - encoded.taken;
        let (rows_max, mut rows) = (self.batch_rows.min(left), 0);
        loop {
            let texts = self.readers.iter().map(|(_, reader)| reader.text_bytes());
            let (bytes, longest) = texts.fold((0, 1), |(all, one), (a, b)| (all + a, one.max(b)));
            if rows == rows_max || bytes as u64 >= BATCH_BYTES {
                break;
            }
            let step = match encoded.taken + rows {
                0 => FIRST_ROWS,
                _ => (TEXTS_BYTES / longest as u64).max(FIRST_ROWS),
            };
            let step = step.min(rows_max - rows);
            self.read_rows(encoded, step as usize)?;
            rows += step;
        }
        Ok(rows)
    }

    fn read_rows(&mut self, encoded: &Encoded<'_>, rows: usize) -> Result<()> {
        let group = encoded.segment.batch;
        let file = &self.table.files[encoded.segment.file as usize];
        let columns = self.readers.iter_mut().zip(&self.columns).zip(encoded.buffers);
        for (((_, reader), &column), buffer) in columns {
            let read = reader.read(buffer, rows);
            read.map_err(|bad| corrupt(file, group, column, reader.at(), bad))?;
        }
        Ok(())
    }

    /// The columns of the rows that were read.
    fn made(&mut self, encoded: &Encoded<'_>) -> Result<Vec<ArrayRef>> {
        let group = encoded.segment.batch;
        let file = &self.table.files[encoded.segment.file as usize];
        let readers = self.readers.iter_mut().zip(&self.columns);
        let made = readers.map(|((_, reader), &column)| {
            let made = reader.finish().map_err(|cause| Bad::new(cause.to_string()));
            made.map_err(|bad| corrupt(file, group, column, reader.at(), bad))
        });
        made.collect()
    }
}

pub(super) fn chunk_facts(file: &KnownFile, group: u32, column: usize) -> Result<ChunkFacts> {
    let chunk = file.chunk(group, column);
    let codec = Codec::new(chunk.compression());
    Ok(ChunkFacts {
        codec: codec.map_err(|bad| corrupt(file, group, column, 0, bad))?,
        may_have_nulls: !file.is_required(column),
        rows: chunk.num_values() as usize,
        page_bytes_max: (chunk.uncompressed_size() as usize).max(PAGE_BYTES),
    })
}

pub(super) fn corrupt(
    file: &KnownFile,
    group: u32,
    column: usize,
    at: usize,
    bad: Bad,
) -> FormatError {
    let chunk = file.chunk(group, column);
    let from = chunk_bytes(chunk).map_or(0, |bytes| bytes.start);
    let place = format!("row group {group}, column {}", chunk.column_path().string());
    let cause = format!("{}\nhint: {REPAIR}", bad.0);
    FormatError::corrupt(file.source.path(), from + at as u64, place, cause)
}

impl SegmentDecoder for Decoder {
    fn next_batch(&mut self, encoded: &mut Encoded<'_>) -> Result<Option<RecordBatch>> {
        if encoded.taken == 0 {
            self.begin(encoded)?;
        }
        let rows = self.read(encoded)?;
        if rows == 0 {
            return Ok(None);
        }
        let arrays = self.made(encoded)?;
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
