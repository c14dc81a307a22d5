//! The interface of a table of any format to pipelines.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use arrow_array::StringArray;
use arrow_schema::SchemaRef;
use headrace_io::{FileIdentity, InputPolicy};

use crate::description::TableDescription;
use crate::error::{FormatError, Result};
use crate::feed::Feed;
use crate::options::{ChunkOptions, ColumnBound};
use crate::pages::{PageSource, SegmentDecoder};
use crate::portable::PortableTable;
use crate::ranges::BatchRanges;

/// The facts about a column without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnStats {
    /// Smallest value as an integer (days, ticks, unscaled decimal); `None`: unknown, no value at
    /// all, or outside 64 bits. Not always tight, and as reliable as the files' statistics.
    pub min: Option<i64>,
    /// Largest value, likewise.
    pub max: Option<i64>,
    /// Number of NULLs, if the files state it. 0 is reliable, because readers then ignore the
    /// bitmap. Any other number is a claim, for estimates only.
    pub null_count: Option<u64>,
    /// Bytes of the column's buffers in all files, without dictionaries.
    pub bytes: u64,
}

/// A table: columns, the facts known without reading them, and the bytes that hold them.
///
/// Columns are numbered as in [`schema`](Self::schema), files as in
/// [`Segment::file`](headrace_ir::Segment::file). Nothing here reads values; others read the
/// extents of a [`Feed`]'s chunks from the files that come with them. These need not be open: there may be more files
/// than may be open. Reading is an error if the file changed since the table was opened, unless the
/// [policy](Self::policy) disables the check.
pub trait Table: fmt::Debug + Send + Sync {
    /// The columns.
    fn schema(&self) -> &SchemaRef;

    /// Whether its rows cannot be read a second time.
    fn comes_once(&self) -> bool {
        false
    }

    /// Whether only the cores decode its segments, so that a device waits for them and keeps nothing.
    fn needs_cores(&self) -> bool {
        false
    }

    /// Whether a feed of these columns with [`ChunkOptions::is_plain`] has encoded segments decoded by its readers, so that
    /// a device takes them as plain columns.
    fn is_decoded_by_readers(&self, _columns: &[usize]) -> bool {
        false
    }

    /// How its bytes may be treated.
    fn policy(&self) -> InputPolicy {
        InputPolicy::default()
    }

    /// Rows of all files; `None`: unknown.
    fn rows(&self) -> Option<u64> {
        None
    }

    /// The facts about a column; empty for a missing column.
    fn column_stats(&self, _column: usize) -> ColumnStats {
        ColumnStats::default()
    }

    /// Whether pipelines can take a column's values in place; the reason if not.
    fn column_support(&self, column: usize) -> std::result::Result<(), String>;

    /// Checks that pipelines can take all of these columns.
    ///
    /// # Errors
    /// [`FormatError::Argument`] with the first column that they cannot take, and the reason.
    fn check_columns(&self, columns: &[usize]) -> Result<()> {
        columns.iter().try_for_each(|&column| {
            let refused = |reason| FormatError::Argument(format!("column {column}: {reason}"));
            self.column_support(column).map_err(refused)
        })
    }

    /// Distinct values of a dictionary-encoded text column, sorted by bytes, none NULL.
    fn dictionary(&self, _column: usize) -> Option<&Arc<StringArray>> {
        None
    }

    /// The byte ranges of columns (in register order; none to only count rows), chunk by chunk,
    /// without parts in which no row can meet the conditions.
    ///
    /// # Errors
    /// A column that does not exist or is not supported, options of 0.
    fn feed(
        self: Arc<Self>,
        columns: &[usize],
        conditions: &[ColumnBound],
        options: ChunkOptions,
    ) -> Result<Box<dyn Feed>>;

    /// As [`feed`](Self::feed), of some record batches alone.
    ///
    /// # Errors
    /// As there; a table that has no such parts.
    fn feed_of(
        self: Arc<Self>,
        _batches: &Arc<BatchRanges>,
        _columns: &[usize],
        _conditions: &[ColumnBound],
        _options: ChunkOptions,
    ) -> Result<Box<dyn Feed>> {
        Err(FormatError::Argument("parts of this table cannot be read".into()))
    }

    /// The decoder for the [encoded](headrace_ir::Segment::is_encoded) segments in a feed of these columns; `None`: there
    /// are no such segments.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    fn segment_decoder(
        self: Arc<Self>,
        _columns: &[usize],
    ) -> Result<Option<Box<dyn SegmentDecoder>>> {
        Ok(None)
    }

    /// Like [`segment_decoder`](Self::segment_decoder), for a device. Its plan omits columns of
    /// variable-length types other than numeric.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    fn page_source(self: Arc<Self>, _columns: &[usize]) -> Result<Option<Box<dyn PageSource>>> {
        Ok(None)
    }

    /// Number of files.
    fn file_count(&self) -> usize;

    /// The identities of the files when the table was opened.
    fn file_identity(&self, file: usize) -> FileIdentity;

    /// The place of a file, if it has one.
    fn file_path(&self, _file: usize) -> Option<&Path> {
        None
    }

    /// What distinguishes its rows besides its files, in words: tables of the same files are the same table only
    /// if these are equal.
    fn beyond_files(&self) -> Option<String> {
        None
    }

    /// Under what name a device keeps a column of a file, where tables over the same file number its columns differently,
    /// or make different values of them.
    fn kept_name(&self, _column: usize) -> Option<String> {
        None
    }

    /// How another process of this machine opens the same table.
    ///
    /// # Errors
    /// Why none can.
    fn description(&self) -> std::result::Result<TableDescription, String> {
        Err("only this process has its rows".into())
    }

    /// How a process of another machine opens the same table, if the files lie there, too. Reads their footers. Who has it
    /// can read [parts](Self::feed_of).
    ///
    /// # Errors
    /// Why none can.
    fn portable(&self) -> std::result::Result<PortableTable, String> {
        Err("only this process has its rows".into())
    }

    /// # Errors
    /// A file that changed since the table was opened, if that is to be checked.
    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }
}
