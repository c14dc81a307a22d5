//! A table of which some record batches are read, and no others.
//!
//! A table that several processes read together is divided so: each has the whole table, with its types and dictionaries, and a
//! part of its batches.

use std::path::Path;
use std::sync::Arc;

use arrow_array::StringArray;
use arrow_schema::SchemaRef;
use headrace_io::{FileIdentity, InputPolicy};

use crate::error::Result;
use crate::feed::Feed;
use crate::options::{ChunkOptions, ColumnBound};
use crate::pages::{PageSource, SegmentDecoder};
use crate::ranges::BatchRanges;
use crate::table::{ColumnStats, Table};

/// Some record batches of a table.
#[derive(Debug)]
pub struct TablePart {
    table: Arc<dyn Table>,
    batches: Arc<BatchRanges>,
}

impl TablePart {
    /// These batches of a table; those that it does not have are no rows.
    pub fn new(table: Arc<dyn Table>, batches: BatchRanges) -> Self {
        Self { table, batches: Arc::new(batches) }
    }
}

impl Table for TablePart {
    fn schema(&self) -> &SchemaRef {
        self.table.schema()
    }

    fn comes_once(&self) -> bool {
        self.table.comes_once()
    }

    fn needs_cores(&self) -> bool {
        self.table.needs_cores()
    }

    fn is_decoded_by_readers(&self, columns: &[usize]) -> bool {
        self.table.is_decoded_by_readers(columns)
    }

    fn policy(&self) -> InputPolicy {
        self.table.policy()
    }

    /// No more than those of the whole table.
    fn rows(&self) -> Option<u64> {
        self.table.rows()
    }

    fn column_stats(&self, column: usize) -> ColumnStats {
        self.table.column_stats(column)
    }

    fn column_support(&self, column: usize) -> std::result::Result<(), String> {
        self.table.column_support(column)
    }

    fn dictionary(&self, column: usize) -> Option<&Arc<StringArray>> {
        self.table.dictionary(column)
    }

    fn feed(
        self: Arc<Self>,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<Box<dyn Feed>> {
        Arc::clone(&self.table).feed_of(&self.batches, columns, conditions, options)
    }

    fn segment_decoder(
        self: Arc<Self>,
        columns: &[usize],
    ) -> Result<Option<Box<dyn SegmentDecoder>>> {
        Arc::clone(&self.table).segment_decoder(columns)
    }

    fn page_source(self: Arc<Self>, columns: &[usize]) -> Result<Option<Box<dyn PageSource>>> {
        Arc::clone(&self.table).page_source(columns)
    }

    fn file_count(&self) -> usize {
        self.table.file_count()
    }

    fn file_identity(&self, file: usize) -> FileIdentity {
        self.table.file_identity(file)
    }

    fn file_path(&self, file: usize) -> Option<&Path> {
        self.table.file_path(file)
    }

    fn beyond_files(&self) -> Option<String> {
        let whole = self.table.beyond_files().unwrap_or_default();
        Some(format!("{whole} batches {:?}", self.batches))
    }

    fn kept_name(&self, column: usize) -> Option<String> {
        self.table.kept_name(column)
    }

    fn check_unchanged(&self) -> Result<()> {
        self.table.check_unchanged()
    }
}
