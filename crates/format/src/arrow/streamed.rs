//! A table of Arrow files as pipelines take it.

use std::path::Path;
use std::sync::Arc;

use arrow_array::StringArray;
use arrow_schema::SchemaRef;
use headrace_io::{FileIdentity, InputPolicy};

use super::chunks::ArrowFeed;
use super::table::ArrowTable;
use crate::description::TableDescription;
use crate::portable::PortableTable;
use crate::ranges::BatchRanges;
use crate::{ChunkOptions, ColumnBound, ColumnStats, Feed, Result, Table};

impl Table for ArrowTable {
    fn schema(&self) -> &SchemaRef {
        self.schema()
    }

    fn policy(&self) -> InputPolicy {
        self.policy()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows())
    }

    fn column_stats(&self, column: usize) -> ColumnStats {
        self.column_stats(column)
    }

    fn column_support(&self, column: usize) -> std::result::Result<(), String> {
        self.column_support(column)
    }

    fn dictionary(&self, column: usize) -> Option<&Arc<StringArray>> {
        self.dictionary(column)
    }

    fn feed(
        self: Arc<Self>,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<Box<dyn Feed>> {
        Ok(Box::new(ArrowFeed::new(self, columns, conditions, options)?))
    }

    fn feed_of(
        self: Arc<Self>,
        batches: &Arc<BatchRanges>,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<Box<dyn Feed>> {
        Ok(Box::new(ArrowFeed::of_batches(self, Some(batches), columns, conditions, options)?))
    }

    fn portable(&self) -> std::result::Result<PortableTable, String> {
        self.portable()
    }

    fn file_count(&self) -> usize {
        self.files().len()
    }

    fn file_identity(&self, file: usize) -> FileIdentity {
        self.files()[file].identity()
    }

    fn file_path(&self, file: usize) -> Option<&Path> {
        self.files().get(file).map(|file| file.path())
    }

    fn beyond_files(&self) -> Option<String> {
        self.constants_text()
    }

    fn description(&self) -> std::result::Result<TableDescription, String> {
        self.description()
    }

    fn check_unchanged(&self) -> Result<()> {
        if self.policy().check_identity { self.check_unchanged() } else { Ok(()) }
    }
}
