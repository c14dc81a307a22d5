//! Aggregates of outer columns alone are the outer query's.
//!
//! ```sql
//! SELECT (SELECT sum(t.x)) FROM t
//! ```
//!
//! - DataFusion: Refused; right is one row, the sum of all rows of the outer query, whose aggregate it is.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.
//!
//! `SELECT (SELECT sum(o.a)) FROM o` is one row, as `SELECT sum(o.a) FROM o` is: an aggregate belongs to the innermost query whose
//! columns it is of. The planner computes it for each outer row. Here it moves to where it belongs, and the subquery asks for
//! its value. Where the outer query has groups, or the subquery stands outside of a SELECT list, the statement is refused.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, Result, plan_err};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, Subquery};

use super::correlated::outer::subquery_of;
use crate::plans::{map_expressions, renamed};

/// Moves such aggregates out of the subqueries of a SELECT list.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut inputs = plan.inputs();
    if let Some(LogicalPlan::Aggregate(aggregate)) = inputs.first().map(|input| below_having(input))
    {
        inputs.push(&aggregate.input);
    }
    let is_outer = |call: &Expr| inputs.iter().any(|input| is_of(call, input.schema()));
    let mut found = None;
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            if let Some(subquery) = subquery_of(part) {
                found = found.take().or(first_call(subquery, &is_outer)?);
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    match (&plan, found) {
        (_, None) => Ok(Transformed::no(plan)),
        (LogicalPlan::Projection(projection), Some(_))
            if !matches!(below_having(&projection.input), LogicalPlan::Aggregate(_)) =>
        {
            let mut calls = Vec::new();
            let input = &projection.input;
            let exprs = projection.expr.iter().map(|expr| moved(expr, input.schema(), &mut calls));
            let exprs = exprs.collect::<Result<Vec<_>>>()?;
            calls.dedup();
            let own = |expr: &&Column| input.schema().has_column(expr);
            if let Some(column) = exprs.iter().flat_map(Expr::column_refs).find(own) {
                return plan_err!(
                    "{column} has many values where an aggregate in a subquery makes one row of all\nhint: put {column} into an aggregate, such as min({column})"
                );
            }
            let all = Aggregate::try_new(Arc::clone(input), Vec::new(), calls)?;
            let all = LogicalPlanBuilder::from(LogicalPlan::Aggregate(all));
            let named = renamed(exprs, projection.schema.columns());
            Ok(Transformed::yes(all.project(named)?.build()?))
        }
        (_, Some(call)) => {
            let call = without_outer(call)?;
            plan_err!(
                "{call} in a subquery is an aggregate of the outer query, and is not offered there\nhint: compute {call} in the outer query, or in a table of its own"
            )
        }
    }
}

fn below_having(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Filter(filter) => below_having(&filter.input),
        other => other,
    }
}

/// Whether an aggregate is of columns of outer rows alone, which these are.
fn is_of(call: &Expr, outer: &DFSchema) -> bool {
    let mut asked = Vec::new();
    let visited = call.apply(|part| {
        if let Expr::OuterReferenceColumn(_, column) = part {
            asked.push(column.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visited.is_ok()
        && !asked.is_empty()
        && !call.any_column_refs()
        && asked.iter().all(|column| outer.has_column(column))
}

fn first_call(plan: &LogicalPlan, is_outer: &impl Fn(&Expr) -> bool) -> Result<Option<Expr>> {
    let mut found = None;
    plan.apply(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            found = aggregate.aggr_expr.iter().find(|call| is_outer(call)).cloned();
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// An expression whose subqueries ask for the values of aggregates that were theirs.
fn moved(expr: &Expr, outer: &DFSchema, calls: &mut Vec<Expr>) -> Result<Expr> {
    let mut of = |subquery: &Subquery| {
        let plan = without_calls(&subquery.subquery, outer, calls)?;
        let outer_ref_columns = plan.all_out_ref_exprs();
        Ok::<_, datafusion::common::DataFusionError>(Subquery {
            subquery: Arc::new(plan),
            outer_ref_columns,
            ..subquery.clone()
        })
    };
    let moved = expr.clone().transform_up(|part| {
        Ok(match part {
            Expr::ScalarSubquery(subquery) => {
                Transformed::yes(Expr::ScalarSubquery(of(&subquery)?))
            }
            Expr::Exists(mut exists) => {
                exists.subquery = of(&exists.subquery)?;
                Transformed::yes(Expr::Exists(exists))
            }
            Expr::InSubquery(mut is_in) => {
                is_in.subquery = of(&is_in.subquery)?;
                Transformed::yes(Expr::InSubquery(is_in))
            }
            other => Transformed::no(other),
        })
    })?;
    Ok(moved.data)
}

/// A subquery's plan without its aggregates of outer columns, which are added to `calls`.
fn without_calls(
    plan: &LogicalPlan,
    outer: &DFSchema,
    calls: &mut Vec<Expr>,
) -> Result<LogicalPlan> {
    let mut replaced: Vec<(Column, Expr)> = Vec::new();
    let changed = plan.clone().transform_up(|node| {
        let LogicalPlan::Aggregate(aggregate) = &node else {
            return map_expressions(node, |expr| {
                expr.transform_up(|part| Ok(value_of(part, &replaced)))
            });
        };
        let (moved, own): (Vec<_>, Vec<_>) =
            aggregate.aggr_expr.iter().cloned().partition(|call| is_of(call, outer));
        if moved.is_empty() {
            return Ok(Transformed::no(node));
        }
        for call in moved {
            let name = Column::from_name(call.schema_name().to_string());
            let field = Arc::clone(aggregate.schema.field_from_column(&name)?);
            let call = without_outer(call)?;
            let column = Column::from_name(call.schema_name().to_string());
            replaced.push((name, Expr::OuterReferenceColumn(field, column)));
            calls.push(call);
        }
        let input = Arc::clone(&aggregate.input);
        Ok(Transformed::yes(match own.is_empty() && aggregate.group_expr.is_empty() {
            true => Arc::unwrap_or_clone(input),
            false => LogicalPlan::Aggregate(Aggregate::try_new(
                input,
                aggregate.group_expr.clone(),
                own,
            )?),
        }))
    })?;
    Ok(changed.data)
}

fn value_of(part: Expr, replaced: &[(Column, Expr)]) -> Transformed<Expr> {
    let Expr::Column(column) = &part else { return Transformed::no(part) };
    match replaced.iter().find(|(name, _)| name == column) {
        Some((_, value)) => Transformed::yes(value.clone()),
        None => Transformed::no(part),
    }
}

/// An aggregate as the outer query writes it.
fn without_outer(call: Expr) -> Result<Expr> {
    let own = |part| match part {
        Expr::OuterReferenceColumn(_, column) => Ok(Transformed::yes(Expr::Column(column))),
        other => Ok(Transformed::no(other)),
    };
    Ok(call.transform_up(own)?.data)
}
