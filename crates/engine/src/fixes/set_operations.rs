//! `a EXCEPT ALL b` and `a INTERSECT ALL b` count rows: of a row that `a` has m times and `b` n times, max(m - n, 0)
//! and min(m, n) are left.
//!
//! ```sql
//! SELECT x FROM t EXCEPT ALL SELECT 1  -- x: 1 and 1
//! ```
//!
//! - DataFusion: No row, and INTERSECT ALL leaves both: all copies of a row are kept, or none; right is one row each.
//! - Upstream: apache/datafusion#12956 and apache/datafusion#12955.
//! - This can go when its canary finds the fault mended.
//!
//! The planner makes them joins that keep all m or none. With the copies of a row numbered on both sides, a copy
//! has a partner where the other side has as many: the same joins, asked of the number too, keep as many as SQL says.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder, col};

/// The numbers of copies, of the left and of the right side.
const COPIES: [&str; 2] = ["__headrace_left_copy", "__headrace_right_copy"];

/// Numbers the copies of rows below such a join.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let join = match plan {
        LogicalPlan::Join(join) if counts_rows(&join) => join,
        other => return Ok(Transformed::no(other)),
    };
    let (left_keys, right_keys) = join.on.iter().cloned().unzip();
    let left = numbered(&join.left, left_keys, COPIES[0])?;
    let right = numbered(&join.right, right_keys, COPIES[1])?;
    let mut on = join.on;
    on.push((col(COPIES[0]), col(COPIES[1])));
    let columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        join.join_type,
        join.join_constraint,
        NullEquality::NullEqualsNull,
        false,
    )?;
    let kept = LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()?;
    Ok(Transformed::yes(kept))
}

/// Whether a join is what the planner makes of EXCEPT ALL and INTERSECT ALL. Of rows that are there only once it says the same.
fn counts_rows(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(_))
        && !join.on.iter().any(|(left, _)| *left == col(COPIES[0]))
}

/// The rows of a plan, and for each which copy of its keys it is.
fn numbered(input: &LogicalPlan, keys: Vec<Expr>, name: &str) -> Result<LogicalPlan> {
    let number = row_number().partition_by(keys).build()?;
    let columns = input.schema().columns().into_iter().map(Expr::Column);
    let copy = Expr::Column(Column::from_name(number.schema_name().to_string())).alias(name);
    LogicalPlanBuilder::from(input.clone())
        .window(vec![number])?
        .project(columns.chain([copy]))?
        .build()
}
