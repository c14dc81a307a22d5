//! Paths of the user: files, folders of files, block devices.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headrace_io::{IoError, ReadAt, SourceFile};

use super::BenchError;

/// Maximum files below a folder: each is held open.
const FILES_MAX: usize = 65_536;

/// An opened file.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub file: Arc<SourceFile>,
    /// The user's path that it belongs to.
    pub argument: usize,
}

/// All files of a run.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    pub files: Vec<Input>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Inputs {
    /// Opens everything; the files below a folder in path order.
    ///
    /// # Errors
    /// [`BenchError::Path`] for folders without files and for anything but files, folders and block
    /// devices; [`BenchError::Io`] for what cannot be opened.
    pub fn open(paths: &[PathBuf]) -> Result<Inputs, BenchError> {
        let mut inputs = Inputs::default();
        for (argument, path) in paths.iter().enumerate() {
            let metadata = examine(path)?;
            if metadata.is_dir() {
                inputs.add_folder(path, argument)?;
            } else if metadata.is_file() || metadata.file_type().is_block_device() {
                inputs.add_file(path, argument)?;
            } else {
                return Err(BenchError::path(
                    path,
                    "neither a file, nor a folder, nor a block device",
                    "name something that can be read at any offset",
                ));
            }
        }
        Ok(inputs)
    }

    pub fn sizes_bytes(&self) -> Vec<u64> {
        self.files.iter().map(|input| input.file.size_bytes()).collect()
    }

    fn add_file(&mut self, path: &Path, argument: usize) -> Result<(), BenchError> {
        let file = SourceFile::open_storage(path)?;
        if let Ok(metadata) = std::fs::metadata(path)
            && let Some(note) = holes(path, &metadata)
        {
            self.notes.push(note);
        }
        self.files.push(Input { file, argument });
        Ok(())
    }

    fn add_folder(&mut self, folder: &Path, argument: usize) -> Result<(), BenchError> {
        let mut found = Vec::new();
        let mut others = 0;
        walk(folder, &mut found, &mut others)?;
        if found.is_empty() {
            return Err(BenchError::path(
                folder,
                "there is no file in this folder or below it",
                "name a folder with files, or write one: headrace bench io --write PATH",
            ));
        }
        if others > 0 {
            let folder = folder.display();
            self.notes.push(format!("{folder}: {others} entries that are no files were left out"));
        }
        found.sort();
        found.iter().try_for_each(|path| self.add_file(path, argument))
    }
}

fn examine(path: &Path) -> Result<Metadata, BenchError> {
    std::fs::metadata(path).map_err(|cause| open_error(path, "examine it", cause))
}

fn open_error(path: &Path, action: &str, cause: std::io::Error) -> BenchError {
    BenchError::Io(IoError::Open { path: path.to_path_buf(), action: action.to_string(), cause })
}

/// Regular files below a folder; symbolic links to files count, those to folders do not, because
/// they may form cycles.
fn walk(folder: &Path, found: &mut Vec<PathBuf>, others: &mut u64) -> Result<(), BenchError> {
    let entries =
        std::fs::read_dir(folder).map_err(|cause| open_error(folder, "list the folder", cause))?;
    for entry in entries {
        let entry = entry.map_err(|cause| open_error(folder, "list the folder", cause))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(|cause| open_error(&path, "examine it", cause))?;
        if kind.is_dir() {
            walk(&path, found, others)?;
        } else if kind.is_file() || (kind.is_symlink() && path.is_file()) {
            found.push(path);
        } else {
            *others += 1;
        }
        if found.len() > FILES_MAX {
            return Err(BenchError::path(
                folder,
                format!("there are more than {FILES_MAX} files below this folder"),
                "name a folder with fewer, larger files",
            ));
        }
    }
    Ok(())
}

/// Holes are read without any I/O: a figure over them says nothing about the storage.
fn holes(path: &Path, metadata: &Metadata) -> Option<String> {
    let allocated_bytes = metadata.blocks().saturating_mul(512);
    let hole_bytes = metadata.len().saturating_sub(allocated_bytes);
    // Filesystems round, and some store small files in their metadata.
    (metadata.is_file() && hole_bytes > metadata.len() / 100 && hole_bytes > 64 << 10).then(|| {
        format!(
            "{}: storage holds only {allocated_bytes} of its {} bytes (holes or compression)",
            path.display(),
            metadata.len()
        )
    })
}
