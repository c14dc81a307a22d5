//! Subqueries that look at the outer row, and those among the outputs: joins with what they find.
//!
//! ```sql
//! SELECT a, (SELECT count(*) FROM t AS u WHERE u.a < t.a) FROM t
//! ```
//!
//! - DataFusion: The statement is refused, as are such subqueries without an aggregate or with LIMIT, EXISTS among the
//!   outputs, and LATERAL with LIMIT; right is an answer.
//! - Upstream: apache/datafusion#5492, apache/datafusion#14554, apache/datafusion#16137 and, of LATERAL,
//!   apache/datafusion#10048.
//! - This can go when its canary finds the fault mended.
//!
//! The planner knows what an aggregate finds by equalities, and conditions of EXISTS and IN; it refuses the rest. Here a
//! subquery is planned once for the values of all outer rows ([`dependent`]); each outer row finds one row, or a mark:
//!
//! ```text
//! (SELECT count(*) FROM t WHERE t.at < o.at)         o LEFT JOIN count(*) of each value; where nothing was found, 0
//! (SELECT x FROM t WHERE t.k = o.k ORDER BY y LIMIT 1)  o LEFT JOIN first_value(x ORDER BY y) of each t.k
//! (SELECT x FROM t WHERE t.k = o.k)                  o LEFT JOIN x of each t.k, an error where there are two
//! SELECT EXISTS (SELECT .. FROM t WHERE t.k = o.k)   o MARK JOIN t.k
//! FROM o, LATERAL (SELECT .. LIMIT 3)                o JOIN the first three of each value
//! ```

mod dependent;
mod one;
mod only;
pub(super) mod outer;
mod stable;

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::functions_aggregate::count::count_all;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Sort, SortExpr,
    lit, not,
};
use datafusion::optimizer::AnalyzerRule;

use self::dependent::{Planned, Refused, Values};
use self::one::{Kind, One, is_asked_by_keys, is_known, one_for_each, without_order};
use self::outer::{Numbers, asked_by, has_subquery, subquery_of};
use super::order_keys::window_of;
use super::{in_subqueries, unnested_lists};
use crate::plans::{columns_of, renamed, with_filter};

/// Turns such subqueries of a WHERE, a SELECT, an aggregate, a window, an ORDER BY, an ON or a FROM into joins.
#[derive(Debug)]
pub struct Subqueries;

impl AnalyzerRule for Subqueries {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let numbers = Numbers::after(&plan)?;
        plan.transform_up_with_subqueries(|node| rewrite(node, &numbers)).map(|t| t.data)
    }

    fn name(&self) -> &str {
        "headrace_correlated_subqueries"
    }
}

fn rewrite(plan: LogicalPlan, numbers: &Numbers) -> Result<Transformed<LogicalPlan>> {
    let rewritten = match &plan {
        LogicalPlan::Filter(filter)
            if is_ours(&filter.predicate, Place::Condition, &filter.input) =>
        {
            let conditions = split_conjunction_owned(filter.predicate.clone());
            let (asking, plain): (Vec<_>, Vec<_>) = conditions.into_iter().partition(has_subquery);
            let outer = with_filter(filter.input.as_ref().clone(), plain)?;
            let columns = columns_of(&outer);
            joined(outer, &asking, Place::Condition, numbers)?
                .map(|(joined, asking)| {
                    let rows = LogicalPlanBuilder::from(with_filter(joined, asking)?);
                    rows.project(columns)?.build()
                })
                .transpose()?
        }
        LogicalPlan::Projection(projection)
            if any_is_ours(&projection.expr, Place::Output, &projection.input) =>
        {
            joined(projection.input.as_ref().clone(), &projection.expr, Place::Output, numbers)?
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
            joined(aggregate.input.as_ref().clone(), &exprs, Place::Other, numbers)?
                .map(|(joined, made)| aggregate_of(aggregate, joined, &exprs, made))
                .transpose()?
        }
        LogicalPlan::Sort(sort)
            if sort.expr.iter().any(|sorted| is_ours(&sorted.expr, Place::Other, &sort.input)) =>
        {
            let exprs: Vec<Expr> = sort.expr.iter().map(|sort| sort.expr.clone()).collect();
            joined(with_asked(&sort.input, &exprs)?, &exprs, Place::Other, numbers)?
                .map(|(joined, made)| sort_of(sort, joined, made))
                .transpose()?
        }
        LogicalPlan::Window(window)
            if any_is_ours(&window.window_expr, Place::Other, &window.input) =>
        {
            joined(window.input.as_ref().clone(), &window.window_expr, Place::Other, numbers)?
                .map(|(joined, made)| window_of(window, joined, made))
                .transpose()?
        }
        LogicalPlan::Join(join) => match conditions_asked(join, numbers)? {
            Some(joined) => Some(joined),
            None => lateral(join, numbers)?,
        },
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

/// A join whose ON asks subqueries, which are joined with the side that they look at, or asked of the rows of an inner join.
fn conditions_asked(join: &Join, numbers: &Numbers) -> Result<Option<LogicalPlan>> {
    let Some(filter) = join.filter.as_ref().filter(|filter| has_subquery(filter)) else {
        return Ok(None);
    };
    let conditions = split_conjunction_owned(filter.clone());
    let (asking, plain): (Vec<_>, Vec<_>) = conditions.into_iter().partition(has_subquery);
    if join.join_type == JoinType::Inner {
        let joined = Join { filter: conjunction(plain), ..join.clone() };
        let asked = with_filter(LogicalPlan::Join(joined), asking)?;
        return rewrite(asked, numbers).map(|asked| Some(asked.data));
    }
    let (mut left, mut right) = (join.left.as_ref().clone(), join.right.as_ref().clone());
    let (mut conditions, mut is_any) = (plain, false);
    for condition in asking {
        let mut asked = Vec::new();
        condition.apply(|part| {
            asked.extend(subquery_of(part).map(asked_by).transpose()?.unwrap_or_default());
            Ok(TreeNodeRecursion::Continue)
        })?;
        let is_all_of = |side: &LogicalPlan| asked.iter().all(|c| side.schema().has_column(c));
        let side = match (is_all_of(&join.right), is_all_of(&join.left)) {
            (true, _) => &mut right,
            (_, true) => &mut left,
            _ => return Ok(None),
        };
        let condition = vec![condition];
        match joined(side.clone(), &condition, Place::Other, numbers)? {
            Some((with, made)) => {
                (*side, is_any) = (with, true);
                conditions.extend(made);
            }
            None => conditions.extend(condition),
        }
    }
    if !is_any {
        return Ok(None);
    }
    let joined = LogicalPlan::Join(Join::try_new(
        Arc::new(left),
        Arc::new(right),
        join.on.clone(),
        conjunction(conditions),
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?);
    let columns = columns_of(&LogicalPlan::Join(join.clone()));
    LogicalPlanBuilder::from(joined).project(columns)?.build().map(Some)
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
    numbers: &Numbers,
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
            match join(&part, &outer, &with, numbers) {
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
        Expr::InSubquery(is_in) => in_subqueries::as_exists(&is_in, outer).map(Transformed::yes),
        Expr::Exists(exists) if asked_by(&exists.subquery.subquery)?.is_empty() => {
            let found = in_subqueries::exists(&exists.subquery, None)?;
            Ok(Transformed::yes(if exists.negated { not(found) } else { found }))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Outer rows `with` what was found for them already, and with what a subquery finds for them, and its value there.
fn join(
    part: &Expr,
    outer: &LogicalPlan,
    with: &LogicalPlan,
    numbers: &Numbers,
) -> Planned<(LogicalPlan, Expr)> {
    let plan = subquery_of(part).ok_or(Refused::Other)?;
    let values = Values::of(plan, outer, numbers)?;
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
                    (found, Expr::Column(values.found("mark")))
                }
            };
            (found, JoinType::LeftMark, if exists.negated { not(mark) } else { mark })
        }
        _ => return Err(Refused::Other),
    };
    may_be_read_twice(&values)?;
    let columns = columns_of(with).into_iter();
    let with = LogicalPlanBuilder::from(with.clone());
    let keys = (values.outer().to_vec(), values.found_keys());
    let joined = match keys.0.is_empty() {
        // One row for all.
        true => with.cross_join(found)?,
        false => with.join_detailed(found, join_type, keys, None, values.null_equality())?,
    };
    let joined = match join_type {
        JoinType::LeftMark if !values.outer().is_empty() => {
            let mark = renamed([Expr::Column(values.mark())], vec![values.found("mark")]);
            joined.project(columns.chain(mark))?
        }
        _ => joined,
    };
    Ok((joined.build()?, value))
}

/// How many rows there are, in one row, and whether there are any.
fn counted(rows: LogicalPlan, values: &Values) -> Result<(LogicalPlan, Expr)> {
    let count = values.found("count");
    let counted = LogicalPlanBuilder::from(rows).aggregate(Vec::<Expr>::new(), [count_all()])?;
    let made = columns_of(&counted.clone().build()?);
    let counted = counted.project(renamed(made, vec![count.clone()]))?;
    Ok((counted.build()?, Expr::Column(count).gt(lit(0i64))))
}

fn may_be_read_twice(values: &Values) -> Result<()> {
    if values.is_used() && values.may_differ()? {
        return plan_err!(
            "a subquery that looks at the outer row by more than equalities reads the outer rows twice, and they may be others \
             then: they come of a LIMIT, a window, random values or sums of floats\nhint: put them into a table first: create \
             table .. as"
        );
    }
    Ok(())
}

/// A join with a LATERAL subquery: the second side looks at the first.
fn lateral(join: &Join, numbers: &Numbers) -> Result<Option<LogicalPlan>> {
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
    if let Some(unnested) = unnested_lists::of_outer(join, &rows)? {
        return Ok(Some(unnested));
    }
    match lateral_join(join, &rows, numbers) {
        Ok(plan) => Ok(Some(plan)),
        Err(Refused::Other) => Ok(None),
        Err(Refused::Failed(error)) => Err(error),
    }
}

fn lateral_join(join: &Join, rows: &LogicalPlan, numbers: &Numbers) -> Planned<LogicalPlan> {
    let values = Values::of(rows, &join.left, numbers)?;
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
    may_be_read_twice(&values)?;
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
            LogicalPlan::Projection(_) => node.contains_outer_reference(),
            LogicalPlan::Aggregate(aggregate) => {
                node.contains_outer_reference()
                    || !aggregate.aggr_expr.is_empty() && !is_asked_by_keys(&aggregate.input)?
            }
            LogicalPlan::Join(_) | LogicalPlan::Unnest(_) | LogicalPlan::Values(_) => {
                !asked_by(node)?.is_empty()
            }
            _ => false,
        })
    };
    plan.exists(is_beyond).unwrap_or(false)
}
