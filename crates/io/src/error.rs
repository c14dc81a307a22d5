//! The errors of this crate: each names the file, the place in it and the cause.

use std::io;
use std::path::{Path, PathBuf};

/// An error of a reader or a writer. The path is in every variant that concerns a file.
#[derive(Debug, thiserror::Error)]
pub enum IoError {
    /// The file could not be opened, examined or mapped.
    #[error("{}: cannot {action}: {cause}{}", path.display(), open_remedy(cause))]
    Open {
        /// The file.
        path: PathBuf,
        /// What was tried, as a verb phrase ("open the file", "map 4096 bytes").
        action: String,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The path names something that is not a regular file.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A read failed.
    #[error(
        "{}: reading {bytes} bytes at offset {offset} failed: {cause}{}", path.display(),
        open_remedy(cause)
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Offset of the part that failed.
        offset: u64,
        /// Bytes that were still missing there.
        bytes: u64,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// A write failed.
    #[error(
        "{}: writing {bytes} bytes at offset {offset} failed: {cause}{}", path.display(),
        write_remedy(cause)
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Offset of the part that failed.
        offset: u64,
        /// Bytes that were still to be written there.
        bytes: u64,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// A file to be written could not be created, resized or put in place.
    #[error("{}: cannot {action}: {cause}{}", path.display(), write_remedy(cause))]
    Sink {
        /// The intended path.
        path: PathBuf,
        /// What was tried, as a verb phrase ("reserve 4096 bytes").
        action: String,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The file ended before the wanted bytes: it is shorter than it was when it was opened.
    #[error(
        "{}: the file ends at offset {offset}, {missing_bytes} bytes before the end of the wanted \
         extent: it was truncated after it was opened",
        path.display()
    )]
    UnexpectedEnd {
        /// The file.
        path: PathBuf,
        /// Where the data ended.
        offset: u64,
        /// Missing bytes.
        missing_bytes: u64,
    },
    /// The extent does not lie inside the file as it was when it was opened.
    #[error(
        "{}: extent of {bytes} bytes at offset {offset} does not lie inside the file of {size_bytes} bytes",
        path.display()
    )]
    OutOfRange {
        /// The file.
        path: PathBuf,
        /// Start of the extent.
        offset: u64,
        /// Length of the extent.
        bytes: u64,
        /// Size of the file when it was opened.
        size_bytes: u64,
    },
    /// The file is no longer the one that was opened: replaced, written, truncated or removed.
    #[error("{}: the file changed while it was being read ({what}); run the query again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What differs, in words.
        what: String,
    },
    /// A mapped page could not be delivered (truncated file or failing device). Data read from the
    /// mapping since then is not the file's.
    #[error(
        "{}: the page at offset {offset} could not be read through the mapping: {cause}",
        path.display()
    )]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// Offset of the page whose access failed first.
        offset: u64,
        /// The cause according to the fault.
        cause: &'static str,
    },
    /// No memory for buffers.
    #[error(
        "cannot allocate {bytes} bytes of host buffer memory: {cause}; use fewer or smaller slots"
    )]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The memory given for an extent is too small or not aligned.
    #[error("{}: a window of {window_bytes} bytes does not fit the extent of {bytes} bytes at offset {offset}: {what}", path.display())]
    Window {
        /// The file.
        path: PathBuf,
        /// Start of the extent.
        offset: u64,
        /// Length of the extent.
        bytes: u64,
        /// Length of the window.
        window_bytes: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Threads of an engine could not be started.
    #[error("cannot start an input/output thread: {cause}")]
    Thread {
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// A part of the transfer was still queued when it was cancelled. Other parts may have been
    /// moved.
    #[error("{}: the transfer at offset {offset} was cancelled", path.display())]
    Cancelled {
        /// The file.
        path: PathBuf,
        /// Start of the first part that was still queued.
        offset: u64,
    },
}

impl IoError {
    pub(crate) fn open(path: &Path, action: impl Into<String>, cause: io::Error) -> Self {
        let open = |cause| IoError::Open { path: path.to_path_buf(), action: action.into(), cause };
        Self::within(cause, open)
    }

    /// Our error inside an operating system's error, or `other` applied to it.
    pub(crate) fn within(cause: io::Error, other: impl FnOnce(io::Error) -> Self) -> Self {
        cause.downcast().unwrap_or_else(other)
    }

    pub(crate) fn sink(path: &Path, action: impl Into<String>, cause: io::Error) -> Self {
        IoError::Sink { path: path.to_path_buf(), action: action.into(), cause }
    }

    /// The file concerned, if the error concerns one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            IoError::Open { path, .. }
            | IoError::NotAFile { path }
            | IoError::Read { path, .. }
            | IoError::Write { path, .. }
            | IoError::Sink { path, .. }
            | IoError::UnexpectedEnd { path, .. }
            | IoError::OutOfRange { path, .. }
            | IoError::Changed { path, .. }
            | IoError::Poisoned { path, .. }
            | IoError::Window { path, .. }
            | IoError::Cancelled { path, .. } => Some(path),
            IoError::Memory { .. } | IoError::Thread { .. } => None,
        }
    }

    /// The offset in the file at which it went wrong, if the error has one.
    pub fn offset(&self) -> Option<u64> {
        match self {
            IoError::Read { offset, .. }
            | IoError::Write { offset, .. }
            | IoError::UnexpectedEnd { offset, .. }
            | IoError::OutOfRange { offset, .. }
            | IoError::Poisoned { offset, .. }
            | IoError::Window { offset, .. }
            | IoError::Cancelled { offset, .. } => Some(*offset),
            _ => None,
        }
    }
}

/// The remedy for a file that cannot be opened or mapped, as the end of a sentence; empty if
/// unknown.
fn open_remedy(cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(libc::EMFILE) => format!(
            "; this process may have {} open: raise the limit (ulimit -n)",
            crate::handles::files_allowed()
        ),
        Some(libc::ENFILE) => "; raise the system's limit of open files (fs.file-max)".to_string(),
        _ => String::new(),
    }
}

/// The remedy for a failed write, as the end of a sentence; empty if unknown.
fn write_remedy(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(libc::ENOSPC) => "; free space there, or write to another file system",
        Some(libc::EDQUOT) => "; raise the quota, or write to another file system",
        Some(libc::EFBIG) => "; raise the limit of file sizes (ulimit -f), or write smaller files",
        Some(libc::EIO) => "; the storage failed: see the kernel's log (dmesg)",
        Some(libc::EROFS) => "; the file system is mounted read-only: write to another one",
        Some(libc::EACCES | libc::EPERM) => "; choose a place that you may write to",
        Some(libc::ENOENT | libc::ENOTDIR) => "; make the folder first",
        Some(libc::EBUSY) => "; unmount the device, or stop what uses it",
        _ => "",
    }
}
