//! What can go wrong, and what cannot be done.

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
    /// A value did not fit its type; `place` is the expression.
    #[error("{type_name} overflow in {place}")]
    Overflow {
        /// SQL type.
        type_name: String,
        /// Expression or aggregate.
        place: String,
    },
    /// Division or modulo by zero.
    #[error("division by zero in {place}")]
    DivisionByZero {
        /// Expression.
        place: String,
    },
    /// A value cannot be converted.
    #[error("cannot convert a value in {place}")]
    Cast {
        /// Expression.
        place: String,
    },
    /// The streamed bytes contradict the layout (a code outside its dictionary, offsets that
    /// run backwards, a buffer that is too short).
    #[error("corrupt data in column {column}: {cause}")]
    Corrupt {
        /// Column name.
        column: String,
        /// What is wrong.
        cause: String,
    },
    /// A memory budget was exceeded; names the tier.
    #[error(
        "out of {tier}: {needed_bytes} bytes are needed for {what}, the limit is {limit_bytes}"
    )]
    Memory {
        /// "host memory" or "device memory".
        tier: &'static str,
        /// For what.
        what: String,
        /// Bytes needed.
        needed_bytes: u64,
        /// Limit in bytes.
        limit_bytes: u64,
    },
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
            SpillError::Memory(refused) => Self::out_of_memory(&refused, "rows that are put aside"),
            other => Self::Spill(other),
        }
    }
}
