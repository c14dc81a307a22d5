//! Problems of the record of ceilings.

use std::path::{Path, PathBuf};

use super::Measure;

/// Why the record of ceilings cannot be read or written. A measurement or query continues without
/// percentages.
#[derive(Debug, thiserror::Error)]
pub enum CeilingsError {
    /// No variable gives a location.
    #[error(
        "measured ceilings have no place to be kept: HEADRACE_CEILINGS, HEADRACE_CACHE, \
         XDG_CACHE_HOME and HOME are unset\nhint: HEADRACE_CEILINGS=FILE names one"
    )]
    NoPlace,
    /// The filesystem refused.
    #[error("{}: cannot {doing} the record of ceilings: {cause}\nhint: HEADRACE_CEILINGS=FILE keeps it elsewhere", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted operation.
        doing: &'static str,
        /// The cause.
        #[source]
        cause: std::io::Error,
    },
    /// Another process holds the lock for too long.
    #[error("{}: still locked by another process after {waited_ms} ms\nhint: wait for the other measurement to end", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long it was tried.
        waited_ms: u64,
    },
    /// A record that is truncated or altered.
    #[error("{}: the record of ceilings is damaged at {place}\nhint: measure again: `headrace doctor` moves it aside and begins a new one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Line, column and problem.
        place: String,
    },
    /// Not a record: it is not touched.
    #[error("{}: not a record of ceilings ({what}); it is left alone\nhint: remove it, or name another file by HEADRACE_CEILINGS", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Why it is not a record.
        what: String,
    },
    /// Written by a newer Headrace: it is not touched.
    #[error("{}: a record of ceilings of version {version}, and this program knows version {known}; it is left alone\nhint: use the newer program, or name another file by HEADRACE_CEILINGS", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u64,
        /// The version of this program.
        known: u64,
    },
    /// An impossible rate.
    #[error("{value} {} is no rate that could be recorded for {measure:?}", measure.unit())]
    Value {
        /// The measure.
        measure: Measure,
        /// The value.
        value: f64,
    },
}

impl CeilingsError {
    pub(crate) fn io(path: &Path, doing: &'static str, cause: std::io::Error) -> CeilingsError {
        CeilingsError::Io { path: path.to_path_buf(), doing, cause }
    }
}
