//! What a file format is: one way in which the bytes of files mean rows.
//!
//! ```text
//! names ──listing──► Files ──inspect, each──► Inspected ──union, wider──► the table's columns
//!                      │                          │                               │
//!                      │                          └── what its reader is to know ─┴─► source ──► the planner's scan
//!                      └──streamed──► a table that pipelines read themselves
//! ```
//!
//! A format answers for one file at a time: what its names and functions are, which columns it has, how it is read. It
//! never knows which other formats there are (`formats` lists them), how files were found, what their folders say, or
//! who asks. What is the same for all is not its own: folders as columns, columns that some files lack, the order of
//! files, `filename`.
//!
//! Text is read by `text`: a format says where records end and makes batches of blocks of them
//! ([`Layout`](super::layout::Layout)). What else there is brings a `FileSource` of its own. DataFusion's trait of this
//! name does not fit: it lists files by itself, knows one schema for all of them, keeps nothing of a file that it looked
//! at, and writes.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileSource;
use datafusion::datasource::table_schema::TableSchema;
use headrace_io::{MemoryBudget, SourceFile};

use super::files::{DataFile, Files};
use super::options::ReadOptions;

/// One of those that are known.
pub type Format = &'static dyn FileFormat;

/// How the files of a table are read.
pub trait FileFormat: fmt::Debug + Send + Sync {
    /// As errors call it; no other has it.
    fn name(&self) -> &'static str;

    /// What the names of its files end in, in lower case.
    fn suffixes(&self) -> &'static [&'static str];

    /// Whether its files may be packed as a whole: `.csv.gz`.
    fn is_packable(&self) -> bool {
        false
    }

    /// Functions of SQL that read it whatever files are called; the first is its usual one.
    fn functions(&self) -> &'static [&'static str];

    /// Options of these functions, besides `filename`, in the words of `sql::functions`.
    fn options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a file that lies in a folder and is called as its files are is one.
    fn is_table(&self, _file: &Arc<SourceFile>) -> bool {
        true
    }

    /// Looks at a file, and at about so many bytes of it if only its values tell their types.
    ///
    /// # Errors
    /// With the file's name: what keeps it from being read, and what helps.
    fn inspect(
        &self,
        file: &DataFile,
        options: &ReadOptions,
        sample_bytes: usize,
    ) -> Result<Inspected>;

    /// What a file that was looked at claims of its values, as those of the table's files.
    ///
    /// # Errors
    /// Claims that make no sense.
    fn statistics(
        &self,
        _file: &PartitionedFile,
        _own: &Schema,
        _table: &SchemaRef,
    ) -> Result<Option<Statistics>> {
        Ok(None)
    }

    /// A type that has all values of two that do not meet in every format.
    fn wider(&self, a: &DataType, b: &DataType) -> Option<DataType> {
        let meet = |integer: &DataType, float: &DataType| {
            integer.is_integer() && integer.primitive_width() < Some(8) && float.is_floating()
        };
        (meet(a, b) || meet(b, a)).then_some(DataType::Float64)
    }

    /// The type of a column that has no value in any file.
    fn type_of_nothing(&self) -> DataType {
        DataType::Utf8
    }

    /// What the planner reads files with that were looked at.
    fn source(&self, scan: Scan<'_>) -> Arc<dyn FileSource>;

    /// A table of these files, with this name and place, that pipelines stream. The metadata read to open it may be
    /// cached in the folder `kept`. `None`: the planner reads the files.
    ///
    /// # Errors
    /// What keeps them from being a table.
    fn streamed(
        &self,
        _name: &str,
        _place: &Path,
        _files: &Files,
        _kept: Option<&Path>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(None)
    }
}

impl PartialEq for dyn FileFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn FileFormat {}

/// A file that was looked at.
pub struct Inspected {
    /// With all that its reader is to know of it, as an extension.
    pub file: PartitionedFile,
    /// Its own columns.
    pub schema: Schema,
    /// What was told of it and could be wrong.
    pub notes: Vec<String>,
}

/// What a scan gives a reader.
pub struct Scan<'a> {
    /// Columns of the files and of their folders.
    pub schema: TableSchema,
    /// What the session says.
    pub config: &'a ConfigOptions,
    /// Threads at most.
    pub threads: usize,
    /// For what is held; `None`: no limit.
    pub budget: Option<Arc<MemoryBudget>>,
}
