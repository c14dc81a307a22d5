//! Where a session keeps the tables that are to last: each is a file, `t.arrow`, or a folder of files.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::{Result, exec_err, plan_err};
use parking_lot::RwLock;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::catalog::refused;
use crate::copy::Staging;
use crate::error::blocking;

/// Between two looks at a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

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
/// open. Who stops waiting changes nothing later.
///
/// # Errors
/// A folder that cannot be locked.
async fn locked(folder: &Path) -> Result<File> {
    let failed = |error: io::Error| {
        refused(folder, format!("it cannot be locked: {error}"), "use a file system that has locks")
    };
    let file = File::open(folder).map_err(failed)?;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => tokio::time::sleep(LOCK_PAUSE).await,
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// Begins what will be a table in the place of what lies there: a folder if that is one, or as is said if there is none. The path is
/// that of the file of its rows.
///
/// # Errors
/// A place that cannot be written beside.
pub fn begun(place: &Path, is_folder: bool) -> Result<(Staging, PathBuf)> {
    let is_folder = if place.exists() { place.is_dir() } else { is_folder };
    if is_folder {
        return begun_folder(place, FIRST_FILE);
    }
    let staging = Staging::beside(place, true)?;
    let file = staging.content().to_path_buf();
    Ok((staging, file))
}

/// The same of a folder, with a file of this name in it.
///
/// # Errors
/// Those of [`begun`].
pub fn begun_folder(place: &Path, file: &str) -> Result<(Staging, PathBuf)> {
    let staging = Staging::beside(place, false)?;
    std::fs::create_dir(staging.content())
        .map_err(|error| refused(place, error, "see whether its folder may be written"))?;
    let file = staging.content().join(file);
    Ok((staging, file))
}

/// Puts what was written into a home while nobody else changes its tables, if the table is then still as the statement needs it.
///
/// # Errors
/// It is not; those of `put`.
pub async fn put_alone(
    home: &Path,
    table: &str,
    is_as_it_was: impl Future<Output = Result<bool>>,
    put: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<()> {
    let alone = locked(home).await?;
    // A statement that was given up while others had the lock ends here, also if it was just about to ask for it.
    tokio::task::yield_now().await;
    if !is_as_it_was.await? {
        return exec_err!(
            "others have made or changed {table} meanwhile: nothing is done\nhint: ask for it again"
        );
    }
    blocking(move || {
        let _alone = alone;
        put()
    })
    .await
}

/// Puts it there.
///
/// # Errors
/// What lies there is something else than a table by now, or cannot be replaced.
pub fn put(staging: &Staging) -> Result<()> {
    keep_mode(staging)?;
    match staging.target().is_dir() {
        true => staging.replace_folder(),
        false => staging.commit(),
    }
}

/// Lets those read and write a folder and its files who may read and write what lies in its place.
///
/// # Errors
/// Files that cannot be changed.
pub fn keep_mode(staging: &Staging) -> Result<()> {
    let (place, content) = (staging.target(), staging.content());
    let keep = || -> io::Result<()> {
        if !place.exists() || !content.is_dir() {
            return Ok(());
        }
        let of_files = place.metadata()?.permissions().mode() & 0o666;
        for entry in std::fs::read_dir(content)? {
            std::fs::set_permissions(entry?.path(), Permissions::from_mode(of_files))?;
        }
        // Who may read files of a folder may also search it.
        let of_folder = of_files | ((of_files & 0o444) >> 2);
        std::fs::set_permissions(content, Permissions::from_mode(of_folder))?;
        File::open(content)?.sync_all()
    };
    keep().map_err(|error| refused(place, error, "see whether its folder may be written"))
}
