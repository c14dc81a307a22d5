//! `json ->> 'a' = 'x'`: the parser lets the arrow take the comparison, and PostgreSQL the text before it.
//!
//! ```sql
//! x ->> 'a' = 'b'
//! ```
//!
//! - DataFusion: The parser reads `x ->> ('a' = 'b')`; right is `(x ->> 'a') = 'b'`, as PostgreSQL has it.
//! - Upstream: apache/datafusion-sqlparser-rs#2459 tells of the precedence.
//! - This can go when its canary finds the fault mended.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value};

/// Puts an arrow below what the parser put behind it and what is looser in SQL.
pub fn tighten(expr: &mut Expr) {
    let Expr::BinaryOp { op: BinaryOperator::Arrow | BinaryOperator::LongArrow, right, .. } = expr
    else {
        return;
    };
    if first_operand(right).is_none() {
        return;
    }
    let nothing = || Expr::value(Value::Null);
    let mut looser = std::mem::replace(right.as_mut(), nothing());
    let mut arrow = std::mem::replace(expr, nothing());
    if let Some(first) = innermost(&mut looser)
        && let Expr::BinaryOp { right, .. } = &mut arrow
    {
        **right = std::mem::replace(first, nothing());
        *first = arrow;
    }
    *expr = looser;
}

/// The operand that what is looser than an arrow begins with.
fn first_operand(expr: &mut Expr) -> Option<&mut Expr> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq, Spaceship};
    match expr {
        Expr::BinaryOp { left, op: Eq | NotEq | Lt | LtEq | Gt | GtEq | Spaceship, .. } => {
            Some(left)
        }
        Expr::IsNull(first)
        | Expr::IsNotNull(first)
        | Expr::IsTrue(first)
        | Expr::IsNotTrue(first)
        | Expr::IsFalse(first)
        | Expr::IsNotFalse(first)
        | Expr::IsDistinctFrom(first, _)
        | Expr::IsNotDistinctFrom(first, _)
        | Expr::Between { expr: first, .. }
        | Expr::InList { expr: first, .. }
        | Expr::InSubquery { expr: first, .. }
        | Expr::Like { expr: first, .. }
        | Expr::ILike { expr: first, .. } => Some(first),
        _ => None,
    }
}

/// The operand below all of them.
fn innermost(expr: &mut Expr) -> Option<&mut Expr> {
    let is_last = first_operand(expr).is_some_and(|first| first_operand(first).is_none());
    let first = first_operand(expr)?;
    if is_last { Some(first) } else { innermost(first) }
}
