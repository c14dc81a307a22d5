//! `lag(x, n, d) OVER w` is `d` where there is no such row, if it is no constant.
//!
//! ```sql
//! SELECT lag(x, 1, y) OVER (ORDER BY x) FROM t
//! ```
//!
//! - DataFusion: Refused, since `y` is no constant; right is the row's `y` where no row comes before.
//! - Upstream: apache/datafusion#22082.
//! - This can go when its canary finds the fault mended.

use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart,
};

use crate::sql::own::parse_expr;

/// `lag` and `lead` with a default that is no constant.
///
/// # Errors
/// None.
pub fn with_default(call: &mut Function) -> Result<Option<Expr>> {
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else { return Ok(None) };
    let is_meant = ["lag", "lead"].iter().any(|known| name.value.eq_ignore_ascii_case(known));
    let FunctionArguments::List(list) = &call.args else { return Ok(None) };
    let (true, [_, _, FunctionArg::Unnamed(FunctionArgExpr::Expr(default))]) =
        (is_meant && call.over.is_some(), list.args.as_slice())
    else {
        return Ok(None);
    };
    if matches!(default, Expr::Value(_) | Expr::UnaryOp { .. }) {
        return Ok(None);
    }
    let default = default.clone();
    let mut value = call.clone();
    if let FunctionArguments::List(list) = &mut value.args {
        list.args.truncate(2);
    }
    // Of a constant it is NULL where there is no such row, and nowhere else.
    let mut there = value.clone();
    there.null_treatment = None;
    if let FunctionArguments::List(list) = &mut there.args {
        list.args[0] = FunctionArg::Unnamed(FunctionArgExpr::Expr(parse_expr("1")?));
    }
    let mut meant = parse_expr("case when x is null then x else x end")?;
    if let Expr::Case { conditions, else_result, .. } = &mut meant
        && let [when] = conditions.as_mut_slice()
    {
        when.condition = Expr::IsNull(Box::new(Expr::Function(there)));
        when.result = default;
        *else_result = Some(Box::new(Expr::Function(value)));
    }
    Ok(Some(Expr::Nested(Box::new(meant))))
}
