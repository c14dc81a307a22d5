//! The folder of temporary files, and its limit.

use std::fmt;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Result, SpillError};

/// Bytes that are read and written at offsets, by several threads at a time.
pub trait TemporaryFile: FileExt + Send + Sync {}

impl<F: FileExt + Send + Sync> TemporaryFile for F {}

/// Creates an empty file in a folder that vanishes when it is closed.
type Maker = dyn Fn(&Path) -> io::Result<Box<dyn TemporaryFile>> + Send + Sync;

/// A folder of temporary files.
pub struct SpillFolder {
    path: PathBuf,
    limit_bytes: u64,
    lever: String,
    make: Box<Maker>,
    used_bytes: AtomicU64,
    written: Counter,
    read: Counter,
}

#[derive(Default)]
struct Counter {
    blocks: AtomicU64,
    bytes: AtomicU64,
}

/// Counters of a folder's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillCounters {
    /// Blocks that were written.
    pub written_blocks: u64,
    /// Their bytes in files.
    pub written_bytes: u64,
    /// Blocks that were read back.
    pub read_blocks: u64,
    /// Their bytes in files.
    pub read_bytes: u64,
}

impl fmt::Debug for SpillFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, limit_bytes, .. } = self;
        write!(f, "SpillFolder({}, {} of {limit_bytes} bytes)", path.display(), self.used_bytes())
    }
}

impl SpillFolder {
    /// Files in the folder `path` that take `limit_bytes` at most together. `lever` tells users how
    /// to raise the limit: "raise headrace.spill_limit".
    pub fn new(path: impl Into<PathBuf>, limit_bytes: u64, lever: impl Into<String>) -> Arc<Self> {
        Self::of_files(path, limit_bytes, lever, |folder| {
            Ok(Box::new(tempfile::tempfile_in(folder)?))
        })
    }

    /// The same with another way to create files, for example on a failing device.
    pub fn of_files(
        path: impl Into<PathBuf>,
        limit_bytes: u64,
        lever: impl Into<String>,
        make: impl Fn(&Path) -> io::Result<Box<dyn TemporaryFile>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            path: path.into(),
            limit_bytes,
            lever: lever.into(),
            make: Box::new(make),
            used_bytes: AtomicU64::new(0),
            written: Counter::default(),
            read: Counter::default(),
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Current bytes of its files.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Its counters.
    pub fn counters(&self) -> SpillCounters {
        let of = |counter: &Counter| {
            (counter.blocks.load(Ordering::Relaxed), counter.bytes.load(Ordering::Relaxed))
        };
        let ((written_blocks, written_bytes), (read_blocks, read_bytes)) =
            (of(&self.written), of(&self.read));
        SpillCounters { written_blocks, written_bytes, read_blocks, read_bytes }
    }

    /// An empty file.
    pub(crate) fn make(&self) -> Result<Box<dyn TemporaryFile>> {
        (self.make)(&self.path).map_err(|cause| self.failed("make a temporary file", cause))
    }

    pub(crate) fn take(&self, bytes: u64) -> Result<()> {
        let within = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit_bytes);
        let taken = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        taken.map(drop).map_err(|used| SpillError::Limit {
            folder: self.path.clone(),
            needed_bytes: used.saturating_add(bytes),
            limit_bytes: self.limit_bytes,
            lever: self.lever.clone(),
        })
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_written(&self, bytes: u64) {
        self.written.count(bytes);
    }

    pub(crate) fn count_read(&self, bytes: u64) {
        self.read.count(bytes);
    }

    pub(crate) fn failed(&self, action: &'static str, cause: io::Error) -> SpillError {
        SpillError::Io { folder: self.path.clone(), action, cause }
    }

    pub(crate) fn corrupt(&self, offset: u64, cause: String) -> SpillError {
        SpillError::Corrupt { folder: self.path.clone(), offset, cause }
    }
}

impl Counter {
    fn count(&self, bytes: u64) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
