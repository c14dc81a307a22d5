//! What can go wrong: cause, place, remedy.

use std::path::PathBuf;

use headrace_flow::RaceError;
use headrace_format::FormatError;
use headrace_gpu::GpuError;
use headrace_io::{IoError, OutOfBudget};
use headrace_spill::SpillError;

/// The result of everything here that touches a file.
pub type Result<T> = std::result::Result<T, OocError>;

/// Why an operator did not finish. No output file is left of one.
#[derive(Debug, thiserror::Error)]
pub enum OocError {
    /// What was asked for contradicts itself.
    #[error("{what}\nhint: {remedy}")]
    Usage {
        /// The contradiction.
        what: String,
        /// What to ask for instead.
        remedy: String,
    },
    /// An input is not what the operator needs.
    #[error("{}: {what}\nhint: {remedy}", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// Where in it, and what is wrong there.
        what: String,
        /// What helps.
        remedy: String,
    },
    /// The limit of a memory is too small for the work.
    #[error(
        "{what} needs {wanted_bytes} bytes of {memory}, the limit is {limit_bytes} bytes\nhint: {remedy}"
    )]
    Memory {
        /// What needs it.
        what: String,
        /// "host memory", "device memory", "temporary files".
        memory: &'static str,
        /// How much.
        wanted_bytes: u64,
        /// Of how much.
        limit_bytes: u64,
        /// What helps.
        remedy: String,
    },
    /// The budget of host memory refused.
    #[error(transparent)]
    Budget(#[from] OutOfBudget),
    /// A GPU was asked for and cannot be had, or failed.
    #[error("{what}\nhint: {remedy}")]
    Device {
        /// The reason.
        what: String,
        /// What helps.
        remedy: String,
    },
    /// A file, outside of a race.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A file's format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Temporary files, or what they hold.
    #[error(transparent)]
    Spill(SpillError),
    /// The race.
    #[error(transparent)]
    Race(RaceError),
    /// A device, outside of a race.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Somebody asked for the end.
    #[error("interrupted")]
    Cancelled,
}

impl From<SpillError> for OocError {
    /// Too little memory is the same error wherever it is noticed.
    fn from(error: SpillError) -> Self {
        match error {
            SpillError::Memory(refused) => Self::Budget(refused),
            other => Self::Spill(other),
        }
    }
}

impl OocError {
    /// An input that is not as it must be.
    pub fn input(
        path: impl Into<PathBuf>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Input { path: path.into(), what: what.into(), remedy: remedy.into() }
    }

    /// A contradiction in what was asked for.
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
