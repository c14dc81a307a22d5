//! What a plan asks of outer rows, and whether those may be read twice.

use std::cell::Cell;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, WindowFrameUnits};

use super::only;

/// Whether a window has the same value for rows that its order does not tell apart, so that no order among them matters.
fn is_of_peers(call: &Expr) -> bool {
    let Expr::WindowFunction(call) = call.clone().unalias() else { return false };
    let (name, params) = (call.fun.name(), &call.params);
    let is_of_all =
        params.order_by.is_empty() || params.window_frame.units != WindowFrameUnits::Rows;
    match name {
        "rank" | "dense_rank" => true,
        "count" | "sum" | "min" | "max" | "bool_and" | "bool_or" => is_of_all,
        _ => false,
    }
}

/// Columns of outer rows that a plan asks for; those that a subquery in it asks of the plan's own rows are none of them.
pub fn asked_by(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    let mut add = |asked: Vec<Column>| {
        let new = |column: &Column| !columns.contains(column);
        let asked: Vec<Column> = asked.into_iter().filter(new).collect();
        columns.extend(asked);
    };
    let inputs = plan.inputs();
    for (nth, input) in inputs.iter().enumerate() {
        let mut asked = asked_by(input)?;
        // The second side of a join, if it is LATERAL.
        if nth > 0 && matches!(plan, LogicalPlan::Join(_)) {
            asked.retain(|column| !inputs[0].schema().has_column(column));
        }
        add(asked);
    }
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            if let Expr::OuterReferenceColumn(_, column) = part {
                add(vec![column.clone()]);
            }
            if let Some(subquery) = subquery_of(part) {
                let mut asked = asked_by(subquery)?;
                asked.retain(|c| !inputs.iter().any(|input| input.schema().has_column(c)));
                add(asked);
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(columns)
}

/// The plan of an expression that is a subquery.
pub fn subquery_of(expr: &Expr) -> Option<&LogicalPlan> {
    match expr {
        Expr::ScalarSubquery(subquery) => Some(&subquery.subquery),
        Expr::Exists(exists) => Some(&exists.subquery.subquery),
        Expr::InSubquery(is_in) => Some(&is_in.subquery.subquery),
        Expr::SetComparison(comparison) => Some(&comparison.subquery.subquery),
        _ => None,
    }
}

/// Whether there is a subquery in an expression.
pub fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|part| Ok(subquery_of(part).is_some())).unwrap_or(true)
}

/// The conditions of the filters at the top of a plan, and what they filter.
pub fn conditions_of(mut plan: &LogicalPlan) -> (Vec<Expr>, &LogicalPlan) {
    let mut conditions = Vec::new();
    while let LogicalPlan::Filter(filter) = plan {
        conditions.extend(split_conjunction_owned(filter.predicate.clone()));
        plan = &filter.input;
    }
    (conditions, plan)
}

/// Whether a plan may have other rows when it is asked again: of chance, of a number that is not all, of an order that is not
/// told, or of sums of floats, which depend on the order of rows.
pub fn may_differ(plan: &LogicalPlan) -> Result<bool> {
    let is_chance = |part: &Expr| Ok(part.is_volatile_node() && !only::is_only(part));
    plan.exists(|node| {
        let may_differ = match node {
            LogicalPlan::Limit(_) => true,
            LogicalPlan::Window(window) => {
                let own = window.schema.fields().iter().skip(window.input.schema().fields().len());
                let is_float = own.into_iter().any(|field| field.data_type().is_floating());
                is_float || !window.window_expr.iter().all(is_of_peers)
            }
            LogicalPlan::Distinct(distinct) => matches!(distinct, Distinct::On(_)),
            LogicalPlan::Aggregate(aggregate) => {
                let made = aggregate.schema.fields().iter().skip(aggregate.group_expr.len());
                made.into_iter().any(|field| field.data_type().is_floating())
            }
            _ => false,
        };
        let exprs = node.expressions();
        Ok(may_differ || exprs.iter().any(|expr| expr.exists(is_chance).unwrap_or(true)))
    })
}

/// Numbers for what is made of a statement's subqueries, so that no two things have one name, at whatever depth they meet.
pub struct Numbers(Cell<usize>);

impl Numbers {
    /// Numbers that a plan, which may have been changed before, does not have yet.
    pub fn after(plan: &LogicalPlan) -> Result<Self> {
        let mut highest = 0;
        plan.apply_with_subqueries(|node| {
            let tables = node.schema().iter().filter_map(|(table, _)| table);
            let numbers = tables.filter_map(|table| {
                let name = table.table();
                let number = name.strip_prefix("__values_").or(name.strip_prefix("__found_"))?;
                number.split('_').next()?.parse().ok()
            });
            highest = numbers.fold(highest, usize::max);
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Self(Cell::new(highest)))
    }

    /// The next one.
    pub fn next(&self) -> usize {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}
