//! Where a session keeps the tables that are to last: each is a file, `t.arrow`, or a folder of files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::common::{Result, plan_err};
use parking_lot::RwLock;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::catalog::refused;
use crate::copy::Staging;

/// The first file of a table that is a folder: its name sorts before those of files that are added.
pub const FIRST_FILE: &str = "0.arrow";

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

/// Waits until nobody else, of this process or another, changes tables of a folder, and keeps them from it as long as the file is
/// open.
///
/// # Errors
/// A folder that cannot be locked.
pub fn locked(folder: &Path) -> Result<File> {
    let open = || -> std::io::Result<File> {
        let file = File::open(folder)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    };
    open().map_err(|error| {
        refused(folder, format!("it cannot be locked: {error}"), "use a file system that has locks")
    })
}

/// Begins what will be a table in the place of what lies there: a folder if that is one, or as is said if there is none. The path is
/// that of the file of its rows.
///
/// # Errors
/// A place that cannot be written beside.
pub fn begun(place: &Path, is_folder: bool) -> Result<(Staging, PathBuf)> {
    let is_folder = if place.exists() { place.is_dir() } else { is_folder };
    let staging = Staging::beside(place, !is_folder)?;
    if !is_folder {
        let file = staging.content().to_path_buf();
        return Ok((staging, file));
    }
    std::fs::create_dir(staging.content())
        .map_err(|error| refused(place, error, "see whether its folder may be written"))?;
    let file = staging.content().join(FIRST_FILE);
    Ok((staging, file))
}

/// Puts it there.
///
/// # Errors
/// What lies there is something else than a table by now, or cannot be replaced.
pub fn put(staging: &Staging) -> Result<()> {
    match staging.target().is_dir() {
        true => staging.replace_folder(),
        false => staging.commit(),
    }
}
