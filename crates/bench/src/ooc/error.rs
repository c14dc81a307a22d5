//! Why there is no record: cause, place, remedy.

use std::path::PathBuf;

use headrace_flow::RaceError;
use headrace_io::IoError;
use headrace_ooc::OocError;

use crate::transfer::BenchError;

/// The error that ended the benchmark.
#[derive(Debug, thiserror::Error)]
pub enum OocBenchError {
    /// The plan is impossible.
    #[error("{what}\nhint: {remedy}")]
    Plan {
        /// The problem.
        what: String,
        /// What to request instead.
        remedy: String,
    },
    /// The folder cannot be used.
    #[error("{}: {what}\nhint: {remedy}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The problem.
        what: String,
        /// The remedy.
        remedy: String,
    },
    /// Two variants gave different answers to the same question.
    #[error(
        "{operator} of {input}: {}, {}\nhint: one of them is wrong, and none of their times \
         counts; please report it",
        found[0],
        found[1]
    )]
    Answers {
        /// The operator.
        operator: &'static str,
        /// Which input.
        input: String,
        /// The result of the first variant, and that of another one.
        found: [String; 2],
    },
    /// The inputs could not be generated or read.
    #[error(transparent)]
    Operator(#[from] OocError),
    /// Plain reads, or writes, failed.
    #[error(transparent)]
    Transfer(#[from] BenchError),
    /// A file, outside of these operations.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The benchmark was cancelled.
    #[error("interrupted")]
    Interrupted,
}

impl OocBenchError {
    /// Whether the request was wrong, rather than the machine.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Plan { .. })
    }

    pub(super) fn plan(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Plan { what: what.into(), remedy: remedy.into() }
    }
}

/// Why a point has no figure.
#[derive(Debug)]
pub(super) enum Unmeasured {
    /// This machine, or the operator, lacks what it needs.
    Unavailable(String),
    /// It should have worked.
    Failed(String),
    /// Nothing more can be measured.
    Ended(Box<OocBenchError>),
}

impl From<OocBenchError> for Unmeasured {
    fn from(error: OocBenchError) -> Self {
        Self::Ended(Box::new(error))
    }
}

impl From<OocError> for Unmeasured {
    fn from(error: OocError) -> Self {
        match error {
            OocError::Cancelled | OocError::Race(RaceError::Cancelled) => {
                OocBenchError::Interrupted.into()
            }
            OocError::Race(
                RaceError::PathUnavailable { .. }
                | RaceError::WriteUnavailable { .. }
                | RaceError::OutOfMemory(_),
            )
            | OocError::Memory { .. }
            | OocError::Usage { .. }
            | OocError::Budget(_) => Self::Unavailable(first_line(&error)),
            error => Self::Failed(first_line(&error)),
        }
    }
}

impl From<BenchError> for Unmeasured {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Interrupted => OocBenchError::Interrupted.into(),
            BenchError::Plan { .. } | BenchError::Race(RaceError::PathUnavailable { .. }) => {
                Self::Unavailable(first_line(&error))
            }
            error => Self::Failed(first_line(&error)),
        }
    }
}

pub(super) fn first_line(text: &impl ToString) -> String {
    text.to_string().lines().next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_has_not_is_no_failure_and_an_end_is_an_end() {
        let memory = OocError::Memory {
            what: "it".to_string(),
            memory: "host memory",
            wanted_bytes: 2,
            limit_bytes: 1,
            remedy: "more".to_string(),
        };
        assert!(
            matches!(Unmeasured::from(memory), Unmeasured::Unavailable(why) if !why.contains('\n'))
        );
        let broken = OocError::input("a", "a list is out of order", "sort it");
        assert!(matches!(Unmeasured::from(broken), Unmeasured::Failed(_)));
        let ended = Unmeasured::from(OocError::Cancelled);
        assert!(
            matches!(ended, Unmeasured::Ended(error) if matches!(*error, OocBenchError::Interrupted))
        );
    }
}
