//! What can be wrong with the record of ceilings.

use std::path::{Path, PathBuf};

use crate::record::Measure;

/// Why the record of ceilings cannot be read or written. None of these hinders a measurement or a
/// query: they go on without percentages.
#[derive(Debug, thiserror::Error)]
pub enum CeilingsError {
    /// No variable says where it could be kept.
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
        /// What was tried.
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
        /// For how long it was tried.
        waited_ms: u64,
    },
    /// It is a record, and it is cut off or altered.
    #[error("{}: the record of ceilings is damaged at {place}\nhint: measure again: `headrace doctor` moves it aside and begins a new one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Line, column and what is wrong there.
        place: String,
    },
    /// It never was a record: it is left alone.
    #[error("{}: not a record of ceilings ({what}); it is left alone\nhint: remove it, or name another file by HEADRACE_CEILINGS", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Why it is taken for something else.
        what: String,
    },
    /// A newer Headrace wrote it: it is left alone.
    #[error("{}: a record of ceilings of version {version}, and this program knows version {known}; it is left alone\nhint: use the newer program, or name another file by HEADRACE_CEILINGS", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u64,
        /// The version that this program writes.
        known: u64,
    },
    /// A rate that cannot be one.
    #[error("{value} {} is no rate that could be recorded for {measure:?}", measure.unit())]
    Value {
        /// What was measured.
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
