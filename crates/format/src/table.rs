//! What a table of any format offers to whoever runs pipelines over it.

use std::fmt;
use std::sync::Arc;

use arrow_array::StringArray;
use arrow_schema::SchemaRef;
use headrace_io::{FileIdentity, InputPolicy, ReadAt};

use crate::arrow::{ArrowTable, ChunkFeed, ChunkOptions, ColumnBound, ColumnStats};
use crate::{Feed, PageDecoder, PageSource, Result};

/// A table: columns, what is known of them without reading, and which bytes hold them.
///
/// Columns are numbered as in [`schema`](Self::schema), files as in
/// [`Segment::file`](headrace_ir::Segment::file). Nothing here reads values; the extents of a
/// [`Feed`]'s chunks are read by others from the files that [`open_file`](Self::open_file) gives,
/// or from the memory that comes with a chunk.
pub trait Table: fmt::Debug + Send + Sync {
    /// The columns.
    fn schema(&self) -> &SchemaRef;

    /// Whether its rows cannot be read a second time.
    fn comes_once(&self) -> bool {
        false
    }

    /// How its bytes may be treated.
    fn policy(&self) -> InputPolicy {
        InputPolicy::default()
    }

    /// Rows of all files; `None`: nobody knows.
    fn rows(&self) -> Option<u64> {
        None
    }

    /// What is known of a column; of one that does not exist, nothing.
    fn column_stats(&self, _column: usize) -> ColumnStats {
        ColumnStats::default()
    }

    /// Whether pipelines can take a column's values where they lie; the reason if not.
    fn column_support(&self, column: usize) -> std::result::Result<(), String>;

    /// Distinct values of a dictionary-encoded text column, sorted by bytes, none NULL.
    fn dictionary(&self, _column: usize) -> Option<&Arc<StringArray>> {
        None
    }

    /// The byte ranges of columns (in register order; none to only count rows), without the parts
    /// in which no row can meet the conditions, chunk by chunk.
    ///
    /// # Errors
    /// A column that does not exist or is not supported, options of 0.
    fn feed(
        self: Arc<Self>,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<Box<dyn Feed>>;

    /// What makes batches of the segments of [`Encoding::Pages`](headrace_ir::Encoding::Pages) that
    /// a feed of these columns gives; `None`: it gives none of them.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    fn page_decoder(self: Arc<Self>, _columns: &[usize]) -> Result<Option<Box<dyn PageDecoder>>> {
        Ok(None)
    }

    /// As [`page_decoder`](Self::page_decoder), for a device. Columns of types of variable length but
    /// for numerics are no columns of its plan.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    fn page_source(self: Arc<Self>, _columns: &[usize]) -> Result<Option<Box<dyn PageSource>>> {
        Ok(None)
    }

    /// Number of files.
    fn file_count(&self) -> usize;

    /// What makes a file the same file: as it was when the table was opened.
    fn file_identity(&self, file: usize) -> FileIdentity;

    /// A file, to be read. It need not be open: there may be more files than may be open. Reading
    /// from it is an error if it is not what it was when the table was opened, unless the
    /// [policy](Self::policy) is not to check that.
    ///
    /// # Errors
    /// If it cannot be had.
    fn open_file(&self, file: usize) -> Result<Arc<dyn ReadAt>>;

    /// What its rows have besides what its files say, in words: tables of the same files are the same table where
    /// these are, too.
    fn beyond_files(&self) -> Option<String> {
        None
    }

    /// # Errors
    /// A file that is not what it was when the table was opened, if that is to be checked.
    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }
}

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
        Ok(Box::new(ChunkFeed::new(self, columns, conditions, options)?))
    }

    fn file_count(&self) -> usize {
        self.files().len()
    }

    fn file_identity(&self, file: usize) -> FileIdentity {
        self.files()[file].identity()
    }

    fn open_file(&self, file: usize) -> Result<Arc<dyn ReadAt>> {
        Ok(self.files()[file].source_as(self.policy().check_identity))
    }

    fn beyond_files(&self) -> Option<String> {
        self.constants_text()
    }

    fn check_unchanged(&self) -> Result<()> {
        if self.policy().check_identity { self.check_unchanged() } else { Ok(()) }
    }
}
