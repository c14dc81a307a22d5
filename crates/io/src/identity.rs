//! The identity of a file, and whether it is unchanged.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::{IoError, Result};

/// Identity and version of a file: any write, truncation or replacement changes at least one
/// member (the change time cannot be set by programs).
///
/// A block device is identified by its number and size alone: the kernel records no time of the
/// last write, so a change of its contents goes unnoticed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct FileIdentity {
    /// Device number of the filesystem; for a block device, its own.
    pub device: u64,
    /// Inode number; 0 for a block device, of which there may be many nodes.
    pub inode: u64,
    /// Size.
    pub size_bytes: u64,
    /// Time of last modification, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Time of last status change, nanoseconds since 1970.
    pub ctime_ns: i64,
}

impl FileIdentity {
    /// Identity of an open file.
    pub fn of_file(file: &File, path: &Path) -> Result<Self> {
        Self::of_opened(file).map_err(|cause| IoError::open(path, "examine the open file", cause))
    }

    fn of_opened(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.file_type().is_block_device() {
            return Ok(Self::of_metadata(&metadata));
        }
        Ok(FileIdentity {
            device: metadata.rdev(),
            inode: 0,
            size_bytes: device_size_bytes(file)?,
            mtime_ns: 0,
            ctime_ns: 0,
        })
    }

    /// Identity of the file that the path names now (symbolic links are followed).
    pub fn of_path(path: &Path) -> Result<Self> {
        let fail = |cause| IoError::open(path, "examine the file", cause);
        let metadata = std::fs::metadata(path).map_err(fail)?;
        if metadata.file_type().is_block_device() {
            return Self::of_opened(&File::open(path).map_err(fail)?).map_err(fail);
        }
        Ok(Self::of_metadata(&metadata))
    }

    /// Identity from the metadata of a regular file. It lacks the size of a block device: see
    /// [`of_file`](FileIdentity::of_file).
    pub fn of_metadata(metadata: &Metadata) -> Self {
        FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.size(),
            mtime_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Error naming the file and what differs unless `path` still names exactly this file.
    ///
    /// A removed file is an error too, because it can no longer be checked.
    pub fn check_unchanged(&self, path: &Path) -> Result<()> {
        // Opened, not only examined: on NFS it is the opening that asks the server again. Without
        // waiting, in case a pipe lies there now.
        let opened = crate::handles::open_with_room(|| {
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
        });
        let now = match opened.and_then(|file| Self::of_opened(&file)) {
            Ok(identity) => identity,
            Err(cause) => {
                return Err(IoError::Changed {
                    path: path.to_path_buf(),
                    what: format!("it cannot be examined any more: {cause}"),
                });
            }
        };
        if now == *self {
            return Ok(());
        }
        Err(self.changed(path, &now))
    }

    /// The error of a file that has another version now.
    pub(crate) fn changed(&self, path: &Path, after: &Self) -> IoError {
        IoError::Changed { path: path.to_path_buf(), what: self.difference(after) }
    }

    /// Whether it is that file, in any version.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    fn difference(&self, after: &Self) -> String {
        if !self.is_same_file(after) {
            return format!(
                "it was replaced: inode {} on device {}, now inode {} on device {}",
                self.inode, self.device, after.inode, after.device
            );
        }
        if self.size_bytes != after.size_bytes {
            return format!(
                "its size was {} bytes and is now {} bytes",
                self.size_bytes, after.size_bytes
            );
        }
        if self.mtime_ns != after.mtime_ns {
            return "its modification time differs".to_string();
        }
        "its status change time differs".to_string()
    }
}

/// Size of an open block device.
pub(crate) fn device_size_bytes(mut device: &File) -> io::Result<u64> {
    // The end is where the kernel says the device ends; no reader uses the position.
    device.seek(SeekFrom::End(0))
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    #[test]
    fn a_written_replaced_or_removed_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.bin");
        std::fs::write(&path, b"one").unwrap();
        let identity = FileIdentity::of_path(&path).unwrap();
        assert_eq!(identity, FileIdentity::of_file(&File::open(&path).unwrap(), &path).unwrap());
        identity.check_unchanged(&path).unwrap();

        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"two").unwrap();
        let error = identity.check_unchanged(&path).unwrap_err().to_string();
        assert!(error.contains("a.bin") && error.contains("3 bytes and is now 6"), "{error}");

        let other = dir.path().join("b.bin");
        std::fs::write(&other, b"one").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let error = identity.check_unchanged(&path).unwrap_err().to_string();
        assert!(error.contains("replaced"), "{error}");

        std::fs::remove_file(&path).unwrap();
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a plain call with a terminated name.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(matches!(identity.check_unchanged(&path), Err(IoError::Changed { .. })));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(identity.check_unchanged(&path), Err(IoError::Changed { .. })));
    }
}
