//! What can go wrong, and what cannot be done.

use headrace_columns::ColumnError;
use headrace_spill::SpillError;

/// Why a processor does not take a pipeline. Shown in EXPLAIN.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WhyNot(pub String);

impl WhyNot {
    /// A reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// A failure while a pipeline runs.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// A failure of values.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// Groups or rows could not be put aside or brought back.
    #[error("spilling: {0}")]
    Spill(#[source] SpillError),
    /// Partial states that are not those of the pipeline.
    #[error("partial states that are not of this pipeline: {0}")]
    Partial(String),
    /// A value for which the processor does not take the pipeline.
    #[error(transparent)]
    WhyNot(#[from] WhyNot),
    /// Nobody wants the result any more.
    #[error("cancelled")]
    Cancelled,
    /// A broken invariant of this crate.
    #[error("internal error: {0}")]
    Internal(String),
}

impl From<SpillError> for ExecError {
    /// Too little memory is the same error wherever it is noticed.
    fn from(error: SpillError) -> Self {
        match error {
            SpillError::Memory(refused) => {
                ColumnError::out_of_memory(&refused, "rows that are put aside").into()
            }
            other => Self::Spill(other),
        }
    }
}
