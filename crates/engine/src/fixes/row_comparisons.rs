//! Rows as values: `(a, b) = (c, d)`, `(a, b) < (c, d)`, `(a, b) IN ((1, 2), ..)`, `(a, b) IN (SELECT ..)`.
//!
//! ```sql
//! SELECT (1, NULL) = (1, NULL), (NULL, 4) < (3, 2)
//! ```
//!
//! - DataFusion: True and true: rows are structs, compared as wholes; right is NULL and NULL.
//! - Upstream: apache/datafusion#21054, closed; apache/datafusion#21226 says in the manual that it is meant so.
//! - This can go when its canary finds the fault mended.
//!
//! The planner makes structs of rows, and compares those as wholes: `(1, NULL)` equals itself, and `(NULL, 4) < (3, 2)` is true.
//! SQL compares rows value by value, and what a NULL leaves open is NULL. So a comparison of rows is spelled out:
//!
//! ```text
//! (a, b) = (c, d)     a = c AND b = d                     (a, b) <> (c, d)    a <> c OR b <> d
//! (a, b) < (c, d)     a < c OR a = c AND b < d            (a, b) <= (c, d)    a < c OR a = c AND b <= d
//! (a, b) IN (s)       CASE WHEN EXISTS (s WHERE a = s.1 AND b = s.2) THEN true
//!                          WHEN EXISTS (s WHERE (a = s.1 AND b = s.2) IS NULL) THEN NULL ELSE false END
//! ```
//!
//! Where only true matters, as in a conjunction of a WHERE, `IN (s)` is the first EXISTS, which is a semi-join.

use datafusion::common::{Result, plan_err};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, Select, SelectItem, SetExpr, Statement, UnaryOperator, Value,
    VisitorMut,
};

use crate::sql::own::{parse_expr, put_into_from};
use crate::sql::walk::{self, Flow, ON, Stop};

/// Spells comparisons of rows out.
///
/// # Errors
/// Rows of different lengths.
pub fn spell_out(statement: &mut Statement) -> Result<()> {
    walk::change(statement, &mut Rows)
}

struct Rows;

impl VisitorMut for Rows {
    type Break = Stop;

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for condition in select.selection.iter_mut().chain(&mut select.having) {
            if let Err(error) = in_conjunction(condition) {
                return walk::stop(error);
            }
        }
        ON
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match spelled(expr) {
            Ok(Some(spelled)) => *expr = Expr::Nested(Box::new(spelled)),
            Ok(None) => {}
            Err(error) => return walk::stop(error),
        }
        ON
    }
}

/// Conditions of which only true matters.
fn in_conjunction(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::Nested(inner) => in_conjunction(inner),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            in_conjunction(left)?;
            in_conjunction(right)
        }
        Expr::InSubquery { expr: row, subquery, negated } => {
            let Some(values) = values(row) else { return Ok(()) };
            let (columns, matching) = (values.len(), matching(values, subquery)?);
            *expr = match negated {
                false => exists(subquery, columns, matching),
                true => not(exists(subquery, columns, Expr::IsNotFalse(Box::new(matching)))),
            };
            Ok(())
        }
        _ => Ok(()),
    }
}

fn spelled(expr: &mut Expr) -> Result<Option<Expr>> {
    Ok(match expr {
        Expr::BinaryOp { left, op, right } => match (values(left), values(right)) {
            (Some(a), Some(b)) => compared(a, op, b)?,
            _ => None,
        },
        Expr::IsDistinctFrom(left, right) => match (values(left), values(right)) {
            (Some(a), Some(b)) => Some(not(pairs(a, b, Expr::IsNotDistinctFrom)?)),
            _ => None,
        },
        Expr::IsNotDistinctFrom(left, right) => match (values(left), values(right)) {
            (Some(a), Some(b)) => Some(pairs(a, b, Expr::IsNotDistinctFrom)?),
            _ => None,
        },
        Expr::Between { expr: row, negated, low, high } => {
            let (Some(row), Some(low), Some(high)) = (values(row), values(low), values(high))
            else {
                return Ok(None);
            };
            let from = ordered(row, &BinaryOperator::GtEq, low)?;
            let between =
                binary(from, BinaryOperator::And, ordered(row, &BinaryOperator::LtEq, high)?);
            Some(if *negated { not(between) } else { between })
        }
        Expr::InList { expr: row, list, negated } => {
            let Some(row) = values(row).filter(|_| !list.is_empty()) else { return Ok(None) };
            let equal = list.iter().map(|other| match values(other) {
                Some(other) => pairs(row, other, equal).map(Some),
                None => Ok(None),
            });
            let Some(equal) = equal.collect::<Result<Option<Vec<_>>>>()? else { return Ok(None) };
            let any = joined(equal, &BinaryOperator::Or);
            Some(if *negated { not(any) } else { any })
        }
        Expr::InSubquery { expr: row, subquery, negated } => {
            let Some(row) = values(row) else { return Ok(None) };
            let (columns, matching) = (row.len(), matching(row, subquery)?);
            let matched = exists(subquery, columns, matching.clone());
            let open = exists(subquery, columns, Expr::IsNull(Box::new(matching)));
            let case = format!(
                "CASE WHEN matched THEN {} WHEN open THEN NULL ELSE {negated} END",
                !*negated
            );
            let mut case = parse_expr(&case)?;
            if let Expr::Case { conditions, .. } = &mut case {
                for (when, condition) in conditions.iter_mut().zip([matched, open]) {
                    when.condition = condition;
                }
            }
            Some(case)
        }
        _ => None,
    })
}

/// The values of a row.
fn values(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(values) if !values.is_empty() => Some(values),
        Expr::Nested(inner) => values(inner),
        _ => None,
    }
}

fn compared(a: &[Expr], op: &BinaryOperator, b: &[Expr]) -> Result<Option<Expr>> {
    Ok(Some(match op {
        BinaryOperator::Eq => pairs(a, b, equal)?,
        BinaryOperator::NotEq => not(pairs(a, b, equal)?),
        BinaryOperator::Lt | BinaryOperator::Gt | BinaryOperator::LtEq | BinaryOperator::GtEq => {
            ordered(a, op, b)?
        }
        _ => return Ok(None),
    }))
}

/// A comparison for each pair, all of which must be true.
fn pairs(a: &[Expr], b: &[Expr], compare: impl Fn(Box<Expr>, Box<Expr>) -> Expr) -> Result<Expr> {
    check_lengths(a.len(), b.len())?;
    let pairs = a.iter().zip(b).map(|(a, b)| compare(boxed(a), boxed(b)));
    Ok(joined(pairs.collect(), &BinaryOperator::And))
}

/// The first pair that differs decides; where none does, whether equal rows are meant, too.
fn ordered(a: &[Expr], op: &BinaryOperator, b: &[Expr]) -> Result<Expr> {
    check_lengths(a.len(), b.len())?;
    let strict = match op {
        BinaryOperator::LtEq => BinaryOperator::Lt,
        BinaryOperator::GtEq => BinaryOperator::Gt,
        other => other.clone(),
    };
    let mut pairs = a.iter().zip(b).rev();
    let compare = |(a, b): (&Expr, &Expr), op| binary(nested(a.clone()), op, nested(b.clone()));
    let Some(last) = pairs.next() else { return plan_err!("a row without values") };
    Ok(pairs.fold(compare(last, op.clone()), |behind, pair| {
        let equal = compare(pair, BinaryOperator::Eq);
        let behind = binary(equal, BinaryOperator::And, behind);
        binary(compare(pair, strict.clone()), BinaryOperator::Or, behind)
    }))
}

fn check_lengths(a: usize, b: usize) -> Result<()> {
    if a == b {
        return Ok(());
    }
    plan_err!("a row of {a} values is compared with one of {b}\nhint: give both sides as many")
}

/// What the columns of a subquery are called to the conditions that are put into it.
const FOUND: &str = "__row_values";

/// That a row of a subquery has these values.
fn matching(row: &[Expr], subquery: &Query) -> Result<Expr> {
    if let Some(columns) = column_count(subquery) {
        check_lengths(row.len(), columns)?;
    }
    let column = |nth: usize| parse_expr(&format!("{FOUND}.__value_{nth}"));
    let columns = (0..row.len()).map(column).collect::<Result<Vec<_>>>()?;
    pairs(row, &columns, equal)
}

/// How many columns a query writes down, if it can be told.
fn column_count(query: &Query) -> Option<usize> {
    let select = query.body.as_select()?;
    let is_one = |item: &SelectItem| {
        matches!(item, SelectItem::ExprWithAlias { .. } | SelectItem::UnnamedExpr(_))
    };
    select.projection.iter().all(is_one).then_some(select.projection.len())
}

/// `EXISTS (SELECT * FROM (subquery) AS found (..) WHERE condition)`.
fn exists(subquery: &Query, columns: usize, condition: Expr) -> Expr {
    let mut query = subquery.clone();
    let names: Vec<String> = (0..columns).map(|nth| format!("__value_{nth}")).collect();
    put_into_from(&mut query, &format!("{FOUND} ({})", names.join(", ")));
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.selection = Some(condition);
    }
    Expr::Exists { subquery: Box::new(query), negated: false }
}

fn equal(a: Box<Expr>, b: Box<Expr>) -> Expr {
    Expr::BinaryOp { left: a, op: BinaryOperator::Eq, right: b }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    nested(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) })
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn boxed(expr: &Expr) -> Box<Expr> {
    Box::new(nested(expr.clone()))
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(nested(expr)) }
}

/// All of them with an operator between, as a tree of few levels.
fn joined(mut exprs: Vec<Expr>, op: &BinaryOperator) -> Expr {
    if exprs.len() < 2 {
        return exprs.pop().map_or_else(|| Expr::value(Value::Null), nested);
    }
    let right = exprs.split_off(exprs.len() / 2);
    binary(joined(exprs, op), op.clone(), joined(right, op))
}
