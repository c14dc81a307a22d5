//! The kind of a path, and the file that represents it.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use headrace_io::{PathProbe, ReadAt, SourceFile, residency_sampled};

use crate::facts::{DirectAlignment, FileFact, FilesBelow, PathKind};

/// Maximum entries of a folder that are examined.
const ENTRIES_MAX: u64 = 100_000;

/// Sampled stretches of the file in the page cache.
const RESIDENCY_SAMPLES: u64 = 256;

/// A path and its representative file.
pub(crate) struct Resolved {
    pub kind: PathKind,
    pub below: Option<FilesBelow>,
    pub file: Option<PathBuf>,
}

/// Examines a path; a folder is represented by its largest file.
pub(crate) fn resolve(path: &Path) -> Resolved {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(cause) => {
            let kind = match cause.kind() {
                std::io::ErrorKind::NotFound => PathKind::Missing,
                _ => PathKind::Unreachable(cause.to_string()),
            };
            return Resolved { kind, below: None, file: None };
        }
    };
    let itself = |kind| Resolved { kind, below: None, file: Some(path.to_path_buf()) };
    if metadata.is_file() {
        itself(PathKind::File)
    } else if metadata.file_type().is_block_device() {
        itself(PathKind::BlockDevice)
    } else if metadata.is_dir() {
        folder(path)
    } else {
        Resolved { kind: PathKind::Other, below: None, file: None }
    }
}

fn folder(path: &Path) -> Resolved {
    let first = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(cause) => {
            let kind = PathKind::Unreachable(format!("the folder cannot be listed: {cause}"));
            return Resolved { kind, below: None, file: None };
        }
    };
    let mut below = FilesBelow { files: 0, bytes: 0, unreadable: 0, more: false };
    let mut largest: Option<(u64, PathBuf)> = None;
    let mut seen = 0;
    let mut folders = vec![first];
    'all: while let Some(entries) = folders.pop() {
        for entry in entries {
            seen += 1;
            if seen > ENTRIES_MAX {
                below.more = true;
                break 'all;
            }
            let Ok(entry) = entry else {
                below.unreadable += 1;
                continue;
            };
            // Links are not followed: they may lead in a circle, or to another filesystem.
            let Ok(metadata) = entry.metadata() else {
                below.unreadable += 1;
                continue;
            };
            if metadata.is_dir() {
                match std::fs::read_dir(entry.path()) {
                    Ok(entries) => folders.push(entries),
                    Err(_) => below.unreadable += 1,
                }
            } else if metadata.is_file() {
                below.files += 1;
                below.bytes += metadata.len();
                // Of equals the first by name, so that the choice does not depend on the order
                // in which a filesystem lists.
                let candidate = (metadata.len(), entry.path());
                let better = largest.as_ref().is_none_or(|(bytes, path)| {
                    candidate.0 > *bytes || (candidate.0 == *bytes && candidate.1 < *path)
                });
                if better {
                    largest = Some(candidate);
                }
            }
        }
    }
    Resolved { kind: PathKind::Folder, below: Some(below), file: largest.map(|(_, path)| path) }
}

/// Facts about a file from reading at most a block of it.
///
/// # Errors
/// Why it could not be opened.
pub(crate) fn examine(path: &Path) -> headrace_io::Result<FileFact> {
    let file = SourceFile::open_storage(path)?;
    let probe = PathProbe::of_file(&file);
    // Block devices have all of their bytes.
    let allocated_bytes = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata.blocks().saturating_mul(512),
        _ => file.size_bytes(),
    };
    let resident = residency_sampled(&*file, 0, file.size_bytes(), RESIDENCY_SAMPLES);
    Ok(FileFact {
        path: path.to_path_buf(),
        size_bytes: file.size_bytes(),
        allocated_bytes,
        filesystem: probe.filesystem,
        memory_backed: probe.memory_backed,
        direct: probe
            .direct
            .map(|(memory_bytes, offset_bytes)| DirectAlignment { memory_bytes, offset_bytes })
            .into(),
        resident_share: resident.map(|residency| residency.share()).into(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Known;

    #[test]
    fn a_folder_is_stood_for_by_its_largest_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("a"), vec![1u8; 10]).unwrap();
        std::fs::write(dir.path().join("sub/b"), vec![1u8; 5000]).unwrap();
        std::fs::write(dir.path().join("sub/c"), vec![1u8; 5000]).unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("sub/circle")).unwrap();
        let resolved = resolve(dir.path());
        assert_eq!(resolved.kind, PathKind::Folder);
        assert_eq!(resolved.file.unwrap(), dir.path().join("sub/b"));
        let below = resolved.below.unwrap();
        assert_eq!((below.files, below.bytes, below.more), (3, 10_010, false));
    }

    #[test]
    fn what_is_no_file_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(resolve(&dir.path().join("none")).kind, PathKind::Missing);
        assert_eq!(resolve(Path::new("/dev/null")).kind, PathKind::Other);
        let empty = resolve(dir.path());
        assert_eq!((empty.kind, empty.file), (PathKind::Folder, None));
        let file = dir.path().join("a");
        std::fs::write(&file, b"x").unwrap();
        assert_eq!(resolve(&file).kind, PathKind::File);
        assert!(matches!(resolve(&file.join("below")).kind, PathKind::Unreachable(_)));
    }

    #[test]
    fn an_examined_file_has_its_facts_or_reasons() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, vec![1u8; 10_000]).unwrap();
        let fact = examine(&path).unwrap();
        assert!(fact.memory_backed);
        assert_eq!((fact.size_bytes, fact.filesystem.as_str()), (10_000, "tmpfs"));
        assert_eq!(fact.resident_share, Known::Value(1.0));
        assert!(!fact.has_holes());
        assert!(examine(&dir.path().join("none")).is_err());
    }

    #[test]
    fn holes_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        std::fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
        assert!(examine(&path).unwrap().has_holes());
    }
}
