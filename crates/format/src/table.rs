//! What a table of any format offers to whoever runs pipelines over it.

use std::fmt;
use std::sync::Arc;

use arrow_array::StringArray;
use arrow_schema::SchemaRef;
use headrace_io::{FileIdentity, ReadAt};

use crate::Result;
use crate::arrow::{ArrowTable, ChunkOptions, ChunkPlan, ColumnBound, ColumnStats};

/// A table: columns, what is known of them without reading, and which bytes hold them.
///
/// Columns are numbered as in [`schema`](Self::schema), files as in
/// [`Segment::file`](headrace_ir::Segment::file). Nothing here reads values; the extents of a
/// [`ChunkPlan`] are read by others from the files that [`open_file`](Self::open_file) gives.
pub trait Table: fmt::Debug + Send + Sync {
    /// The columns.
    fn schema(&self) -> &SchemaRef;

    /// Rows of all files.
    fn rows(&self) -> u64;

    /// What is known of a column; of one that does not exist, nothing.
    fn column_stats(&self, column: usize) -> ColumnStats;

    /// Whether pipelines can take a column's values where they lie; the reason if not.
    fn column_support(&self, column: usize) -> std::result::Result<(), String>;

    /// Distinct values of a dictionary-encoded text column, sorted by bytes, none NULL.
    fn dictionary(&self, column: usize) -> Option<&Arc<StringArray>>;

    /// The byte ranges of columns (in register order), without the parts in which no row can
    /// meet the conditions.
    ///
    /// # Errors
    /// A column that does not exist or is not supported, options of 0.
    fn plan_chunks(
        &self,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<ChunkPlan>;

    /// Number of files.
    fn file_count(&self) -> usize;

    /// What makes a file the same file: as it was when the table was opened.
    fn file_identity(&self, file: usize) -> FileIdentity;

    /// A file, to be read. It need not be open: there may be more files than may be open. Reading
    /// from it is an error if it is not what it was when the table was opened.
    ///
    /// # Errors
    /// If it cannot be had.
    fn open_file(&self, file: usize) -> Result<Arc<dyn ReadAt>>;

    /// # Errors
    /// A file that is not what it was when the table was opened.
    fn check_unchanged(&self) -> Result<()>;
}

impl Table for ArrowTable {
    fn schema(&self) -> &SchemaRef {
        self.schema()
    }

    fn rows(&self) -> u64 {
        self.rows()
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

    fn plan_chunks(
        &self,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<ChunkPlan> {
        self.plan_chunks(columns, conditions, options)
    }

    fn file_count(&self) -> usize {
        self.files().len()
    }

    fn file_identity(&self, file: usize) -> FileIdentity {
        self.files()[file].identity()
    }

    fn open_file(&self, file: usize) -> Result<Arc<dyn ReadAt>> {
        Ok(self.files()[file].source())
    }

    fn check_unchanged(&self) -> Result<()> {
        self.check_unchanged()
    }
}
