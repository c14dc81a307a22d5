//! An aggregate over what a subquery finds for the outer row by other conditions than equality:
//! `(SELECT count(*) FROM t WHERE t.at < o.at)`.
//!
//! The planner turns an equality into a key of groups, and refuses the rest. Here the values that the condition asks of outer rows are
//! made a table, joined with the subquery's rows, and the groups of that are joined with the outer rows ("Unnesting
//! Arbitrary Queries", Neumann and Kemper, 2015):
//!
//! ```text
//! values = SELECT DISTINCT o.at FROM o
//! found  = SELECT values.at, count(*) FROM values JOIN t ON t.at < values.at GROUP BY values.at
//! o LEFT JOIN found ON o.at IS NOT DISTINCT FROM found.at, where nothing was found count(*) is 0
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, NullEquality, Result, TableReference};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, JoinType, LogicalPlan, LogicalPlanBuilder,
    Operator, Subquery, lit,
};

/// Turns such subqueries of a WHERE, a SELECT or an aggregate into joins.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Filter(filter) if has_open(&filter.predicate) => {
            let conditions = split_conjunction_owned(filter.predicate.clone());
            let (mut asking, plain): (Vec<_>, Vec<_>) =
                conditions.into_iter().partition(has_subquery);
            let mut outer = LogicalPlanBuilder::from(Arc::clone(&filter.input));
            if let Some(plain) = conjunction(plain) {
                outer = outer.filter(plain)?;
            }
            let columns = outer.schema().columns();
            let Some(joined) = joined(outer.build()?, &mut asking)? else {
                return Ok(Transformed::no(LogicalPlan::Filter(filter)));
            };
            let rows = LogicalPlanBuilder::from(joined)
                .filter(conjunction(asking).unwrap_or(lit(true)))?;
            rows.project(columns.into_iter().map(Expr::Column))?.build().map(Transformed::yes)
        }
        LogicalPlan::Projection(projection) if projection.expr.iter().any(has_open) => {
            let mut exprs = projection.expr.clone();
            let Some(joined) = joined(projection.input.as_ref().clone(), &mut exprs)? else {
                return Ok(Transformed::no(LogicalPlan::Projection(projection)));
            };
            let named =
                exprs.into_iter().zip(projection.schema.iter()).map(|(expr, (table, field))| {
                    match expr {
                        column @ Expr::Column(_) => column,
                        other => other.unalias().alias_qualified(table.cloned(), field.name()),
                    }
                });
            LogicalPlanBuilder::from(joined).project(named)?.build().map(Transformed::yes)
        }
        LogicalPlan::Aggregate(aggregate)
            if aggregate.group_expr.iter().chain(&aggregate.aggr_expr).any(has_open) =>
        {
            let mut exprs = [aggregate.group_expr.as_slice(), &aggregate.aggr_expr].concat();
            let Some(joined) = joined(aggregate.input.as_ref().clone(), &mut exprs)? else {
                return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
            };
            let before = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
            let mut groups: Vec<Expr> = before
                .zip(exprs)
                .map(|(before, expr)| expr.alias_if_changed(before.schema_name().to_string()))
                .collect::<Result<_>>()?;
            let calls = groups.split_off(aggregate.group_expr.len());
            let aggregate = Aggregate::try_new(Arc::new(joined), groups, calls)?;
            Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn has_subquery(expr: &Expr) -> bool {
    let is_one = |part: &Expr| {
        Ok(matches!(
            part,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
        ))
    };
    expr.exists(is_one).unwrap_or(true)
}

fn has_open(expr: &Expr) -> bool {
    let is_open = |part: &Expr| {
        Ok(matches!(part, Expr::ScalarSubquery(subquery) if Open::of(subquery).is_some()))
    };
    expr.exists(is_open).unwrap_or(false)
}

/// The outer rows with what the subqueries of expressions find for them; the expressions then ask for that. `None`: none
/// was one of ours.
fn joined(mut outer: LogicalPlan, exprs: &mut [Expr]) -> Result<Option<LogicalPlan>> {
    if differs_when_asked_again(&outer)? {
        return Ok(None);
    }
    let mut count = 0;
    for expr in exprs {
        let replaced = std::mem::take(expr).transform_up(|part| {
            let Expr::ScalarSubquery(subquery) = &part else { return Ok(Transformed::no(part)) };
            let open = Open::of(subquery)
                .filter(|open| open.outer.iter().all(|column| outer.schema().has_column(column)));
            let Some(open) = open else { return Ok(Transformed::no(part)) };
            count += 1;
            let (with, value) = open.join(outer.clone(), count)?;
            outer = with;
            Ok(Transformed::yes(value))
        })?;
        *expr = replaced.data;
    }
    Ok((count > 0).then_some(outer))
}

/// Whether a plan may have other rows the second time: the outer rows are read once for their values, and once for themselves.
fn differs_when_asked_again(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        let is_chance = node.expressions().iter().any(Expr::is_volatile);
        Ok(is_chance || matches!(node, LogicalPlan::Limit(_)))
    })
}

/// A subquery: an aggregate without groups, over rows that outer ones choose.
struct Open<'a> {
    /// What is above the aggregate, from above.
    above: Vec<&'a LogicalPlan>,
    aggregate: &'a Aggregate,
    rows: Arc<LogicalPlan>,
    /// Conditions that do not look outside.
    own: Vec<Expr>,
    /// Those that do.
    asking: Vec<Expr>,
    /// Columns of outer rows that they ask for.
    outer: Vec<Column>,
}

impl<'a> Open<'a> {
    /// `None`: the planner knows what to do, or nobody does.
    fn of(subquery: &'a Subquery) -> Option<Self> {
        let (mut above, mut plan) = (Vec::new(), subquery.subquery.as_ref());
        let aggregate = loop {
            match plan {
                LogicalPlan::Projection(projection) => {
                    above.push(plan);
                    plan = &projection.input;
                }
                LogicalPlan::SubqueryAlias(alias) => {
                    above.push(plan);
                    plan = &alias.input;
                }
                LogicalPlan::Aggregate(aggregate) => break aggregate,
                _ => return None,
            }
        };
        let mut conditions = Vec::new();
        let mut rows = &aggregate.input;
        while let LogicalPlan::Filter(filter) = rows.as_ref() {
            conditions.extend(split_conjunction_owned(filter.predicate.clone()));
            rows = &filter.input;
        }
        let (asking, own): (Vec<_>, Vec<_>) =
            conditions.into_iter().partition(Expr::contains_outer);
        let is_plain = aggregate.group_expr.is_empty()
            && !asking.iter().any(has_subquery)
            && !asking.iter().all(is_key)
            && !above.iter().any(|plan| plan.contains_outer_reference())
            && !aggregate.aggr_expr.iter().any(Expr::contains_outer)
            && !looks_outside(rows);
        if !is_plain {
            return None;
        }
        let mut outer = Vec::new();
        for condition in &asking {
            condition
                .apply(|part| {
                    if let Expr::OuterReferenceColumn(_, column) = part
                        && !outer.contains(column)
                    {
                        outer.push(column.clone());
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
                .ok()?;
        }
        Some(Self { above, aggregate, rows: Arc::clone(rows), own, asking, outer })
    }

    /// Outer rows with what it finds for them, and its value there.
    fn join(self, outer: LogicalPlan, number: usize) -> Result<(LogicalPlan, Expr)> {
        let values = format!("__values_{number}");
        let found = TableReference::bare(format!("__found_{number}"));
        let key = |table: &TableReference, nth: usize| {
            Column::new(Some(table.clone()), format!("key_{nth}"))
        };
        let values_table = TableReference::bare(values.clone());

        let keys = self.outer.iter().enumerate();
        let keys =
            keys.map(|(nth, column)| Expr::Column(column.clone()).alias(format!("key_{nth}")));
        let asked = LogicalPlanBuilder::from(outer.clone())
            .project(keys)?
            .distinct()?
            .alias(values.as_str())?;

        let mut rows = LogicalPlanBuilder::from(self.rows);
        if let Some(own) = conjunction(self.own) {
            rows = rows.filter(own)?;
        }
        let of_values = |condition: Expr| {
            condition.transform_up(|part| match part {
                Expr::OuterReferenceColumn(_, column) => {
                    let nth = self.outer.iter().position(|c| *c == column).unwrap_or_default();
                    Ok(Transformed::yes(Expr::Column(key(&values_table, nth))))
                }
                other => Ok(Transformed::no(other)),
            })
        };
        let on = self.asking.into_iter().map(|condition| Ok(of_values(condition)?.data));
        let on = on.collect::<Result<Vec<_>>>()?;
        let groups = (0..self.outer.len()).map(|nth| Expr::Column(key(&values_table, nth)));
        let groups: Vec<Expr> = groups.collect();
        let grouped = asked
            .join_on(rows.build()?, JoinType::Inner, on)?
            .aggregate(groups.clone(), self.aggregate.aggr_expr.clone())?;

        let mut outputs: Vec<Expr> = groups
            .into_iter()
            .enumerate()
            .map(|(nth, group)| group.alias(format!("key_{nth}")))
            .collect();
        let mut values = Vec::new();
        for (nth, (column, call)) in
            self.aggregate.schema.columns().into_iter().zip(&self.aggregate.aggr_expr).enumerate()
        {
            let name = format!("value_{nth}");
            outputs.push(Expr::Column(column.clone()).alias(&name));
            let value = Expr::Column(Column::new(Some(found.clone()), name));
            values.push((column, with_default(value, call, self.aggregate)?));
        }
        let grouped = grouped.project(outputs)?.alias(found.clone())?.build()?;
        let right = (0..self.outer.len()).map(|nth| key(&found, nth)).collect::<Vec<_>>();
        let joined = LogicalPlanBuilder::from(outer).join_detailed(
            grouped,
            JoinType::Left,
            (self.outer, right),
            None,
            NullEquality::NullEqualsNull,
        )?;
        Ok((joined.build()?, value_above(&self.above, values)?))
    }
}

/// What the nodes above an aggregate make of its values: the first column of the uppermost.
fn value_above(above: &[&LogicalPlan], mut values: Vec<(Column, Expr)>) -> Result<Expr> {
    for plan in above.iter().rev() {
        let columns = plan.schema().columns();
        let exprs = match plan {
            LogicalPlan::Projection(projection) => {
                let of_values = |expr: &Expr| {
                    let expr = expr.clone().transform_up(|part| match &part {
                        Expr::Column(column) => {
                            let value = values.iter().find(|(name, _)| name == column);
                            Ok(value.map_or(Transformed::no(part.clone()), |(_, value)| {
                                Transformed::yes(value.clone())
                            }))
                        }
                        _ => Ok(Transformed::no(part)),
                    })?;
                    Ok(expr.data.unalias())
                };
                projection.expr.iter().map(of_values).collect::<Result<Vec<_>>>()?
            }
            _ => values.into_iter().map(|(_, value)| value).collect(),
        };
        values = columns.into_iter().zip(exprs).collect();
    }
    let first = values.into_iter().next();
    Ok(first.map_or_else(|| lit(true), |(_, value)| value))
}

/// The value of an aggregate where no row was found may be none, or a number.
fn with_default(value: Expr, call: &Expr, aggregate: &Aggregate) -> Result<Expr> {
    let Expr::AggregateFunction(function) = call.clone().unalias() else { return Ok(value) };
    let default = function.func.default_value(&call.get_type(aggregate.input.schema())?)?;
    Ok(if default.is_null() { value } else { coalesce(vec![value, lit(default)]) })
}

/// Whether a plan asks for columns of outer rows, or a subquery in it may.
fn looks_outside(plan: &LogicalPlan) -> bool {
    plan.exists(|node| {
        let asks = node.contains_outer_reference() || node.expressions().iter().any(has_subquery);
        Ok(asks)
    })
    .unwrap_or(true)
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
    is_column(left) && !right.any_column_refs() || is_column(right) && !left.any_column_refs()
}
