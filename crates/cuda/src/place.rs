//! The failures of rows.

use headrace_columns::ColumnError;
use headrace_pipeline::{ExecError, WhyNot};

/// What a failed row did, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// [`ColumnError::Overflow`].
    Overflow {
        /// SQL type.
        type_name: String,
        /// Expression.
        place: String,
    },
    /// [`ColumnError::DivisionByZero`].
    DivisionByZero {
        /// Expression.
        place: String,
    },
    /// [`ColumnError::Cast`].
    Cast {
        /// Expression.
        place: String,
    },
    /// [`ExecError::WhyNot`]: no room for a text that a group keeps.
    GroupText {
        /// Column.
        column: String,
    },
    /// [`ColumnError::Corrupt`].
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
        let error = match self.clone() {
            Self::Overflow { type_name, place } => ColumnError::Overflow { type_name, place },
            Self::DivisionByZero { place } => ColumnError::DivisionByZero { place },
            Self::Cast { place } => ColumnError::Cast { place },
            Self::Corrupt { column, cause } => ColumnError::Corrupt { column, cause },
            Self::GroupText { column } => {
                return ExecError::WhyNot(WhyNot::new(format!(
                    "the texts of {column} that groups keep take more device memory than they may"
                )));
            }
        };
        error.into()
    }
}
