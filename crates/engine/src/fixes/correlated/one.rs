//! A subquery of one value: what its one row is made of, and that row for each of the values of outer rows.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::functions_aggregate::count::count_all;
use datafusion::functions_aggregate::first_last::first_value;
use datafusion::functions_aggregate::min_max::min;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, FetchType, Limit, LogicalPlan, LogicalPlanBuilder,
    Operator, SkipType, SortExpr,
};

use super::dependent::{Planned, Refused, Values};
use super::only;
use super::outer::{asked_by, conditions_of, has_subquery};
use crate::plans::{columns_of, renamed, through, with_default};

/// What a subquery of one row finds for each of the values, and what is made of it for an outer row.
pub fn one_for_each(
    one: &One<'_>,
    plan: &LogicalPlan,
    values: &Values,
) -> Planned<(LogicalPlan, Vec<Expr>)> {
    let rows = |plan: &LogicalPlan| Arc::new(plan.clone());
    let first = || one.outputs.first().cloned().ok_or(Refused::Other);
    let aggregate = match &one.kind {
        Kind::Aggregate(aggregate) => (*aggregate).clone(),
        Kind::First { rows: below, order } => {
            let call = first_value(first()?, order.to_vec());
            Aggregate::try_new(rows(below), Vec::new(), vec![call])?
        }
        Kind::Only => {
            let value = first()?;
            let call = match is_comparable(&value.get_type(plan.schema())?) {
                true => min(value),
                false => first_value(value, Vec::new()),
            };
            Aggregate::try_new(rows(without_order(plan)), Vec::new(), vec![call, count_all()])?
        }
    };
    let (grouped, calls) = values.grouped(&aggregate, &[])?;
    let value_columns = values.found_values(calls.len());
    let names = values.found_keys().into_iter().chain(value_columns.iter().cloned()).collect();
    let made = values.keys().into_iter().chain(calls).map(Expr::Column);
    let found = LogicalPlanBuilder::from(grouped).project(renamed(made, names))?.build()?;

    let value = |nth: usize| Expr::Column(value_columns[nth].clone());
    let made = match one.kind {
        Kind::First { .. } => vec![value(0)],
        Kind::Only => vec![only::only(value(0), value(1))],
        Kind::Aggregate(_) if one.outputs.iter().any(has_subquery) => return Err(Refused::Other),
        Kind::Aggregate(_) => {
            let values_of = aggregate.aggr_expr.iter().enumerate();
            let values_of = values_of.map(|(nth, call)| with_default(value(nth), call, &aggregate));
            let values_of = values_of.collect::<Result<Vec<_>>>()?;
            let of_row = |part: Expr| match &part {
                Expr::OuterReferenceColumn(_, column) if values.outer().contains(column) => {
                    Ok(Transformed::yes(Expr::Column(column.clone())))
                }
                _ => Ok(Transformed::no(part)),
            };
            // What is asked of the outer row may be called as a column of the aggregate is.
            let made = through(one.outputs.clone(), &aggregate.schema.columns(), &values_of)?;
            let made = made.into_iter().map(|expr| Ok(expr.transform_up(of_row)?.data));
            made.collect::<Result<_>>()?
        }
    };
    Ok((found, made))
}

fn is_comparable(data_type: &DataType) -> bool {
    data_type.is_numeric() || data_type.is_temporal() || data_type.is_string()
}

/// A subquery of one row.
pub struct One<'a> {
    pub kind: Kind<'a>,
    /// Its columns, made of those of what the kind has.
    pub outputs: Vec<Expr>,
}

pub enum Kind<'a> {
    /// Without groups: it has one row.
    Aggregate(&'a Aggregate),
    /// The first row of an order, or any.
    First { rows: &'a LogicalPlan, order: &'a [SortExpr] },
    /// As many as it has: more than one are an error.
    Only,
}

impl<'a> One<'a> {
    pub fn of(plan: &'a LogicalPlan) -> Result<Self> {
        let whole: Vec<Expr> = columns_of(plan);
        let (mut below, mut outputs, mut is_limited) = (plan, whole.clone(), false);
        let kind = loop {
            match below {
                LogicalPlan::Projection(projection) => {
                    outputs = through(outputs, &projection.schema.columns(), &projection.expr)?;
                    below = &projection.input;
                }
                LogicalPlan::SubqueryAlias(alias) => {
                    let columns = columns_of(&alias.input);
                    outputs = through(outputs, &alias.schema.columns(), &columns)?;
                    below = &alias.input;
                }
                LogicalPlan::Limit(limit) if !is_limited && is_first(limit) => {
                    is_limited = true;
                    below = &limit.input;
                }
                LogicalPlan::Sort(sort) if is_limited && sort.fetch.is_none() => {
                    break Kind::First { rows: &sort.input, order: &sort.expr };
                }
                LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
                    break Kind::Aggregate(aggregate);
                }
                rows if is_limited => break Kind::First { rows, order: &[] },
                _ => break Kind::Only,
            }
        };
        if matches!(kind, Kind::Only) {
            outputs = whole;
        }
        Ok(Self { kind, outputs })
    }
}

/// LIMIT 1.
fn is_first(limit: &Limit) -> bool {
    let skip = limit.get_skip_type();
    let fetch = limit.get_fetch_type();
    matches!((skip, fetch), (Ok(SkipType::Literal(0)), Ok(FetchType::Literal(Some(1)))))
}

/// The order of rows that are not counted says nothing.
pub fn without_order(mut plan: &LogicalPlan) -> &LogicalPlan {
    while let LogicalPlan::Sort(sort) = plan
        && sort.fetch.is_none()
    {
        plan = &sort.input;
    }
    plan
}

/// Whether the planner joins what a subquery of one value finds: an aggregate without groups of rows that equalities with columns
/// choose.
pub fn is_known(plan: &LogicalPlan) -> bool {
    let Ok(One { kind: Kind::Aggregate(aggregate), outputs }) = One::of(plan) else {
        return false;
    };
    !outputs.iter().any(Expr::contains_outer)
        && !aggregate.aggr_expr.iter().any(Expr::contains_outer)
        && is_asked_by_keys(&aggregate.input).unwrap_or(false)
}

/// Whether all that a plan asks of outer rows are conditions at its top that are keys.
pub fn is_asked_by_keys(plan: &LogicalPlan) -> Result<bool> {
    let (conditions, rows) = conditions_of(plan);
    let asking = |condition: &&Expr| condition.contains_outer() || has_subquery(condition);
    Ok(conditions.iter().filter(asking).all(is_key) && asked_by(rows)?.is_empty())
}

/// Whether a condition is one that the planner makes a key of groups: a column equals what outer rows have.
fn is_key(condition: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else {
        return false;
    };
    let is_column = |expr: &Expr| match expr {
        Expr::Cast(cast) => matches!(cast.expr.as_ref(), Expr::Column(_)),
        other => matches!(other, Expr::Column(_)),
    };
    !has_subquery(condition)
        && (is_column(left) && !right.any_column_refs()
            || is_column(right) && !left.any_column_refs())
}
