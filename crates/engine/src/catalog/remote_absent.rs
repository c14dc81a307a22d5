//! In place of `remote` in a build without it: addresses are known, and refused.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::{DataFusionError, Result};
use headrace_io::SourceFile;

use super::refused;

/// There is none.
#[derive(Clone, Debug)]
pub struct RemoteFile(Infallible);

impl RemoteFile {
    /// Never asked.
    pub fn source(&self) -> Arc<SourceFile> {
        match self.0 {}
    }

    /// Never asked.
    pub async fn ranges(&self, _: Vec<Range<u64>>) -> io::Result<Vec<Bytes>> {
        match self.0 {}
    }
}

/// A file of a table.
#[derive(Debug)]
pub struct Entry {
    /// The file.
    pub file: RemoteFile,
    /// Its address.
    pub path: PathBuf,
    /// Keys and values of the folders that it lies in.
    pub partition: Vec<(String, String)>,
}

/// What lies in a folder.
#[derive(Debug)]
pub struct Tree {
    /// Files, by name.
    pub files: BTreeMap<String, Entry>,
    /// Folders, by name.
    pub folders: BTreeMap<String, Tree>,
}

/// Whether a path is the address of something on another machine.
pub fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.contains("://") && !text.starts_with("file://"))
}

/// How an address is shown.
pub fn shown_path(path: &Path) -> PathBuf {
    path.to_path_buf()
}

/// A text in which addresses stand, as it is shown.
pub fn shown_text(text: &str) -> String {
    text.to_string()
}

fn absent(path: &Path) -> DataFusionError {
    refused(path, "this build reads no other machines", "build it with the feature `remote`")
}

/// # Errors
/// Always.
pub fn files_of(path: &Path) -> Result<Vec<Entry>> {
    Err(absent(path))
}

/// # Errors
/// Always.
pub fn tree_of(path: &Path) -> Result<Option<Tree>> {
    Err(absent(path))
}

/// # Errors
/// Always.
pub fn check_target(target: &Path) -> Result<()> {
    Err(absent(target))
}

/// # Errors
/// Always.
pub fn upload(_: &Path, target: &Path) -> Result<()> {
    Err(absent(target))
}

/// Nothing is sent or received.
pub fn traffic() -> (u64, u64) {
    (0, 0)
}
