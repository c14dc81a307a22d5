//! Where a session keeps the tables that are to last.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::common::{Result, plan_err};
use parking_lot::RwLock;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// The folder of a session's tables, if it has one.
#[derive(Debug, Default)]
pub struct Home {
    folder: RwLock<Option<PathBuf>>,
    views: Arc<Mutex<()>>,
}

impl Home {
    /// Where it is.
    pub fn folder(&self) -> Option<PathBuf> {
        self.folder.read().clone()
    }

    /// From now on.
    pub fn set(&self, folder: PathBuf) {
        *self.folder.write() = Some(folder);
    }

    /// Waits until nobody else changes views, and keeps them from it.
    pub async fn change_views(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.views).lock_owned().await
    }
}

/// Refuses what cannot be the name of a file that is seen.
pub fn check_file_name(name: &str) -> Result<()> {
    match name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        true => plan_err!("no file can be called {name}"),
        false => Ok(()),
    }
}
