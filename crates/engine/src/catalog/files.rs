//! The files of a table.

use std::path::Path;
use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use headrace_io::{ReadAt, SourceFile};

use super::options::ReadOptions;
use super::remote::RemoteFile;

/// A file of a table. Two are equal if they are the same version of the same file.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Which version of which file; opened when it is read.
    pub source: Arc<SourceFile>,
    /// Who fetches it, if it lies elsewhere.
    pub remote: Option<RemoteFile>,
    /// Values of [`Files::keys`]; `None` is NULL.
    pub values: Vec<Option<String>>,
}

impl DataFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// As the planner lists it.
    pub fn planned(&self) -> PartitionedFile {
        PartitionedFile::new(self.path().to_string_lossy(), self.source.size_bytes())
    }
}

impl PartialEq for DataFile {
    fn eq(&self, other: &Self) -> bool {
        let known = |file: &Self| (file.path().to_path_buf(), file.source.identity());
        known(self) == known(other) && self.values == other.values
    }
}

/// The files of a table, all of one format, in the order of their paths.
#[derive(Clone, Debug, PartialEq)]
pub struct Files {
    /// Columns that folders named `key=value` give.
    pub keys: Vec<String>,
    /// The files.
    pub files: Vec<DataFile>,
    /// How they are read, where somebody says.
    pub options: ReadOptions,
}
