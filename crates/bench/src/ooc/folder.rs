//! The benchmark's own folder: its space is checked before it is created, and it is removed with
//! its contents at the end.

use std::fs::File;
use std::path::{Path, PathBuf};

use headrace_io::decimal_bytes;
use headrace_io::write::free_bytes;

use super::OocBenchError;

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub(super) struct OwnFolder {
    path: PathBuf,
}

impl OwnFolder {
    /// Creates it below `folder`, where there must be room for `bytes`.
    ///
    /// # Errors
    /// [`OocBenchError::Folder`]: the folder does not exist, has no room, or no permission.
    pub fn below(folder: &Path, bytes: u64) -> Result<OwnFolder, OocBenchError> {
        let fail = |what: String, remedy: &str| OocBenchError::Folder {
            path: folder.to_path_buf(),
            what,
            remedy: remedy.to_string(),
        };
        if !folder.is_dir() {
            return Err(fail("there is no such folder".to_string(), "name one that is there"));
        }
        let free_bytes = File::open(folder)
            .and_then(|folder| free_bytes(&folder))
            .map_err(|error| fail(format!("its room is not known: {error}"), "name another one"))?;
        if let Some(free_bytes) = free_bytes.filter(|free_bytes| *free_bytes < bytes) {
            let (free, wanted) = (decimal_bytes(free_bytes), decimal_bytes(bytes));
            let what = format!("{wanted} are to be written, and {free} are free");
            return Err(fail(what, "lower --max, or name a folder with more room"));
        }
        let path = folder.join(format!("headrace-bench-ooc-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| {
            let what = format!("{} cannot be made: {error}", path.display());
            fail(what, "name a folder that may be written to, and remove what is left in it")
        })?;
        Ok(OwnFolder { path })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes its contents.
    ///
    /// # Errors
    /// Errors of the operating system, with the folder.
    pub fn empty(&self) -> Result<(), OocBenchError> {
        let emptied = std::fs::read_dir(&self.path).and_then(|entries| {
            entries.into_iter().try_for_each(|entry| std::fs::remove_file(entry?.path()))
        });
        emptied.map_err(|error| OocBenchError::Folder {
            path: self.path.clone(),
            what: format!("what was measured cannot be removed: {error}"),
            remedy: "remove it by hand".to_string(),
        })
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // On the way out there is nobody to tell; the name says whose it was.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_goes_with_all_that_is_in_it() {
        let parent = tempfile::tempdir().unwrap();
        let own = OwnFolder::below(parent.path(), 1).unwrap();
        let path = own.path().to_path_buf();
        std::fs::write(path.join("a"), "a").unwrap();
        own.empty().unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        std::fs::write(path.join("b"), "b").unwrap();
        drop(own);
        assert!(!path.exists() && parent.path().exists());
    }

    #[test]
    fn where_there_is_no_room_nothing_is_made() {
        let parent = tempfile::tempdir().unwrap();
        let told = OwnFolder::below(parent.path(), u64::MAX).unwrap_err().to_string();
        assert!(told.contains("are free") && told.contains("--max"), "{told}");
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
        let told = OwnFolder::below(&parent.path().join("none"), 1).unwrap_err().to_string();
        assert!(told.contains("there is no such folder"), "{told}");
    }
}
