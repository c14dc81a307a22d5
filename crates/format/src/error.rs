//! The errors of a table's bytes.

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
        /// The attempted operation, as a verb phrase.
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
        /// What was found instead, and the remedy if there is one.
        cause: String,
    },
    /// The file contradicts itself.
    #[error("{}: corrupt at byte {offset} ({place}): {cause}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// First byte of the affected part.
        offset: u64,
        /// The part: "footer", "record batch 3, column lo_revenue".
        place: String,
        /// The problem.
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
    /// None of the given paths has a complete file, so the columns are unknown.
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
        /// The problem, and the remedy if there is one.
        cause: String,
    },
    /// An invalid column, batch or option.
    #[error("{0}")]
    Argument(String),
    /// The producer of an input's batches failed, or ended early.
    #[error("{name}: {cause}")]
    Producer {
        /// The input.
        name: String,
        /// The producer's message.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The Arrow library refused to encode or convert something.
    #[error("{action}: {cause}")]
    Arrow {
        /// The attempted operation.
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
