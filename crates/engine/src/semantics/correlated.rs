//! Subqueries that look at the outer row, and those among the outputs: joins with what they find.
//!
//! The planner knows what an aggregate finds by equalities, and conditions of EXISTS and IN; it refuses the rest. Here a subquery's
//! plan is made one for the values of all outer rows ([`dependent`](super::dependent)), of which each has one row, or a mark:
//!
//! ```text
//! (SELECT count(*) FROM t WHERE t.at < o.at)         o LEFT JOIN count(*) of each value; where nothing was found, 0
//! (SELECT x FROM t WHERE t.k = o.k ORDER BY y LIMIT 1)  o LEFT JOIN first_value(x ORDER BY y) of each t.k
//! (SELECT x FROM t WHERE t.k = o.k)                  o LEFT JOIN x of each t.k, an error where there are two
//! SELECT EXISTS (SELECT .. FROM t WHERE t.k = o.k)   o MARK JOIN t.k
//! FROM o, LATERAL (SELECT .. LIMIT 3)                o JOIN the first three of each value
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, plan_err};
use datafusion::functions_aggregate::count::count_all;
use datafusion::functions_aggregate::first_last::first_value;
use datafusion::functions_aggregate::min_max::min;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, ExprSchemable, FetchType, Join, JoinType, Limit,
    LogicalPlan, LogicalPlanBuilder, Operator, SkipType, Sort, SortExpr, lit, not,
};

use super::dependent::{
    Planned, Refused, Values, columns_of, renamed, through, with_default, with_filter,
};
use super::outer::{asked_by, conditions_of, has_subquery, may_differ, subquery_of};
use super::{not_in, only};

/// Turns such subqueries of a WHERE, a SELECT, an aggregate, an ORDER BY or a FROM into joins.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let rewritten = match &plan {
        LogicalPlan::Filter(filter)
            if is_ours(&filter.predicate, Place::Condition, &filter.input) =>
        {
            let conditions = split_conjunction_owned(filter.predicate.clone());
            let (asking, plain): (Vec<_>, Vec<_>) = conditions.into_iter().partition(has_subquery);
            let outer = with_filter(filter.input.as_ref().clone(), plain)?;
            let columns = columns_of(&outer);
            joined(outer, &asking, Place::Condition)?
                .map(|(joined, asking)| {
                    let rows = LogicalPlanBuilder::from(with_filter(joined, asking)?);
                    rows.project(columns)?.build()
                })
                .transpose()?
        }
        LogicalPlan::Projection(projection)
            if any_is_ours(&projection.expr, Place::Output, &projection.input) =>
        {
            joined(projection.input.as_ref().clone(), &projection.expr, Place::Output)?
                .map(|(joined, exprs)| {
                    let named = renamed(exprs, projection.schema.columns());
                    LogicalPlanBuilder::from(joined).project(named)?.build()
                })
                .transpose()?
        }
        LogicalPlan::Aggregate(aggregate)
            if any_is_ours(&aggregate.group_expr, Place::Other, &aggregate.input)
                || any_is_ours(&aggregate.aggr_expr, Place::Other, &aggregate.input) =>
        {
            let exprs = [aggregate.group_expr.as_slice(), &aggregate.aggr_expr].concat();
            joined(aggregate.input.as_ref().clone(), &exprs, Place::Other)?
                .map(|(joined, made)| aggregate_of(aggregate, joined, &exprs, made))
                .transpose()?
        }
        LogicalPlan::Sort(sort)
            if sort.expr.iter().any(|sorted| is_ours(&sorted.expr, Place::Other, &sort.input)) =>
        {
            let exprs: Vec<Expr> = sort.expr.iter().map(|sort| sort.expr.clone()).collect();
            joined(with_asked(&sort.input, &exprs)?, &exprs, Place::Other)?
                .map(|(joined, made)| sort_of(sort, joined, made))
                .transpose()?
        }
        LogicalPlan::Join(join) => lateral(join)?,
        _ => None,
    };
    Ok(rewritten.map_or_else(|| Transformed::no(plan), Transformed::yes))
}

/// Where a subquery stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a WHERE or HAVING: the planner joins what EXISTS and IN find.
    Condition,
    Output,
    /// Among groups, in aggregates and orders: the planner joins nothing.
    Other,
}

fn aggregate_of(
    aggregate: &Aggregate,
    rows: LogicalPlan,
    before: &[Expr],
    made: Vec<Expr>,
) -> Result<LogicalPlan> {
    let named = before.iter().zip(made).map(|(before, expr)| {
        let name = before.schema_name().to_string();
        expr.alias_if_changed(name)
    });
    let mut groups = named.collect::<Result<Vec<_>>>()?;
    let calls = groups.split_off(aggregate.group_expr.len());
    Aggregate::try_new(Arc::new(rows), groups, calls).map(LogicalPlan::Aggregate)
}

fn sort_of(sort: &Sort, rows: LogicalPlan, made: Vec<Expr>) -> Result<LogicalPlan> {
    let exprs = sort.expr.iter().zip(made);
    let exprs = exprs.map(|(sort, expr)| SortExpr { expr, ..sort.clone() });
    let sorted = LogicalPlanBuilder::from(rows).sort_with_limit(exprs, sort.fetch)?;
    sorted.project(columns_of(&sort.input))?.build()
}

/// What is to be sorted, with the columns that subqueries ask of the rows that its outputs are made of.
fn with_asked(rows: &LogicalPlan, exprs: &[Expr]) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(projection) = rows else { return Ok(rows.clone()) };
    let mut outputs = projection.expr.clone();
    for expr in exprs {
        expr.apply(|part| {
            let asked = subquery_of(part).map(asked_by).transpose()?.unwrap_or_default();
            let lacking = asked.into_iter().filter(|column| {
                !rows.schema().has_column(column) && projection.input.schema().has_column(column)
            });
            outputs.extend(lacking.map(Expr::Column));
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    let mut seen = HashSet::new();
    outputs.retain(|expr| seen.insert(expr.clone()));
    LogicalPlanBuilder::from(Arc::clone(&projection.input)).project(outputs)?.build()
}

fn any_is_ours(exprs: &[Expr], place: Place, outer: &LogicalPlan) -> bool {
    exprs.iter().any(|expr| is_ours(expr, place, outer))
}

fn is_ours(expr: &Expr, place: Place, outer: &LogicalPlan) -> bool {
    expr.exists(|part| Ok(is_ours_itself(part, place, outer))).unwrap_or(false)
}

/// Whether an expression is a subquery that the planner does not join with the rows at whose place it stands.
fn is_ours_itself(part: &Expr, place: Place, outer: &LogicalPlan) -> bool {
    let Some(plan) = subquery_of(part) else { return false };
    let Ok(asked) = asked_by(plan) else { return false };
    // It may look at the rows of a query further out.
    let looks_further = asked.iter().any(|column| !outer.schema().has_column(column));
    match part {
        Expr::ScalarSubquery(_) => {
            !asked.is_empty() && (place == Place::Other || looks_further || !is_known(plan))
        }
        Expr::Exists(_) | Expr::InSubquery(_) if place == Place::Condition => {
            !asked.is_empty() && (looks_further || is_beyond(plan))
        }
        Expr::Exists(_) | Expr::InSubquery(_) => true,
        _ => false,
    }
}

/// The outer rows with what the subqueries of expressions find for them, and the expressions, which ask for that. `None`: none
/// was one of ours.
fn joined(
    outer: LogicalPlan,
    exprs: &[Expr],
    place: Place,
) -> Result<Option<(LogicalPlan, Vec<Expr>)>> {
    let mut with = outer.clone();
    let mut is_any = false;
    let mut made = Vec::new();
    for expr in exprs {
        let expr =
            expr.clone().transform_up(|part| match is_ours_itself(&part, place, &outer) {
                true => as_exists(part, outer.schema()),
                false => Ok(Transformed::no(part)),
            })?;
        is_any |= expr.transformed;
        let replaced = expr.data.transform_up(|part| {
            if !is_ours_itself(&part, place, &outer) {
                return Ok(Transformed::no(part));
            }
            match join(&part, &outer, &with) {
                Ok((joined, value)) => {
                    is_any = true;
                    with = joined;
                    Ok(Transformed::yes(value))
                }
                Err(Refused::Other) => Ok(Transformed::no(part)),
                Err(Refused::Failed(error)) => Err(error),
            }
        })?;
        made.push(replaced.data);
    }
    Ok(is_any.then_some((with, made)))
}

/// IN as conditions of EXISTS; EXISTS that does not look outside as a number.
fn as_exists(part: Expr, outer: &DFSchema) -> Result<Transformed<Expr>> {
    match part {
        Expr::InSubquery(is_in) => not_in::as_exists(&is_in, outer).map(Transformed::yes),
        Expr::Exists(exists) if asked_by(&exists.subquery.subquery)?.is_empty() => {
            let found = not_in::exists(&exists.subquery, None)?;
            Ok(Transformed::yes(if exists.negated { not(found) } else { found }))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Outer rows `with` what was found for them already, and with what a subquery finds for them, and its value there.
fn join(part: &Expr, outer: &LogicalPlan, with: &LogicalPlan) -> Planned<(LogicalPlan, Expr)> {
    let plan = subquery_of(part).ok_or(Refused::Other)?;
    let values = Values::of(plan, outer, with)?;
    let (found, join_type, value) = match part {
        Expr::ScalarSubquery(_) => {
            let one = One::of(plan)?;
            let (found, mut made) = one_for_each(&one, plan, &values)?;
            (found, JoinType::Left, made.pop().ok_or(Refused::Other)?)
        }
        Expr::Exists(exists) => {
            let found = values.for_all(without_order(plan))?;
            let (found, mark) = match values.outer().is_empty() {
                true => counted(found, &values)?,
                false => {
                    let keys = values.keys().into_iter().map(Expr::Column);
                    let keys = renamed(keys, values.found_keys());
                    let found = LogicalPlanBuilder::from(found).project(keys)?.build()?;
                    (found, Expr::Column(Column::new(Some(values.found()), "mark")))
                }
            };
            (found, JoinType::LeftMark, if exists.negated { not(mark) } else { mark })
        }
        _ => return Err(Refused::Other),
    };
    may_be_read_twice(&values, outer)?;
    let with = LogicalPlanBuilder::from(with.clone());
    let keys = (values.outer().to_vec(), values.found_keys());
    let joined = match keys.0.is_empty() {
        // One row for all.
        true => with.cross_join(found)?,
        false => with.join_detailed(found, join_type, keys, None, values.null_equality())?,
    };
    Ok((joined.build()?, value))
}

/// How many rows there are, in one row, and whether there are any.
fn counted(rows: LogicalPlan, values: &Values) -> Result<(LogicalPlan, Expr)> {
    let count = Column::new(Some(values.found()), "count");
    let counted = LogicalPlanBuilder::from(rows).aggregate(Vec::<Expr>::new(), [count_all()])?;
    let made = columns_of(&counted.clone().build()?);
    let counted = counted.project(renamed(made, vec![count.clone()]))?;
    Ok((counted.build()?, Expr::Column(count).gt(lit(0i64))))
}

fn may_be_read_twice(values: &Values, outer: &LogicalPlan) -> Result<()> {
    if values.is_used() && may_differ(outer)? {
        return plan_err!(
            "a subquery that looks at the outer row by more than equalities reads the outer rows twice, and they may be others \
             then: they come of a LIMIT, a window, random values or sums of floats\nhint: put them into a table first: create \
             table .. as"
        );
    }
    Ok(())
}

/// What a subquery of one row finds for each of the values, and what is made of it for an outer row.
fn one_for_each(
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
    let value = |nth: usize| Column::new(Some(values.found()), format!("value_{nth}"));
    let names = values.found_keys().into_iter().chain((0..calls.len()).map(value)).collect();
    let made = values.keys().into_iter().chain(calls).map(Expr::Column);
    let found = LogicalPlanBuilder::from(grouped).project(renamed(made, names))?.build()?;

    let value = |nth: usize| Expr::Column(value(nth));
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

fn is_comparable(data_type: &datafusion::arrow::datatypes::DataType) -> bool {
    data_type.is_numeric() || data_type.is_temporal() || data_type.is_string()
}

/// A subquery of one row.
struct One<'a> {
    kind: Kind<'a>,
    /// Its columns, made of those of what the kind has.
    outputs: Vec<Expr>,
}

enum Kind<'a> {
    /// Without groups: it has one row.
    Aggregate(&'a Aggregate),
    /// The first row of an order, or any.
    First { rows: &'a LogicalPlan, order: &'a [SortExpr] },
    /// As many as it has: more than one are an error.
    Only,
}

impl<'a> One<'a> {
    fn of(plan: &'a LogicalPlan) -> Result<Self> {
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
fn without_order(mut plan: &LogicalPlan) -> &LogicalPlan {
    while let LogicalPlan::Sort(sort) = plan
        && sort.fetch.is_none()
    {
        plan = &sort.input;
    }
    plan
}

/// Whether the planner joins what a subquery of one value finds: an aggregate without groups of rows that equalities with columns
/// choose.
fn is_known(plan: &LogicalPlan) -> bool {
    let Ok(One { kind: Kind::Aggregate(aggregate), outputs }) = One::of(plan) else {
        return false;
    };
    let (conditions, rows) = conditions_of(&aggregate.input);
    let asking = |condition: &&Expr| condition.contains_outer() || has_subquery(condition);
    !outputs.iter().any(Expr::contains_outer)
        && !aggregate.aggr_expr.iter().any(Expr::contains_outer)
        && conditions.iter().filter(asking).all(is_key)
        && asked_by(rows).is_ok_and(|asked| asked.is_empty())
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

/// A join with a LATERAL subquery: the second side looks at the first.
fn lateral(join: &Join) -> Result<Option<LogicalPlan>> {
    let asked = asked_by(&join.right)?;
    let is_lateral = asked.iter().any(|column| join.left.schema().has_column(column));
    if !is_lateral || !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Ok(None);
    }
    let rows = join.right.as_ref().clone().transform_down(|node| match node {
        LogicalPlan::Subquery(subquery) => {
            let plan = Arc::unwrap_or_clone(subquery.subquery);
            Ok(Transformed::new(plan, true, TreeNodeRecursion::Stop))
        }
        LogicalPlan::SubqueryAlias(_) => Ok(Transformed::no(node)),
        other => Ok(Transformed::new(other, false, TreeNodeRecursion::Stop)),
    })?;
    let rows = rows.data;
    match lateral_join(join, &rows) {
        Ok(plan) => Ok(Some(plan)),
        Err(Refused::Other) => Ok(None),
        Err(Refused::Failed(error)) => Err(error),
    }
}

fn lateral_join(join: &Join, rows: &LogicalPlan) -> Planned<LogicalPlan> {
    let values = Values::of(rows, &join.left, &join.left)?;
    let left = LogicalPlanBuilder::from(Arc::clone(&join.left));
    let equal = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
    let condition = conjunction(equal.chain(join.filter.clone()));
    let is_free = condition.as_ref().is_none_or(|condition| *condition == lit(true));
    let one = Some(One::of(rows)?);
    let one = one.filter(|one| is_free && matches!(one.kind, Kind::Aggregate(_)));
    let (joined, outputs) = match one {
        // There is a row for every outer row.
        Some(one) => {
            let (found, made) = one_for_each(&one, rows, &values)?;
            let keys = (values.outer().to_vec(), values.found_keys());
            let nulls = values.null_equality();
            let joined = left.join_detailed(found, JoinType::Left, keys, None, nulls)?;
            (joined, columns_of(&join.left).into_iter().chain(made).collect())
        }
        None => {
            let found = values.for_all(rows)?;
            let keys = (values.outer().to_vec(), values.keys());
            let nulls = values.null_equality();
            let joined = left.join_detailed(found, join.join_type, keys, condition, nulls)?;
            (joined, columns_of(&LogicalPlan::Join(join.clone())))
        }
    };
    may_be_read_twice(&values, &join.left)?;
    Ok(joined.project(renamed(outputs, join.schema.columns()))?.build()?)
}

/// Whether a plan has what the planner does not pull up.
fn is_beyond(plan: &LogicalPlan) -> bool {
    let is_beyond = |node: &LogicalPlan| {
        Ok(match node {
            LogicalPlan::Limit(_) | LogicalPlan::Window(_) | LogicalPlan::Union(_) => true,
            LogicalPlan::Distinct(distinct) => matches!(distinct, Distinct::All(_)),
            // Without groups it has a row whatever was found.
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
                !asked_by(node)?.is_empty()
            }
            LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => {
                node.contains_outer_reference()
            }
            LogicalPlan::Join(_) => !asked_by(node)?.is_empty(),
            _ => false,
        })
    };
    plan.exists(is_beyond).unwrap_or(false)
}
