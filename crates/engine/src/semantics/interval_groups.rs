//! Intervals are one group if they are equal: a day, and 24 hours.
//!
//! The planner's groups tell them apart. So rows are grouped by the length of an interval, and a group is called as its first
//! one. DISTINCT is groups by all columns.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::functions_aggregate::first_last::first_value;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder,
};

use super::order::{comparable, is_interval};
use crate::plans::{columns_of, map_expressions, renamed};

/// Groups by lengths.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let plan = match plan {
        LogicalPlan::Distinct(Distinct::All(rows))
            if rows.schema().fields().iter().any(|field| is_interval(field.data_type())) =>
        {
            let keys = columns_of(&rows);
            let grouped = LogicalPlanBuilder::from(rows).aggregate(keys, Vec::<Expr>::new())?;
            grouped.build()?
        }
        plan => plan,
    };
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
    let schema = Arc::clone(aggregate.input.schema());
    let counted = map_expressions(LogicalPlan::Aggregate(aggregate), |expr| {
        expr.transform_up(|part| match part {
            Expr::AggregateFunction(mut call)
                if call.params.distinct && call.func.name() == "count" =>
            {
                let mut changed = false;
                for argument in &mut call.params.args {
                    if is_interval(&argument.get_type(schema.as_ref())?) {
                        *argument = comparable(std::mem::take(argument));
                        changed = true;
                    }
                }
                let call = Expr::AggregateFunction(call);
                Ok(if changed { Transformed::yes(call) } else { Transformed::no(call) })
            }
            other => Ok(Transformed::no(other)),
        })
    })?;
    match counted.data {
        LogicalPlan::Aggregate(aggregate) => match grouped(&aggregate)? {
            Some(plan) => Ok(Transformed::yes(plan)),
            None if counted.transformed => Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate))),
            None => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
        },
        other => Ok(Transformed::yes(other)),
    }
}

/// An aggregate by the lengths of its keys that are intervals; `None` if none is.
fn grouped(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    if aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_))) {
        return Ok(None);
    }
    let schema = aggregate.input.schema();
    let mut calls = aggregate.aggr_expr.clone();
    let mut keys = Vec::new();
    // Where the outputs of the keys stand: among the keys, or behind the calls.
    let mut places = Vec::new();
    for (nth, key) in aggregate.group_expr.iter().enumerate() {
        if is_interval(&key.get_type(schema.as_ref())?) {
            let value = key.clone().unalias();
            keys.push(comparable(value.clone()));
            places.push(aggregate.group_expr.len() + calls.len());
            calls.push(first_value(value, Vec::new()).alias(format!("interval {nth}")));
        } else {
            keys.push(key.clone());
            places.push(nth);
        }
    }
    if calls.len() == aggregate.aggr_expr.len() {
        return Ok(None);
    }
    let count = keys.len();
    let rows = Aggregate::try_new(Arc::clone(&aggregate.input), keys, calls)?;
    let rows = LogicalPlan::Aggregate(rows);
    let made = columns_of(&rows);
    places.extend(count..count + aggregate.aggr_expr.len());
    let outputs = places.into_iter().map(|place| made[place].clone());
    let outputs = renamed(outputs, aggregate.schema.columns());
    Ok(Some(LogicalPlanBuilder::from(rows).project(outputs)?.build()?))
}
