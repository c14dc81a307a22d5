//! A Parquet file as input: its bytes and its metadata.

use std::io::{BufReader, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics};
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::parquet::file::reader::{ChunkReader, Length};
use datafusion_datasource_parquet::metadata::DFParquetMetadata;
use headrace_format::parquet::KnownTexts;
use headrace_io::{ReadAt, SourceFile};

use super::bytes::FileBytes;
use super::remote::RemoteFile;
use super::streamed_tables::StreamedTables;

/// A file and its metadata.
#[derive(Clone, Debug)]
pub struct ParquetInput {
    /// The file.
    pub(super) source: Arc<SourceFile>,
    pub(super) remote: Option<RemoteFile>,
    /// What its reader is to know of it.
    pub(super) metadata: Arc<ParquetMetaData>,
    /// The columns that its reader makes of it.
    pub(super) columns: SchemaRef,
    /// Texts of the columns that were asked for.
    pub(super) texts: Arc<KnownTexts>,
    /// The tables of scans whose first file it is.
    pub(super) tables: Arc<StreamedTables>,
}

impl ParquetInput {
    /// Rows and, where the columns' types are the table's, what the file claims of its values.
    pub fn statistics(&self, own: &Schema, table: &SchemaRef) -> Result<Statistics> {
        let is_same = |field: &FieldRef| {
            let known = own.field_with_name(field.name());
            known.is_ok_and(|known| known.data_type() == field.data_type())
        };
        let mut statistics = match table.fields().iter().all(is_same) {
            true => DFParquetMetadata::statistics_from_parquet_metadata(&self.metadata, table)?,
            false => Statistics::new_unknown(table),
        };
        // What is exact the planner takes for values, and answers counts, minima and maxima from it.
        statistics = statistics.to_inexact();
        let rows = self.metadata.row_groups().iter().map(|group| group.num_rows()).sum::<i64>();
        statistics.num_rows = usize::try_from(rows).map_or(Precision::Absent, Precision::Exact);
        Ok(statistics)
    }
}

/// A range of a file's bytes.
pub(super) fn read(source: &SourceFile, range: &Range<u64>) -> ParquetResult<Bytes> {
    // Checked before memory is taken: the file says how much, and may lie.
    if range.start > range.end || range.end > source.size_bytes() {
        return Err(ParquetError::EOF(format!(
            "bytes {} to {} of a file of {}",
            range.start,
            range.end,
            source.size_bytes()
        )));
    }
    let mut bytes = vec![0; (range.end - range.start) as usize];
    source
        .read_exact_at(range.start, &mut bytes)
        .map_err(|e| ParquetError::External(Box::new(e)))?;
    Ok(bytes.into())
}

/// The bytes of a file, for what reads its metadata.
pub(super) struct FileChunks(pub Arc<SourceFile>);

impl Length for FileChunks {
    fn len(&self) -> u64 {
        self.0.size_bytes()
    }
}

impl ChunkReader for FileChunks {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(Box::new(BufReader::new(FileBytes::at(Arc::clone(&self.0), start))))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        read(&self.0, &(start..start.saturating_add(length as u64)))
    }
}
