//! What can go wrong with values.

/// A failure while values are computed, read or kept.
#[derive(Debug, thiserror::Error)]
pub enum ColumnError {
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
    /// A broken invariant of this crate.
    #[error("internal error: {0}")]
    Internal(String),
}
