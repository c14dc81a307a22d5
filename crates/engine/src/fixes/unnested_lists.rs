//! `FROM o, unnest(o.list)`: the lists of outer rows, unnested beside those rows.
//!
//! ```sql
//! SELECT u FROM t, unnest(t.l) AS u(u)
//! ```
//!
//! - DataFusion: Refused: it is planned as a join whose second side looks at the first; right is a row for each element.
//! - Upstream: apache/datafusion#13659, apache/datafusion#10048.
//! - This can go when its canary finds the fault mended.
//!
//! The planner makes a join of it whose second side looks at the first. There is nothing to join: the list is a column of the row.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{NullHandling, Result};
use datafusion::logical_expr::{
    EmptyRelation, Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Unnest, lit,
};

use crate::plans::{columns_of, renamed, through};

/// A join with such a second side; `None` for any other.
pub fn of_outer(join: &Join, rows: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let is_free = join.on.is_empty() && join.filter.as_ref().is_none_or(|on| *on == lit(true));
    let Some(Unnesting { unnest, lists, outputs }) = lists_of(rows)?.filter(|_| is_free) else {
        return Ok(None);
    };
    let of_row = |part: Expr| match part {
        Expr::OuterReferenceColumn(_, column) if join.left.schema().has_column(&column) => {
            Ok(Transformed::yes(Expr::Column(column)))
        }
        other => Ok(Transformed::no(other)),
    };
    let own = columns_of(&join.left);
    let lists = lists.iter().map(|list| Ok(list.clone().transform_up(of_row)?.data));
    let lists = own.iter().cloned().map(Ok).chain(lists).collect::<Result<Vec<_>>>()?;
    let mut options = unnest.options.clone();
    if join.join_type == JoinType::Left {
        options.null_handling = NullHandling::PreserveAndExpandEmpty;
    }
    let outputs = outputs.into_iter().map(|output| Ok(output.transform_up(of_row)?.data));
    let outputs = own.into_iter().map(Ok).chain(outputs).collect::<Result<Vec<_>>>()?;
    let plan = LogicalPlanBuilder::from(Arc::clone(&join.left))
        .project(lists)?
        .unnest_columns_with_options(unnest.exec_columns.clone(), options)?
        .project(renamed(outputs, join.schema.columns()))?;
    plan.build().map(Some)
}

/// What unnests lists that are made of no rows.
struct Unnesting<'a> {
    unnest: &'a Unnest,
    lists: &'a [Expr],
    /// The plan's columns, made of what comes out.
    outputs: Vec<Expr>,
}

fn lists_of(plan: &LogicalPlan) -> Result<Option<Unnesting<'_>>> {
    let (mut below, mut outputs) = (plan, columns_of(plan));
    loop {
        match below {
            LogicalPlan::SubqueryAlias(alias) => {
                let columns = columns_of(&alias.input);
                outputs = through(outputs, &alias.schema.columns(), &columns)?;
                below = &alias.input;
            }
            LogicalPlan::Projection(projection) => {
                outputs = through(outputs, &projection.schema.columns(), &projection.expr)?;
                below = &projection.input;
            }
            LogicalPlan::Unnest(unnest) => {
                let LogicalPlan::Projection(lists) = unnest.input.as_ref() else { return Ok(None) };
                let is_of_one = matches!(
                    lists.input.as_ref(),
                    LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. })
                );
                let lists = lists.expr.as_slice();
                return Ok(is_of_one.then_some(Unnesting { unnest, lists, outputs }));
            }
            _ => return Ok(None),
        }
    }
}
