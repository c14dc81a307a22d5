//! A table of Parquet files as pipelines take it.

use std::path::Path;
use std::sync::Arc;

use arrow_array::StringArray;
use arrow_schema::SchemaRef;
use headrace_io::{FileIdentity, ReadAt};

use super::decoder::Decoder;
use super::feed::ParquetFeed;
use super::table::{KnownFile, ParquetTable};
use crate::error::{FormatError, Result};
use crate::feed::Feed;
use crate::options::{ChunkOptions, ColumnBound};
use crate::pages::SegmentDecoder;
use crate::portable::{PortableFormat, PortableTable};
use crate::ranges::BatchRanges;
use crate::table::{ColumnStats, Table};

impl ParquetTable {
    fn check_numbers(&self, columns: &[usize]) -> Result<()> {
        match columns.iter().find(|&&column| column >= self.columns.len()) {
            Some(column) => Err(FormatError::Argument(format!("column {column} does not exist"))),
            None => Ok(()),
        }
    }
}

impl Table for ParquetTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn needs_cores(&self) -> bool {
        !self.has_plain(&(0..self.columns.len()).collect::<Vec<_>>())
    }

    fn is_decoded_by_readers(&self, columns: &[usize]) -> bool {
        self.has_plain(columns)
    }

    fn kept_name(&self, column: usize) -> Option<String> {
        let texts = self.texts_of(column).map(|texts| texts.digest());
        let field = self.schema.fields().get(column)?;
        // Another table over the same file may claim other values, and have other differences.
        let lies = self.plain_encoding(0, column);
        Some(format!("{} {} {texts:?} {lies:?}", field.data_type(), field.name()))
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn column_stats(&self, column: usize) -> ColumnStats {
        self.columns.get(column).copied().unwrap_or_default()
    }

    fn column_support(&self, column: usize) -> std::result::Result<(), String> {
        self.check_numbers(&[column]).map_err(|error| error.to_string())
    }

    fn dictionary(&self, column: usize) -> Option<&Arc<StringArray>> {
        Some(&self.texts_of(column)?.values)
    }

    fn feed(
        self: Arc<Self>,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<Box<dyn Feed>> {
        self.check_numbers(columns)?;
        options.check()?;
        Ok(Box::new(ParquetFeed::new(self, None, columns, conditions, options)))
    }

    fn feed_of(
        self: Arc<Self>,
        batches: &Arc<BatchRanges>,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<Box<dyn Feed>> {
        self.check_numbers(columns)?;
        options.check()?;
        Ok(Box::new(ParquetFeed::new(self, Some(batches), columns, conditions, options)))
    }

    fn portable(&self) -> std::result::Result<PortableTable, String> {
        let files = self.files.iter().map(|file| {
            let source = &file.source;
            (source.path(), source.identity(), file.metadata.num_row_groups())
        });
        PortableTable::of(files, &self.schema, PortableFormat::Parquet)
    }

    fn segment_decoder(
        self: Arc<Self>,
        columns: &[usize],
    ) -> Result<Option<Box<dyn SegmentDecoder>>> {
        self.check_numbers(columns)?;
        Ok(Some(Box::new(Decoder::new(self, columns))))
    }

    fn check_unchanged(&self) -> Result<()> {
        Ok(self.files.iter().try_for_each(|file| file.source.check_unchanged())?)
    }

    fn file_count(&self) -> usize {
        self.files.len()
    }

    /// A scan numbers the columns that it reads: those of another may be others of the same numbers and names.
    fn beyond_files(&self) -> Option<String> {
        let places = |file: &KnownFile| file.columns.iter().map(|it| it.leaf).collect::<Vec<_>>();
        Some(format!("columns {:?}", self.files.iter().map(places).collect::<Vec<_>>()))
    }

    fn file_path(&self, file: usize) -> Option<&Path> {
        self.files.get(file).map(|file| file.source.path())
    }

    fn file_identity(&self, file: usize) -> FileIdentity {
        self.files[file].source.identity()
    }
}
