//! The errors of generating.

use std::path::PathBuf;

use arrow_schema::ArrowError;

use crate::scale::{SCALE_MAX, SCALE_MIN};

/// Errors of the generators.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuiteError {
    /// The scale factor is not a number in the supported range.
    #[error("scale factor {scale} is not in {SCALE_MIN}..={SCALE_MAX}")]
    Scale {
        /// The requested value.
        scale: f64,
    },
    /// An option has an invalid value.
    #[error("option {option} = {value}: {problem}")]
    Option {
        /// The name of the field of `GenerateOptions`.
        option: &'static str,
        /// Its value.
        value: u64,
        /// The reason.
        problem: &'static str,
    },
    /// The requested row range is outside the table.
    #[error("rows {start}..{end} of table {table}, which has {rows} rows")]
    Range {
        /// The table's name.
        table: &'static str,
        /// First requested row.
        start: u64,
        /// End of the requested range.
        end: u64,
        /// Rows of the table.
        rows: u64,
    },
    /// The directory holds a complete benchmark with other parameters.
    #[error(
        "{} holds the benchmark of {held}, not of {wanted}: choose another directory, \
         or remove this one",
        dir.display()
    )]
    Occupied {
        /// The output directory.
        dir: PathBuf,
        /// Its parameters.
        held: String,
        /// The requested parameters.
        wanted: String,
    },
    /// A file to be replaced was not written by the generator.
    #[error(
        "{} exists and does not belong to a benchmark: choose another directory, \
         or remove the file",
        path.display()
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The manifest exists but is invalid.
    #[error("{}: {problem}: choose another directory, or remove this one", path.display())]
    Manifest {
        /// Path of the manifest.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A file operation failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// The attempted operation, as in "create".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Writing an Arrow file failed.
    #[error("write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: headrace_format::FormatError,
    },
    /// Arrow refused generated columns: a defect of this crate.
    #[error("a generated batch of table {table} is not valid Arrow: {source}")]
    Batch {
        /// The table's name.
        table: &'static str,
        /// The cause.
        source: ArrowError,
    },
    /// Cancelled; nothing of this run is left behind.
    #[error("cancelled")]
    Cancelled,
}

/// # Errors
/// [`SuiteError::Scale`] for a value that is out of range or not a number.
pub(crate) fn check_scale(scale: f64) -> Result<(), SuiteError> {
    if (SCALE_MIN..=SCALE_MAX).contains(&scale) { Ok(()) } else { Err(SuiteError::Scale { scale }) }
}

impl SuiteError {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
