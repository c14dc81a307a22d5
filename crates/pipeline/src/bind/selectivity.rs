//! How many rows a condition is expected to keep: uniform values between known bounds.

use headrace_columns::lookup::Truth;
use headrace_ir::{CompareOp, Value};

use crate::bound::{BoundExpr, BoundKind};

/// For conditions of which nothing is known.
const UNKNOWN: f64 = 1.0 / 3.0;
/// Share of rows that are expected to be NULL, where some may be.
const NULLS: f64 = 0.1;

/// Expected share of rows for which `expr` is true.
pub fn of(expr: &BoundExpr) -> f64 {
    let share = match &expr.kind {
        BoundKind::Lookup { table, .. } => {
            let codes = &table[..table.len() - 1];
            let kept = codes.iter().filter(|&&t| t == Truth::True).count();
            if codes.is_empty() { 0.0 } else { kept as f64 / codes.len() as f64 }
        }
        BoundKind::Literal(scalar) => f64::from(u8::from(scalar.value == Value::Bool(true))),
        BoundKind::Compare { op, left, right } => compare(*op, left, right),
        BoundKind::And(operands) => operands.iter().map(of).product(),
        BoundKind::Or(operands) => 1.0 - operands.iter().map(|e| 1.0 - of(e)).product::<f64>(),
        BoundKind::Not(value) => 1.0 - of(value),
        BoundKind::IsNull(value) => {
            if value.nullable {
                NULLS
            } else {
                0.0
            }
        }
        BoundKind::InList { value, list, negated, .. } => {
            let found = match width(value) {
                Some(width) => (list.len() as f64 / width).min(1.0),
                None => UNKNOWN,
            };
            if *negated { 1.0 - found } else { found }
        }
        _ => UNKNOWN,
    };
    share.clamp(0.0, 1.0)
}

/// Number of values that an expression may have.
fn width(expr: &BoundExpr) -> Option<f64> {
    expr.range.map(|r| r.max as f64 - r.min as f64 + 1.0)
}

fn compare(op: CompareOp, left: &BoundExpr, right: &BoundExpr) -> f64 {
    let constant = |e: &BoundExpr| match &e.kind {
        BoundKind::Literal(_) => e.range.map(|r| r.min as f64),
        _ => None,
    };
    let (op, value, constant) = match (constant(left), constant(right)) {
        (None, Some(constant)) => (op, left, constant),
        (Some(constant), None) => (op.swapped(), right, constant),
        _ => return UNKNOWN,
    };
    let (Some(width), Some(range)) = (width(value), value.range) else { return UNKNOWN };
    let below = ((constant - range.min as f64) / width).clamp(0.0, 1.0);
    let inside = constant >= range.min as f64 && constant <= range.max as f64;
    let equal = if inside { 1.0 / width } else { 0.0 };
    match op {
        CompareOp::Eq => equal,
        CompareOp::Ne => 1.0 - equal,
        CompareOp::Lt => below,
        CompareOp::Le => below + equal,
        CompareOp::Gt => 1.0 - below - equal,
        CompareOp::Ge => 1.0 - below,
    }
}
