//! The folder of a user's service: where its socket and its lock lie, if it does not belong to a cluster.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::own_user;

/// Where it lies, whether it is there or not.
pub fn user_folder() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match runtime.filter(|folder| folder.is_dir()) {
        Some(folder) => folder.join("headrace"),
        None => std::env::temp_dir().join(format!("headrace-{}", own_user())),
    }
}

/// Makes it, for its user alone.
///
/// # Errors
/// It cannot be made, or others may write to it.
pub fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(cause),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    match found.is_dir() && found.uid() == own_user() && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not a folder of this user that nobody else may write to",
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("own");
        make(&folder).unwrap();
        make(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(make(&folder).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(parent.path(), &link).unwrap();
        assert!(make(&link).is_err());
    }
}
