//! The failures of rows.

use headrace_pipeline::{ExecError, WhyNot};

/// What a failed row did, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// [`ExecError::Overflow`].
    Overflow {
        /// SQL type.
        type_name: String,
        /// Expression.
        place: String,
    },
    /// [`ExecError::DivisionByZero`].
    DivisionByZero {
        /// Expression.
        place: String,
    },
    /// [`ExecError::Cast`].
    Cast {
        /// Expression.
        place: String,
    },
    /// [`ExecError::WhyNot`]: no room for a text that a group keeps.
    GroupText {
        /// Column.
        column: String,
    },
    /// [`ExecError::Corrupt`].
    Corrupt {
        /// Column.
        column: String,
        /// What is wrong.
        cause: String,
    },
}

impl Place {
    /// The error that the CPU processor gives for the same row.
    pub fn to_error(&self) -> ExecError {
        match self.clone() {
            Self::Overflow { type_name, place } => ExecError::Overflow { type_name, place },
            Self::DivisionByZero { place } => ExecError::DivisionByZero { place },
            Self::Cast { place } => ExecError::Cast { place },
            Self::Corrupt { column, cause } => ExecError::Corrupt { column, cause },
            Self::GroupText { column } => ExecError::WhyNot(WhyNot::new(format!(
                "the texts of {column} that groups keep take more device memory than they may"
            ))),
        }
    }
}
