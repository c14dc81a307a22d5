//! Where a session keeps the tables that are to last.

use std::path::PathBuf;

use parking_lot::RwLock;

/// The folder of a session's tables, if it has one.
#[derive(Debug, Default)]
pub struct Home(RwLock<Option<PathBuf>>);

impl Home {
    /// Where it is.
    pub fn folder(&self) -> Option<PathBuf> {
        self.0.read().clone()
    }

    /// From now on.
    pub fn set(&self, folder: PathBuf) {
        *self.0.write() = Some(folder);
    }
}
