//! What a path can do: filesystem, alignment, whether O_DIRECT really reads.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::system::mount_of_descriptor;
use crate::{Result, SourceFile};

/// Facts about a file, from the kernel and from a real read.
#[derive(Debug, Clone)]
pub struct PathProbe {
    /// Type of the filesystem as mounted ("ext4", "xfs", "tmpfs", "nfs4"), or its magic number;
    /// "none" for a block device, which is read past any filesystem on it.
    pub filesystem: String,
    /// Whether the file lies in memory (tmpfs, ramfs).
    pub memory_backed: bool,
    /// Alignment that O_DIRECT needs, memory then offset, in bytes, if a read succeeded; else the
    /// reason.
    pub direct: std::result::Result<(usize, usize), String>,
}

impl PathProbe {
    /// Probes a regular file.
    ///
    /// # Errors
    /// Those of [`SourceFile::open`].
    pub fn of(path: impl AsRef<Path>) -> Result<PathProbe> {
        Ok(Self::of_file(&*SourceFile::open(path)?))
    }

    /// Probes an opened file.
    pub fn of_file(file: &SourceFile) -> PathProbe {
        let filesystem = if file.is_block_device() {
            "none".to_string()
        } else {
            mounted_type(file).unwrap_or_else(|| magic_name(file))
        };
        PathProbe {
            filesystem,
            memory_backed: file.is_memory_backed(),
            direct: file
                .direct()
                .map(|direct| (direct.memory_align_bytes, direct.offset_align_bytes))
                .map_err(str::to_string),
        }
    }
}

/// The type under which the file's filesystem is mounted. The lookup is by mount, not by device
/// number: files of btrfs and overlay have numbers that no mount has.
fn mounted_type(file: &SourceFile) -> Option<String> {
    let descriptor = file.descriptor(crate::ReadMode::Buffered).ok()?;
    Some(mount_of_descriptor(descriptor.as_raw_fd()).ok()?.filesystem)
}

fn magic_name(file: &SourceFile) -> String {
    let descriptor = file.descriptor(crate::ReadMode::Buffered);
    match descriptor.and_then(|file| magic(file.as_raw_fd())) {
        Ok(magic) => format!("unknown (magic {magic:#x})"),
        Err(cause) => format!("unknown ({cause})"),
    }
}

fn magic(fd: std::os::fd::RawFd) -> io::Result<i64> {
    // SAFETY: `statfs` is plain data that the call fills in; the descriptor is open.
    let (rc, found) = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        (libc::fstatfs(fd, &mut found), found)
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    #[allow(clippy::unnecessary_cast)] // the member's type differs by architecture
    Ok(found.f_type as i64)
}

pub(crate) fn is_memory_backed(file: &File) -> bool {
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    #[allow(clippy::unnecessary_cast)] // the constants' type differs by architecture
    let memory = [libc::TMPFS_MAGIC as i64, libc::HUGETLBFS_MAGIC as i64, RAMFS_MAGIC];
    magic(file.as_raw_fd()).is_ok_and(|magic| memory.contains(&magic))
}

/// Alignment of memory and offsets for O_DIRECT in bytes: `None` if the kernel or the filesystem
/// does not say (Linux before 6.1), an error if it says that there is none.
pub(crate) fn direct_alignment(file: &File) -> Option<std::result::Result<(usize, usize), String>> {
    // SAFETY: `statx` is plain data that the call fills in; the empty path with AT_EMPTY_PATH
    // names the open descriptor.
    let (rc, found) = unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        let rc = libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &mut found,
        );
        (rc, found)
    };
    if rc != 0 || found.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    if found.stx_dio_mem_align == 0 || found.stx_dio_offset_align == 0 {
        return Some(Err("the filesystem does not support O_DIRECT on this file".to_string()));
    }
    Some(Ok((found.stx_dio_mem_align as usize, found.stx_dio_offset_align as usize)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_on_tmpfs_is_memory_backed() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, vec![1u8; 10_000]).unwrap();
        let probe = PathProbe::of(&path).unwrap();
        assert!(probe.memory_backed);
        assert_eq!(probe.filesystem, "tmpfs");
    }

    #[test]
    fn the_probe_agrees_with_a_real_direct_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, vec![1u8; 10_000]).unwrap();
        let probe = PathProbe::of(&path).unwrap();
        assert!(!probe.filesystem.is_empty());
        match probe.direct {
            Ok((memory, offset)) => assert!(memory > 0 && offset > 0),
            Err(reason) => assert!(!reason.is_empty()),
        }
    }

    #[test]
    fn an_empty_file_and_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("empty");
        std::fs::write(&path, b"").unwrap();
        assert!(PathProbe::of(&path).unwrap().direct.unwrap_err().contains("empty"));
        assert!(matches!(PathProbe::of(dir.path()), Err(crate::IoError::NotAFile { .. })));
    }
}
