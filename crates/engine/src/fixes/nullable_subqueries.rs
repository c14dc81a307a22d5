//! A subquery of one value may be NULL: where it has no row.
//!
//! ```sql
//! SELECT (SELECT 5 FROM t WHERE x > 3) IS NULL  -- of no row
//! ```
//!
//! - DataFusion: False: the subquery is taken to be NULL only where its column may be; right is true.
//! - Upstream: apache/datafusion#24513, mended by apache/datafusion#24516, which no release has yet.
//! - This can go when its canary finds the fault mended.
//!
//! The planner takes it to be NULL only where its column may be. So `(SELECT id FROM t WHERE false) IS NULL` is false to it,
//! and `coalesce` of the subquery never has its second argument. NULLIF of a value and NULL is that value, and may be
//! NULL to whoever asks; it is put around subqueries before anything is concluded from their columns.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::core::expr_fn::nullif;
use datafusion::logical_expr::{Expr, LogicalPlan, lit};

use crate::plans::map_expressions;

/// Lets subqueries of one value be NULL.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    map_expressions(plan, |expr| expr.transform_down(may_be_null))
}

fn may_be_null(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::ScalarSubquery(subquery) = &expr else { return Ok(Transformed::no(expr)) };
    let plan = subquery.subquery.as_ref();
    let Some(field) = plan.schema().fields().first().filter(|_| !has_always_a_row(plan)) else {
        return Ok(Transformed::no(expr));
    };
    if field.is_nullable() && !has_outer_join(plan)? {
        return Ok(Transformed::no(expr));
    }
    let null = ScalarValue::try_from(field.data_type())?;
    Ok(Transformed::new(nullif(expr, lit(null)), true, TreeNodeRecursion::Jump))
}

/// Whether a plan has an outer join, which the planner may find to be none: then its columns are no longer NULL to it.
fn has_outer_join(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Join(join) if join.join_type.is_outer())))
}

/// Whether a plan has a row whatever its tables hold: an aggregate without keys, a row of constants.
fn has_always_a_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_always_a_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_always_a_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        _ => false,
    }
}
