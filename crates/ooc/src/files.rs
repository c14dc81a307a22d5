//! Where files come from and go to.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use headrace_io::write::{SinkFile, WriteAt};
use headrace_io::{ReadAt, SourceFile};

use crate::Result;

/// Opens and begins files: the seam under which faults are injected.
pub trait Files: Debug + Send + Sync {
    /// A file to read.
    ///
    /// # Errors
    /// [`SourceFile::open`]'s.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadAt>> {
        Ok(SourceFile::open(path)?)
    }

    /// A file whose size is known.
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

    /// A file of a known size without a name, in a folder.
    ///
    /// # Errors
    /// [`SinkFile::unnamed`]'s.
    fn unnamed(&self, folder: &Path, size_bytes: u64) -> Result<Arc<dyn WriteAt>> {
        Ok(SinkFile::unnamed(folder, size_bytes)?)
    }

    /// What was written to an unnamed file, to be read as long as that lives.
    ///
    /// # Errors
    /// [`SinkFile::read_back`]'s.
    fn read_back(&self, unnamed: &SinkFile) -> Result<Arc<dyn ReadAt>> {
        Ok(unnamed.read_back()?)
    }
}

/// Files as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainFiles;

impl Files for PlainFiles {}
