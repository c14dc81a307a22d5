//! What another process of this machine needs to open the same table.
//!
//! The description names each file with its identity, so that whoever opens it has the same versions or an error.
//! It does not list folders: which files belong to a table was decided by whoever opened it first.

use std::path::PathBuf;

use headrace_io::FileIdentity;
use serde::{Deserialize, Serialize};

/// A table of local Arrow files, in words that another process understands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TableDescription {
    pub(crate) files: Vec<(PathBuf, FileIdentity)>,
    /// Columns that no file has: one value per file.
    pub(crate) constants: Vec<(String, Constants)>,
    /// All columns: their names, types, and whether they may be NULL.
    pub(crate) columns: Vec<(String, String, bool)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Constants {
    Integers(Vec<Option<i64>>),
    Days(Vec<Option<i64>>),
    Texts(Vec<Option<String>>),
}
