//! What can go wrong with a table's bytes.

use std::io;
use std::path::{Path, PathBuf};

use arrow_schema::ArrowError;

/// An error of a reader or a writer of table files.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Reading a file failed, or the file changed.
    #[error(transparent)]
    Io(#[from] headrace_io::IoError),
    /// A folder could not be listed.
    #[error("{}: cannot list the folder: {cause}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// Creating, writing or renaming a file failed.
    #[error("{}: cannot {action}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The file is in another format.
    #[error("{}: not an Arrow IPC file: {cause}", path.display())]
    NotArrow {
        /// The file.
        path: PathBuf,
        /// What was seen instead, and the remedy where there is one.
        cause: String,
    },
    /// The file contradicts itself.
    #[error("{}: corrupt at byte {offset} ({place}): {cause}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// First byte of the part concerned.
        offset: u64,
        /// The part: "footer", "record batch 3, column lo_revenue".
        place: String,
        /// What is wrong.
        cause: String,
    },
    /// The files of a table do not fit together.
    #[error("{}: column {column}: {cause}", path.display())]
    SchemaMismatch {
        /// The file that differs from the first one.
        path: PathBuf,
        /// The column.
        column: String,
        /// How it differs.
        cause: String,
    },
    /// None of the given paths holds a complete file, so that the columns are not known.
    #[error("no complete Arrow file among {searched}{skipped}")]
    NoFiles {
        /// The given paths.
        searched: String,
        /// Files that were skipped and why, empty or starting with "; skipped: ".
        skipped: String,
    },
    /// A column cannot be written, or rows given to a writer contradict its schema.
    #[error("column {column}: {cause}")]
    Column {
        /// The column.
        column: String,
        /// What is wrong, and the remedy where there is one.
        cause: String,
    },
    /// A column, batch or option that does not exist or makes no sense.
    #[error("{0}")]
    Argument(String),
    /// Whoever makes the batches of an input failed, or went away before their end.
    #[error("{name}: {cause}")]
    Producer {
        /// The input.
        name: String,
        /// What the producer said.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The Arrow library refused to encode or convert something.
    #[error("{action}: {cause}")]
    Arrow {
        /// What was tried.
        action: String,
        /// The library's error.
        #[source]
        cause: ArrowError,
    },
}

impl FormatError {
    pub(crate) fn corrupt(
        path: &Path,
        offset: u64,
        place: impl Into<String>,
        cause: impl Into<String>,
    ) -> Self {
        Self::Corrupt { path: path.to_path_buf(), offset, place: place.into(), cause: cause.into() }
    }

    pub(crate) fn column(column: impl Into<String>, cause: impl Into<String>) -> Self {
        Self::Column { column: column.into(), cause: cause.into() }
    }

    pub(crate) fn arrow(action: impl Into<String>, cause: ArrowError) -> Self {
        Self::Arrow { action: action.into(), cause }
    }
}

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, FormatError>;
