//! The errors of this crate: cause, place, remedy.

use std::io;
use std::path::PathBuf;

use arrow_schema::ArrowError;
use headrace_io::OutOfBudget;

/// The result of everything here.
pub type Result<T> = std::result::Result<T, SpillError>;

/// Why rows could not be stored or read back.
#[derive(Debug, thiserror::Error)]
pub enum SpillError {
    /// The file system refused.
    #[error("{}: cannot {action} in this folder: {cause}", folder.display())]
    Io {
        /// The folder of temporary files.
        folder: PathBuf,
        /// The attempted operation, as a verb phrase.
        action: &'static str,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// Temporary files would exceed their limit.
    #[error(
        "temporary files in {} would take {needed_bytes} bytes, the limit is {limit_bytes}: {lever}",
        folder.display()
    )]
    Limit {
        /// Their folder.
        folder: PathBuf,
        /// Bytes that all of them would take.
        needed_bytes: u64,
        /// Their limit.
        limit_bytes: u64,
        /// How to raise the limit.
        lever: String,
    },
    /// Bytes that differ from those that were written.
    #[error("a temporary file in {} is corrupt at byte {offset}: {cause}", folder.display())]
    Corrupt {
        /// The folder.
        folder: PathBuf,
        /// First byte of the block.
        offset: u64,
        /// What is wrong.
        cause: String,
    },
    /// Neither memory nor a temporary file has room for the rows, or memory has no room for the list of their
    /// blocks.
    #[error(transparent)]
    Memory(#[from] OutOfBudget),
    /// A broken invariant of the owner: another schema, other dictionaries, a block of another
    /// file.
    #[error("internal error: {0}")]
    Internal(String),
}

impl SpillError {
    pub(crate) fn arrow(what: &str, cause: ArrowError) -> Self {
        Self::Internal(format!("{what}: {cause}"))
    }
}
