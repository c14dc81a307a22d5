//! Integer and decimal arithmetic that fails instead of wrapping.
//!
//! DataFusion's `+ - *`, unary minus and `sum` wrap around. Headrace's own processors do not,
//! and a query must not change its answer with the processor that runs it. So the operators
//! are replaced by functions of the same name and display while the query is still a logical
//! plan ([`arith`]), before constants are folded, and `sum` is registered anew ([`sum`]). So is
//! `avg`, which DataFusion adds up in floats ([`avg`]).
//!
//! The rule runs right after type coercion, so constant folding cannot wrap either, and every mode gets the same
//! functions.

pub mod arith;
pub mod avg;
pub mod sum;

mod analyzer;
mod shape;
mod sum_distinct;

pub use analyzer::CheckedArithmeticRule;

use datafusion::arrow::datatypes::DataType;

/// Types whose arithmetic can overflow.
pub(crate) fn can_overflow(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_decimal()
}
