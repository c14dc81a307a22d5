//! Aggregates are ordered by what orders something.
//!
//! ```sql
//! SELECT first_value(x ORDER BY x, x) FROM t
//! ```
//!
//! - DataFusion: An internal error or a panic: what orders nothing is left out of one of two orders; right is the first
//!   value.
//! - Upstream: apache/datafusion#25398.
//! - This can go when its canary finds the fault mended.
//!
//! `first_value(x ORDER BY 'a', y, y DESC)` is that by `y`. What orders nothing the planner drops from the order that it asks
//! of its input, counts it among those that it compares, and ends there. `ORDER BY EXISTS (SELECT ..)` of no column of the rows orders
//! nothing either; in a plan of several partitions the planner does not find its own order again.

use std::collections::HashSet;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{
    Distinct, DistinctOn, Expr, LogicalPlan, LogicalPlanBuilder, Sort, Subquery,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::plans::map_expressions;

/// Leaves constants, and what was there before, out of the orders of aggregates and queries.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(sort) => return sorted(sort),
        LogicalPlan::Distinct(Distinct::On(first)) => return Ok(first_rows(first)),
        _ => {}
    }
    map_expressions(plan, |expr| expr.transform_up(in_short))
}

/// The same once expressions are simplified: `ORDER BY coalesce(k, k), k` is `ORDER BY k, k` by then.
#[derive(Debug)]
pub struct OrdersInShort;

impl OptimizerRule for OrdersInShort {
    fn name(&self) -> &str {
        "headrace_orders_in_short"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Aggregate(_) => map_expressions(plan, |expr| expr.transform_up(in_short)),
            _ => Ok(Transformed::no(plan)),
        }
    }
}

/// DISTINCT ON is an aggregate to the planner, by that order.
fn first_rows(mut first: DistinctOn) -> Transformed<LogicalPlan> {
    let mut changed = false;
    if let Some(order) = &mut first.sort_expr {
        let (before, mut seen) = (order.len(), HashSet::new());
        let (mut nth, keys) = (0, first.on_expr.len());
        order.retain(|sort| {
            nth += 1;
            (nth <= keys || !is_constant(&sort.expr)) && seen.insert(sort.expr.clone())
        });
        changed = order.len() < before;
    }
    let plan = LogicalPlan::Distinct(Distinct::On(first));
    if changed { Transformed::yes(plan) } else { Transformed::no(plan) }
}

/// A sort without subqueries that have the same value for every row.
fn sorted(mut sort: Sort) -> Result<Transformed<LogicalPlan>> {
    let before = sort.expr.len();
    sort.expr.retain(|by| !is_of_no_row(&by.expr));
    match (sort.expr.is_empty(), sort.fetch) {
        (false, _) if sort.expr.len() == before => Ok(Transformed::no(LogicalPlan::Sort(sort))),
        (false, _) => Ok(Transformed::yes(LogicalPlan::Sort(sort))),
        (true, None) => Ok(Transformed::yes(std::sync::Arc::unwrap_or_clone(sort.input))),
        (true, Some(rows)) => {
            let limited = LogicalPlanBuilder::from(sort.input).limit(0, Some(rows))?.build()?;
            Ok(Transformed::yes(limited))
        }
    }
}

/// Whether an expression is of a subquery, of one row at most, and of no column.
fn is_of_no_row(expr: &Expr) -> bool {
    let mut has_subquery = false;
    let differs = expr.exists(|part| {
        Ok(match part {
            Expr::Exists(exists) => is_of_rows(&exists.subquery, &mut has_subquery),
            Expr::ScalarSubquery(subquery) => {
                is_of_rows(subquery, &mut has_subquery)
                    || subquery.subquery.max_rows().is_none_or(|rows| rows > 1)
            }
            Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::InSubquery(_) => true,
            part => part.is_volatile_node(),
        })
    });
    has_subquery && !differs.unwrap_or(true)
}

fn is_of_rows(subquery: &Subquery, found: &mut bool) -> bool {
    *found = true;
    !subquery.outer_ref_columns.is_empty()
}

fn in_short(mut expr: Expr) -> Result<Transformed<Expr>> {
    // What is computed of an order, such as a percentile, needs one.
    let Expr::AggregateFunction(call) = &mut expr else { return Ok(Transformed::no(expr)) };
    if call.func.supports_within_group_clause() {
        return Ok(Transformed::no(expr));
    }
    let before = call.params.order_by.len();
    let mut seen = HashSet::new();
    call.params.order_by.retain(|sort| {
        let by = sort.expr.clone().unalias_nested().data;
        !is_constant(&by) && seen.insert(by)
    });
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
