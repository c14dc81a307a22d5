//! Why there is no figure: cause, place, remedy.

use std::path::PathBuf;

use headrace_flow::RaceError;
use headrace_gpu::GpuError;
use headrace_io::IoError;

/// The error that ended a benchmark without a result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The plan contradicts itself or requests something that does not exist.
    #[error("{what}")]
    Plan {
        /// The problem.
        what: String,
        /// What to do instead.
        remedy: String,
    },
    /// A path cannot be measured.
    #[error("{}: {what}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The problem.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// A file could not be opened, examined or read outside of the race.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The race failed.
    #[error(transparent)]
    Race(#[from] RaceError),
    /// A device is not available.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Interrupted before the first result.
    #[error("interrupted before the first byte was measured")]
    Interrupted,
}

impl BenchError {
    pub(crate) fn plan(what: impl Into<String>, remedy: impl Into<String>) -> BenchError {
        BenchError::Plan { what: what.into(), remedy: remedy.into() }
    }

    pub(crate) fn path(
        path: impl Into<PathBuf>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> BenchError {
        BenchError::Path { path: path.into(), what: what.into(), remedy: remedy.into() }
    }

    /// Whether the request was wrong, rather than the machine or a file.
    pub fn is_usage(&self) -> bool {
        matches!(self, BenchError::Plan { .. })
    }

    /// The remedy, if it is known and not in the message already.
    pub fn remedy(&self) -> Option<String> {
        match self {
            BenchError::Plan { remedy, .. } | BenchError::Path { remedy, .. } => {
                Some(remedy.clone())
            }
            BenchError::Io(error) => io_remedy(error),
            BenchError::Race(error) => race_remedy(error),
            // Its text carries its own hint.
            BenchError::Gpu(_) | BenchError::Interrupted => None,
        }
    }
}

fn race_remedy(error: &RaceError) -> Option<String> {
    match error {
        RaceError::Read { source, .. }
        | RaceError::Changed(source)
        | RaceError::StartUp(source) => io_remedy(source),
        // Its text carries its own hint.
        RaceError::PathUnavailable { reason, .. } if reason.contains("\nhint: ") => None,
        RaceError::PathUnavailable { .. } => {
            Some("--path auto takes the best way there is and says why; see headrace doctor".into())
        }
        _ => None,
    }
}

fn io_remedy(error: &IoError) -> Option<String> {
    let of_errno = |errno: Option<i32>| match errno {
        Some(libc::EACCES | libc::EPERM) => {
            Some("run as a user that may read it, or change its permissions (chmod, chown)")
        }
        Some(libc::ENOENT | libc::ENOTDIR) => Some("check the path; ls shows what is there"),
        Some(libc::EIO) => Some("the device failed: dmesg and smartctl -a say more"),
        Some(libc::ESTALE) => Some("the file server restarted or replaced the file: remount it"),
        Some(libc::EMFILE) => Some("raise the limit of open files (ulimit -n)"),
        _ => None,
    };
    match error {
        IoError::Open { cause, .. } | IoError::Read { cause, .. } => {
            of_errno(cause.raw_os_error()).map(str::to_string)
        }
        IoError::UnexpectedEnd { .. } | IoError::Changed { .. } | IoError::Poisoned { .. } => {
            Some("measure a file that nobody writes to meanwhile".to_string())
        }
        IoError::Memory { .. } => Some("use a smaller --chunk or fewer --slots".to_string()),
        _ => None,
    }
}
