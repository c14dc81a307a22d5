//! Aggregates are ordered by what orders something.
//!
//! `first_value(x ORDER BY 'a', y, y DESC)` is that by `y`. What orders nothing the planner drops from the order that it asks
//! of its input, counts it among those that it compares, and ends there.

use std::collections::HashSet;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::map_expressions;

/// Leaves constants, and what was there before, out of the orders of aggregates.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    map_expressions(plan, |expr| expr.transform_up(in_short))
}

fn in_short(mut expr: Expr) -> Result<Transformed<Expr>> {
    // What is computed of an order, such as a percentile, needs one.
    let Expr::AggregateFunction(call) = &mut expr else { return Ok(Transformed::no(expr)) };
    if call.func.supports_within_group_clause() {
        return Ok(Transformed::no(expr));
    }
    let before = call.params.order_by.len();
    let mut seen = HashSet::new();
    call.params.order_by.retain(|sort| !is_constant(&sort.expr) && seen.insert(sort.expr.clone()));
    let changed = call.params.order_by.len() < before;
    Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// Whether an expression has the same value for every row: constants are folded later.
fn is_constant(expr: &Expr) -> bool {
    let has_columns = |part: &Expr| {
        Ok(!matches!(
            part,
            Expr::Literal(..) | Expr::Cast(_) | Expr::Negative(_) | Expr::BinaryExpr(_)
        ))
    };
    !expr.exists(has_columns).unwrap_or(true)
}
