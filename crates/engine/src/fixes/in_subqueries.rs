//! `x [NOT] IN (SELECT y ..)` where `x` or `y` may be NULL, and `x < ANY (SELECT y ..)`, `x < ALL (SELECT y ..)`.
//!
//! ```sql
//! SELECT x FROM t WHERE 1 NOT IN (SELECT y FROM s)  -- y: 2 and NULL
//! ```
//!
//! - DataFusion: All rows of `t`, and `x IN (SELECT ..)` among the outputs is refused; right is no row, for NULL may be 1.
//! - Upstream: apache/datafusion#8241, apache/datafusion#25347, and apache/datafusion#25340, mended by
//!   apache/datafusion#25348, which no release has yet.
//! - This can go when its canary finds the fault mended.
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
//!
//! `x < ANY s` is the same with another comparison, and `x < ALL s` is `NOT x >= ANY s`. The rows of `s` get a name of their own, so
//! that a column of `s` is never taken for one of the outer query that has the same name.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, Result, ScalarValue, plan_err};
use datafusion::functions_aggregate::count::count_all;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
    Subquery, binary_expr, lit, not, when,
};

use crate::plans::map_expressions;

/// Changes comparisons with ANY and ALL that stand elsewhere than in a WHERE.
pub fn rewrite_comparisons(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Filter(_) = plan {
        return rewrite(plan);
    }
    let outer = merge_schema(&plan.inputs());
    map_expressions(plan, |expr| expr.transform_up(|part| comparison_as_exists(part, &outer)))
}

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
            let asks_outer = is_in.expr.contains_outer();
            let is_right = !asks_outer
                && (is_in.negated != place.wanted
                    || place.in_conjunction && is_null_aware(&is_in)
                    || is_in.subquery.outer_ref_columns.is_empty() && !may_be_null(&is_in, outer)?);
            if is_right {
                return named(is_in);
            }
            let any = Any::of_in(&is_in);
            any.where_wanted(is_in.negated, place.wanted, outer).map(Transformed::yes)
        }
        Expr::SetComparison(comparison) => {
            let (any, negated) = Any::of_comparison(&comparison)?;
            any.where_wanted(negated, place.wanted, outer).map(Transformed::yes)
        }
        other => other.transform_up(|part| match part {
            Expr::InSubquery(is_in)
                if is_in.expr.contains_outer() || may_be_null(&is_in, outer)? =>
            {
                as_exists(&is_in, outer).map(Transformed::yes)
            }
            Expr::InSubquery(is_in) => named(is_in),
            part => comparison_as_exists(part, outer),
        }),
    }
}

/// An IN that stays one: the column that is compared gets a name that no other has, if it is computed. The planner takes further
/// columns out of the subquery, to compare them with the outer row, and what the column is made of may be called as the column is.
fn named(mut is_in: InSubquery) -> Result<Transformed<Expr>> {
    let rows = &is_in.subquery.subquery;
    let is_column = match rows.head_output_expr()? {
        Some(Expr::Alias(alias)) if alias.name == VALUE => true,
        Some(Expr::Column(column)) => column.relation.is_some(),
        _ => false,
    };
    if is_column {
        return Ok(Transformed::no(Expr::InSubquery(is_in)));
    }
    let (rows, value) = value_of(rows);
    let rows = LogicalPlanBuilder::from(rows).project([value.alias(VALUE)])?.build()?;
    is_in.subquery.subquery = Arc::new(rows);
    Ok(Transformed::yes(Expr::InSubquery(is_in)))
}

/// What the one column of a subquery is made of, and of what rows.
fn value_of(rows: &Arc<LogicalPlan>) -> (Arc<LogicalPlan>, Expr) {
    match rows.as_ref() {
        LogicalPlan::Projection(Projection { expr, input, .. }) if expr.len() == 1 => {
            (Arc::clone(input), expr[0].clone().unalias())
        }
        _ => {
            let column = Column::from(rows.schema().qualified_field(0));
            (Arc::clone(rows), Expr::Column(column))
        }
    }
}

/// Whether the planner finds NULLs of a NOT IN that stands in a conjunction.
fn is_null_aware(is_in: &InSubquery) -> bool {
    is_in.subquery.outer_ref_columns.is_empty() && !is_in.expr.column_refs().is_empty()
}

/// Whether it may be neither true nor false.
fn may_be_null(is_in: &InSubquery, outer: &DFSchema) -> Result<bool> {
    Any::of_in(is_in).may_be_null(outer)
}

/// An IN that stands anywhere, as conditions of EXISTS.
pub(super) fn as_exists(is_in: &InSubquery, outer: &DFSchema) -> Result<Expr> {
    Any::of_in(is_in).exact(is_in.negated, outer)
}

/// A comparison with ANY or ALL that stands anywhere, as conditions of EXISTS.
pub(super) fn comparison_as_exists(part: Expr, outer: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::SetComparison(comparison) = &part else { return Ok(Transformed::no(part)) };
    let (any, negated) = Any::of_comparison(comparison)?;
    any.exact(negated, outer).map(Transformed::yes)
}

/// `x op ANY (s)`.
struct Any<'a> {
    x: &'a Expr,
    op: Operator,
    subquery: &'a Subquery,
}

/// What the rows of a subquery are called where they are compared: a table in it may have the name of one of the outer query.
const COMPARED: &str = "__compared";
/// What their column is called: another column of the subquery may have its name, and be asked for above it, too.
const VALUE: &str = "compared value";

impl<'a> Any<'a> {
    fn of_in(is_in: &'a InSubquery) -> Self {
        Self { x: &is_in.expr, op: Operator::Eq, subquery: &is_in.subquery }
    }

    /// The comparison, and whether it is its contrary that is meant: `x < ALL (s)` is `NOT x >= ANY (s)`.
    fn of_comparison(comparison: &'a SetComparison) -> Result<(Self, bool)> {
        let negated = comparison.quantifier == SetQuantifier::All;
        let op = match negated {
            false => Some(comparison.op),
            true => comparison.op.negate(),
        };
        let Some(op) = op else { return plan_err!("{} compares no value with all", comparison.op) };
        Ok((Self { x: &comparison.expr, op, subquery: &comparison.subquery }, negated))
    }

    fn may_be_null(&self, outer: &DFSchema) -> Result<bool> {
        let y = self.subquery.subquery.schema().field(0);
        Ok(y.is_nullable() || self.x.nullable(outer)?)
    }

    /// What is right where only matters whether it is true, or whether it is false.
    fn where_wanted(&self, negated: bool, wanted: bool, outer: &DFSchema) -> Result<Expr> {
        let matched = self.matched(outer)?;
        let found = match negated == wanted && self.may_be_null(outer)? {
            false => matched,
            true => matched.or(self.open()?),
        };
        Ok(if negated { not(found) } else { found })
    }

    /// True, false or NULL.
    fn exact(&self, negated: bool, outer: &DFSchema) -> Result<Expr> {
        let matched = self.matched(outer)?;
        if !self.may_be_null(outer)? {
            return Ok(if negated { not(matched) } else { matched });
        }
        when(matched, lit(!negated))
            .when(self.open()?, lit(ScalarValue::Boolean(None)))
            .otherwise(lit(negated))
    }

    fn matched(&self, outer: &DFSchema) -> Result<Expr> {
        let x = as_outer(self.x.clone(), outer)?;
        self.exists(Some(binary_expr(x, self.op, self.y())))
    }

    fn open(&self) -> Result<Expr> {
        let nulls = self.exists(Some(self.y().is_null()))?;
        let any = self.exists(None)?;
        Ok(nulls.or(self.x.clone().is_null().and(any)))
    }

    /// The column of the subquery.
    fn y(&self) -> Expr {
        Expr::Column(Column::new(Some(COMPARED), VALUE))
    }

    fn exists(&self, condition: Option<Expr>) -> Result<Expr> {
        let (rows, value) = value_of(&self.subquery.subquery);
        let named = value.alias_qualified(Some(COMPARED), VALUE);
        // A projection and not an alias: what the planner adds to a subquery's columns gets lost in one.
        let rows = LogicalPlanBuilder::from(rows).project([named])?.build()?;
        exists(&Subquery { subquery: Arc::new(rows), ..self.subquery.clone() }, condition)
    }
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
