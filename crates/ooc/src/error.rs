//! The errors of this crate: cause, place, remedy.

use std::path::PathBuf;

use headrace_flow::RaceError;
use headrace_format::FormatError;
use headrace_gpu::GpuError;
use headrace_io::{IoError, OutOfBudget};
use headrace_spill::SpillError;

/// The result of every operation on files here.
pub type Result<T> = std::result::Result<T, OocError>;

/// Why an operator did not finish. It leaves no output file.
#[derive(Debug, thiserror::Error)]
pub enum OocError {
    /// The request contradicts itself.
    #[error("{what}\nhint: {remedy}")]
    Usage {
        /// The contradiction.
        what: String,
        /// What to request instead.
        remedy: String,
    },
    /// An input does not meet the operator's requirements.
    #[error("{}: {what}\nhint: {remedy}", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// The place and the problem.
        what: String,
        /// The remedy.
        remedy: String,
    },
    /// A memory limit is too small for the work.
    #[error(
        "{what} needs {wanted_bytes} bytes of {memory}, the limit is {limit_bytes} bytes\nhint: {remedy}"
    )]
    Memory {
        /// The part that needs it.
        what: String,
        /// "host memory", "device memory", "temporary files".
        memory: &'static str,
        /// Required bytes.
        wanted_bytes: u64,
        /// The limit.
        limit_bytes: u64,
        /// The remedy.
        remedy: String,
    },
    /// The budget of host memory refused.
    #[error(transparent)]
    Budget(#[from] OutOfBudget),
    /// A GPU was requested and is not available, or failed.
    #[error("{what}\nhint: {remedy}")]
    Device {
        /// The reason.
        what: String,
        /// The remedy.
        remedy: String,
    },
    /// A file, outside of a race.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A file's format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Temporary files, or their content.
    #[error(transparent)]
    Spill(SpillError),
    /// The race.
    #[error(transparent)]
    Race(RaceError),
    /// A device, outside of a race.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The operator was cancelled.
    #[error("interrupted")]
    Cancelled,
}

impl From<SpillError> for OocError {
    /// Too little memory is the same error wherever it is detected.
    fn from(error: SpillError) -> Self {
        match error {
            SpillError::Memory(refused) => Self::Budget(refused),
            other => Self::Spill(other),
        }
    }
}

impl OocError {
    /// An input that does not meet the requirements.
    pub fn input(
        path: impl Into<PathBuf>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Input { path: path.into(), what: what.into(), remedy: remedy.into() }
    }

    /// A contradiction in the request.
    pub fn usage(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), remedy: remedy.into() }
    }
}

impl From<RaceError> for OocError {
    fn from(error: RaceError) -> Self {
        match error {
            RaceError::Cancelled => OocError::Cancelled,
            RaceError::Changed(error) => OocError::Io(error),
            error => OocError::Race(error),
        }
    }
}
