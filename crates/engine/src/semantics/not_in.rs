//! `x [NOT] IN (SELECT y ..)` where `x` or `y` may be NULL.
//!
//! `x IN s` is true where a row of `s` equals `x`; else NULL where `s` has a NULL, or `x` is one and `s` has a row; else false. The
//! planner says so only of NOT IN that stands alone or in a conjunction, of a subquery that does not look at the outer
//! row, and of an `x` that is no constant. Other ones become conditions of EXISTS, which it answers rightly:
//!
//! ```text
//! matched = EXISTS (s WHERE y = x)        open = EXISTS (s WHERE y IS NULL) OR x IS NULL AND EXISTS (s)
//!
//! x NOT IN s, of which only true matters (in a WHERE, below AND, OR and NOT):  NOT matched AND NOT open
//! x IN s anywhere else:  CASE WHEN matched THEN true WHEN open THEN NULL ELSE false END
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, Result, ScalarValue};
use datafusion::functions_aggregate::count::count_all;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
    lit, not, when,
};

/// Changes the condition of a WHERE.
pub fn rewrite(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Filter(filter) = plan else { return Ok(Transformed::no(plan)) };
    let Filter { predicate, input, .. } = filter;
    let of = Place { wanted: true, in_conjunction: true };
    let rewritten = condition(predicate, of, input.schema())?;
    rewritten.map_data(|predicate| Ok(LogicalPlan::Filter(Filter::try_new(predicate, input)?)))
}

/// Where a condition stands, of which only matters whether it is `wanted`.
#[derive(Clone, Copy)]
struct Place {
    wanted: bool,
    /// Whether all has what it wants only if this has.
    in_conjunction: bool,
}

fn condition(expr: Expr, place: Place, outer: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let conjunction = if place.wanted { Operator::And } else { Operator::Or };
            let in_conjunction = place.in_conjunction && op == conjunction;
            let place = Place { in_conjunction, ..place };
            let left = condition(*left, place, outer)?;
            let right = condition(*right, place, outer)?;
            let transformed = left.transformed || right.transformed;
            let both = BinaryExpr::new(Box::new(left.data), op, Box::new(right.data));
            let next = TreeNodeRecursion::Continue;
            Ok(Transformed::new(Expr::BinaryExpr(both), transformed, next))
        }
        Expr::Not(inner) => {
            let place = Place { wanted: !place.wanted, ..place };
            Ok(condition(*inner, place, outer)?.update_data(not))
        }
        Expr::InSubquery(is_in) => {
            let is_right = is_in.negated != place.wanted
                || place.in_conjunction && is_null_aware(&is_in)
                || !may_be_null(&is_in, outer)?;
            if is_right {
                return Ok(Transformed::no(Expr::InSubquery(is_in)));
            }
            let found = found(&is_in, outer)?;
            let (matched, open) = (found.matched, found.open);
            let is_not = not(matched).and(not(open));
            Ok(Transformed::yes(if place.wanted { is_not } else { not(is_not) }))
        }
        other => other.transform_up(|part| match part {
            Expr::InSubquery(is_in) if may_be_null(&is_in, outer)? => {
                exact(&is_in, outer).map(Transformed::yes)
            }
            part => Ok(Transformed::no(part)),
        }),
    }
}

/// Whether the planner finds NULLs of a NOT IN that stands in a conjunction.
fn is_null_aware(is_in: &InSubquery) -> bool {
    is_in.subquery.outer_ref_columns.is_empty() && !is_in.expr.column_refs().is_empty()
}

/// Whether it may be neither true nor false. What looks outside of the query around it is left to the planner, which refuses it.
fn may_be_null(is_in: &InSubquery, outer: &DFSchema) -> Result<bool> {
    let y = is_in.subquery.subquery.schema().field(0);
    Ok(!is_in.expr.contains_outer() && (y.is_nullable() || is_in.expr.nullable(outer)?))
}

/// What the rows of a subquery say of `x IN s`.
struct Found {
    matched: Expr,
    open: Expr,
}

fn found(is_in: &InSubquery, outer: &DFSchema) -> Result<Found> {
    let y = || Expr::Column(Column::from(is_in.subquery.subquery.schema().qualified_field(0)));
    let x = as_outer(is_in.expr.as_ref().clone(), outer)?;
    let nulls = exists(&is_in.subquery, Some(y().is_null()))?;
    let any = exists(&is_in.subquery, None)?;
    Ok(Found {
        matched: exists(&is_in.subquery, Some(y().eq(x)))?,
        open: nulls.or(is_in.expr.as_ref().clone().is_null().and(any)),
    })
}

/// An IN that stands anywhere, as conditions of EXISTS.
pub(super) fn as_exists(is_in: &InSubquery, outer: &DFSchema) -> Result<Expr> {
    if may_be_null(is_in, outer)? {
        return exact(is_in, outer);
    }
    let matched = found(is_in, outer)?.matched;
    Ok(if is_in.negated { not(matched) } else { matched })
}

/// True, false or NULL.
fn exact(is_in: &InSubquery, outer: &DFSchema) -> Result<Expr> {
    let Found { matched, open } = found(is_in, outer)?;
    when(matched, lit(!is_in.negated))
        .when(open, lit(ScalarValue::Boolean(None)))
        .otherwise(lit(is_in.negated))
}

/// Whether a subquery has a row for which a condition is true. Where that is the same for all outer rows it is a number that is
/// counted once.
pub(super) fn exists(subquery: &Subquery, condition: Option<Expr>) -> Result<Expr> {
    let mut subquery = subquery.clone();
    let mut rows = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery));
    if let Some(condition) = condition {
        condition.apply(|part| {
            let is_outer = matches!(part, Expr::OuterReferenceColumn(..));
            if is_outer && !subquery.outer_ref_columns.contains(part) {
                subquery.outer_ref_columns.push(part.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        rows = rows.filter(condition)?;
    }
    let is_one = subquery.outer_ref_columns.is_empty();
    if is_one {
        rows = rows.aggregate(Vec::<Expr>::new(), [count_all()])?;
    }
    subquery.subquery = Arc::new(rows.build()?);
    Ok(if is_one {
        Expr::ScalarSubquery(subquery).gt(lit(0i64))
    } else {
        Expr::Exists(Exists { subquery, negated: false })
    })
}

/// An expression of the outer row as the subquery sees it.
fn as_outer(expr: Expr, outer: &DFSchema) -> Result<Expr> {
    let named = |part| match part {
        Expr::Column(column) => {
            let field = Arc::clone(outer.field_from_column(&column)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    };
    expr.transform_up(named).map(|t| t.data)
}
