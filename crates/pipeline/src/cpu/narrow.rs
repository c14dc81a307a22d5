//! Decimal expressions in 64 bits, where the values at hand allow it.

use headrace_columns::decimal::magnitude_limit;
use headrace_columns::narrow::{Narrow, arithmetic, digits};
use headrace_ir::{ArithmeticOp, DataType, OnOverflow, Value};

use crate::ExecError;
use crate::bound::{BoundExpr, BoundKind};
use crate::cpu::context::Context;
use crate::cpu::eval::eval as eval_wide;

/// The value of a decimal expression for the current rows; `None`: it is to be evaluated in 128 bits.
pub fn eval<'a>(
    context: &mut Context<'a>,
    expr: &'a BoundExpr,
) -> Result<Option<Narrow<'a>>, ExecError> {
    let DataType::Decimal128 { precision, scale } = expr.data_type else { return Ok(None) };
    let narrow = match &expr.kind {
        BoundKind::Register(register) => return context.narrow(*register),
        BoundKind::Literal(scalar) => match scalar.value {
            Value::Int(value) => i64::try_from(value).ok().map(Narrow::constant),
            _ => None,
        },
        // A dividend takes more digits than it has.
        BoundKind::Arithmetic { op: ArithmeticOp::Divide | ArithmeticOp::Modulo, .. } => None,
        BoundKind::Arithmetic { op, left, right, on_overflow, cannot_overflow } => {
            let Some(l) = eval(context, left)? else { return Ok(None) };
            let Some(r) = eval(context, right)? else { return Ok(None) };
            let wraps = *cannot_overflow || *on_overflow == OnOverflow::Wrap;
            let limit = if wraps { i128::MAX } else { magnitude_limit(precision) };
            let scales = [digits(&left.data_type, scale), digits(&right.data_type, scale)];
            arithmetic(*op, [l, r], scales, context.rows()).filter(|it| it.is_within(limit))
        }
        BoundKind::Cast { value, .. } => {
            let narrow = match value.data_type {
                DataType::Decimal128 { .. } => eval(context, value)?,
                _ => Narrow::of_vector(&*eval_wide(context, value)?),
            };
            let scaled = narrow
                .zip(digits(&value.data_type, scale))
                .and_then(|(it, digits)| it.scaled(10i64.checked_pow(digits)?));
            scaled.filter(|it| it.is_within(magnitude_limit(precision)))
        }
        _ => Narrow::of_vector(&*eval_wide(context, expr)?),
    };
    Ok(narrow)
}
