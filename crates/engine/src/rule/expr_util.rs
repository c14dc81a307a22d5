//! Rewriting of registers.

use headrace_ir::{Expr, Register};

/// Rebuilds an expression with every register replaced.
pub fn map_registers<E>(
    expr: &Expr,
    f: &mut impl FnMut(Register) -> Result<Expr, E>,
) -> Result<Expr, E> {
    let (mut mapped, mut error) = (expr.clone(), None);
    mapped.replace(&mut |e| match e {
        Expr::Register { index, .. } => f(*index).map_err(|e| error = Some(e)).ok(),
        _ => None,
    });
    error.map_or(Ok(mapped), Err)
}
