//! The target of a kernel, and why the kernel failed.

use headrace_ir::DataType;

use crate::ColumnError;
use crate::repr::Repr;

/// The type, representation and text of the expression that a kernel computes.
#[derive(Clone, Copy, Debug)]
pub struct Target<'e> {
    /// SQL type.
    pub data_type: &'e DataType,
    /// How it is held.
    pub repr: &'e Repr,
    /// What errors call it ("lo_extendedprice * lo_discount").
    pub text: &'e str,
}

/// Why a value could not be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Does not fit.
    Overflow,
    /// Division or modulo by zero.
    DivisionByZero,
    /// Cannot be converted.
    Cast,
}

impl Fault {
    /// The error, which names the target.
    pub(crate) fn at(self, target: Target<'_>) -> ColumnError {
        let place = target.text.to_string();
        match self {
            Self::Overflow => {
                ColumnError::Overflow { type_name: target.data_type.to_string(), place }
            }
            Self::DivisionByZero => ColumnError::DivisionByZero { place },
            Self::Cast => ColumnError::Cast { place },
        }
    }
}
