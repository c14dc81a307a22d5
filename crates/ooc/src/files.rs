//! The seam for opening input and output files.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headrace_io::write::{SinkFile, WriteAt, folder_of};
use headrace_io::{ReadAt, ReadMode, SourceFile};

use crate::{OocError, Result};

/// Opens and creates files: the seam where faults are injected.
pub trait Files: Debug + Send + Sync {
    /// A file to read.
    ///
    /// # Errors
    /// [`SourceFile::open`]'s.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadAt>> {
        Ok(SourceFile::open(path)?)
    }

    /// A file of known size.
    ///
    /// # Errors
    /// [`SinkFile::create`]'s.
    fn create(&self, path: &Path, size_bytes: u64) -> Result<Arc<dyn WriteAt>> {
        Ok(SinkFile::create(path, size_bytes)?)
    }

    /// A file whose size is known at the end.
    ///
    /// # Errors
    /// [`SinkFile::growing`]'s.
    fn growing(&self, path: &Path) -> Result<Arc<dyn WriteAt>> {
        Ok(SinkFile::growing(path)?)
    }

    /// An unnamed file of known size, in a folder.
    ///
    /// # Errors
    /// [`SinkFile::unnamed`]'s.
    fn unnamed(&self, folder: &Path, size_bytes: u64) -> Result<Arc<dyn WriteAt>> {
        Ok(SinkFile::unnamed(folder, size_bytes)?)
    }

    /// The content of an unnamed file, readable while that lives.
    ///
    /// # Errors
    /// [`SinkFile::read_back`]'s.
    fn read_back(&self, unnamed: &SinkFile) -> Result<Arc<dyn ReadAt>> {
        Ok(unnamed.read_back()?)
    }
}

/// Real files.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainFiles;

impl Files for PlainFiles {}

/// # Errors
/// [`OocError::Usage`] if two outputs are one file, or one would replace an input.
pub(crate) fn check_outputs(outputs: &[&Path], inputs: &[&Path]) -> Result<()> {
    let same = |a: &Path, b: &Path| match (place_of(a), place_of(b)) {
        (Some(a), Some(b)) => a == b,
        // What lies in no folder that there is is refused when it is begun.
        _ => a == b,
    };
    for (number, output) in outputs.iter().enumerate() {
        let shown = output.display();
        if outputs[..number].iter().any(|other| same(other, output)) {
            return Err(OocError::usage(format!("two results go to {shown}"), "name two files"));
        }
        if inputs.iter().any(|input| same(input, output)) {
            let what = format!("{shown} is an input, and the result would replace it");
            return Err(OocError::usage(what, "name another file for the result"));
        }
    }
    Ok(())
}

/// Where a path leads, whether or not the file exists.
fn place_of(path: &Path) -> Option<PathBuf> {
    path.canonicalize()
        .ok()
        .or_else(|| Some(folder_of(path).canonicalize().ok()?.join(path.file_name()?)))
}

/// The folder of temporary files: the named one, or that of the output.
pub(crate) fn temporary_folder(named: Option<&Path>, output: &Path) -> PathBuf {
    named.unwrap_or_else(|| folder_of(output)).to_path_buf()
}

/// Writes all of `bytes`; interrupted and short writes are resumed.
pub(crate) fn write_all(sink: &dyn WriteAt, mut offset: u64, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let written = match sink.write_at(ReadMode::Buffered, offset, bytes) {
            Ok(0) => Err(std::io::ErrorKind::WriteZero.into()),
            Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => continue,
            written => written,
        };
        let written = written.map_err(|cause| headrace_io::IoError::Write {
            path: sink.path().to_path_buf(),
            offset,
            bytes: bytes.len() as u64,
            cause,
        })?;
        (offset, bytes) = (offset + written as u64, &bytes[written..]);
    }
    Ok(())
}
