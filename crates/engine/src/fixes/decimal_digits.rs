//! Types of decimals that depend on how many digits are asked for.
//!
//! ```sql
//! SELECT round(x, 0) = CAST(2 AS DECIMAL(5, 2)) FROM t  -- x: DECIMAL(10, 3)
//! ```
//!
//! - DataFusion: The comparison fails, of decimals of two types, and `ceil(99.5)` overflows; right is an answer.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.
//!
//! `round(x, 0)` of a decimal has no digits behind the point, if the planner sees that 0 where it asks for the type. It casts
//! whole numbers to another type first, looks at the cast, and only later sees the number again: what stands beside the decimal was
//! given a type that its values do not have. So the number has its type from the start. And `ceil(99.5)` has a digit more.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, ExprSchemable, cast, lit};

/// Digits of the longest decimals.
const DIGITS_MAX: u8 = 38;

/// A call whose type is known at once; `None` of every other expression.
pub fn known(part: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::ScalarFunction(call) = part else { return None };
    let changed = match (call.func.name(), call.args.as_slice()) {
        ("round" | "trunc", [value, digits]) => {
            vec![value.clone(), lit(ScalarValue::Int32(Some(constant(digits)?)))]
        }
        ("ceil" | "floor", [value]) => match value.get_type(schema).ok()? {
            DataType::Decimal128(precision, scale)
                if scale > 0 && precision < DIGITS_MAX && !is_wider(value, schema) =>
            {
                vec![cast(value.clone(), DataType::Decimal128(precision + 1, scale))]
            }
            _ => return None,
        },
        _ => return None,
    };
    let mut call = call.clone();
    call.args = changed;
    Some(Expr::ScalarFunction(call))
}

/// Whether a decimal has a digit more than what it is made of.
fn is_wider(value: &Expr, schema: &DFSchema) -> bool {
    let Expr::Cast(cast) = value else { return false };
    match (cast.expr.get_type(schema), cast.field.data_type()) {
        (Ok(DataType::Decimal128(before, scale)), DataType::Decimal128(after, same)) => {
            scale == *same && before < *after
        }
        _ => false,
    }
}

/// A whole number that is none of 32 bits yet.
fn constant(digits: &Expr) -> Option<i32> {
    match digits {
        Expr::Literal(ScalarValue::Int64(Some(digits)), _) => i32::try_from(*digits).ok(),
        Expr::Negative(digits) => constant(digits).and_then(i32::checked_neg),
        _ => None,
    }
}
