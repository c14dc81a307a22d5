//! Rewriting of registers.

use headrace_ir::{Expr, Register};

/// Rebuilds an expression with every register replaced.
pub fn map_registers<E>(
    expr: &Expr,
    f: &mut impl FnMut(Register) -> Result<Expr, E>,
) -> Result<Expr, E> {
    let mut one = |e: &Expr| map_registers(e, f).map(Box::new);
    Ok(match expr {
        Expr::Register { index, .. } => return f(*index),
        Expr::Literal(_) => expr.clone(),
        Expr::Arithmetic { op, left, right, data_type, on_overflow } => Expr::Arithmetic {
            op: *op,
            left: one(left)?,
            right: one(right)?,
            data_type: data_type.clone(),
            on_overflow: *on_overflow,
        },
        Expr::Negate { value, on_overflow } => {
            Expr::Negate { value: one(value)?, on_overflow: *on_overflow }
        }
        Expr::Compare { op, left, right } => {
            Expr::Compare { op: *op, left: one(left)?, right: one(right)? }
        }
        Expr::And(operands) => Expr::And(map_all(operands, f)?),
        Expr::Or(operands) => Expr::Or(map_all(operands, f)?),
        Expr::Not(value) => Expr::Not(one(value)?),
        Expr::IsNull(value) => Expr::IsNull(one(value)?),
        Expr::InList { value, list, negated } => {
            Expr::InList { value: one(value)?, list: list.clone(), negated: *negated }
        }
        Expr::Like { value, pattern, escape, negated, case_insensitive } => Expr::Like {
            value: one(value)?,
            pattern: pattern.clone(),
            escape: *escape,
            negated: *negated,
            case_insensitive: *case_insensitive,
        },
        Expr::Case { branches, otherwise, data_type } => Expr::Case {
            branches: branches
                .iter()
                .map(|(when, then)| Ok((map_registers(when, f)?, map_registers(then, f)?)))
                .collect::<Result<_, E>>()?,
            otherwise: match otherwise {
                Some(otherwise) => Some(Box::new(map_registers(otherwise, f)?)),
                None => None,
            },
            data_type: data_type.clone(),
        },
        Expr::Cast { value, to, on_failure } => {
            Expr::Cast { value: one(value)?, to: to.clone(), on_failure: *on_failure }
        }
    })
}

fn map_all<E>(
    exprs: &[Expr],
    f: &mut impl FnMut(Register) -> Result<Expr, E>,
) -> Result<Vec<Expr>, E> {
    exprs.iter().map(|e| map_registers(e, f)).collect()
}
