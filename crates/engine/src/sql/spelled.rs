//! Short words of SQL and of other databases, spelled out: `FETCH FIRST n ROWS ONLY` is LIMIT, `ORDER BY ALL` names
//! every column of the SELECT, DISTINCT is ordered by its columns, and aggregates are not ordered by columns of a number.

use std::mem;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Fetch, Function, FunctionArgumentClause, FunctionArguments, LimitClause,
    OrderBy, OrderByExpr, OrderByKind, Query, SelectItem, SetExpr, Statement, Value, VisitorMut,
};

use super::walk::{self, Flow, ON, Stop};

/// Spells out what the planner would refuse.
pub fn out(statement: &mut Statement) {
    walk::change_all(statement, &mut SpellOut);
}

struct SpellOut;

impl VisitorMut for SpellOut {
    type Break = Stop;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        fetch(query);
        order_by_all(query);
        order_of_distinct(query);
        ON
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = expr {
            list.clauses.retain_mut(orders_by_values);
        }
        ON
    }
}

/// Whether a clause of a function is left without its numbers: `max(x ORDER BY 1)` is ordered by a constant, not by a
/// column of its number.
fn orders_by_values(clause: &mut FunctionArgumentClause) -> bool {
    let FunctionArgumentClause::OrderBy(exprs) = clause else { return true };
    exprs.retain(|order| {
        !matches!(&order.expr, Expr::Value(value) if matches!(value.value, Value::Number(..)))
    });
    !exprs.is_empty()
}

/// `FETCH FIRST n ROWS ONLY`; without a number it is one row.
fn fetch(query: &mut Query) {
    let Some(Fetch { with_ties: false, percent: false, quantity }) = &mut query.fetch else {
        return;
    };
    let rows = quantity.take().unwrap_or_else(|| number(1));
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(rows),
        None => {
            let (limit, offset, limit_by) = (Some(rows), None, Vec::new());
            query.limit_clause = Some(LimitClause::LimitOffset { limit, offset, limit_by });
        }
        // LIMIT and FETCH: the planner says that it is too much.
        Some(_) => {
            query.fetch = Some(Fetch { with_ties: false, percent: false, quantity: Some(rows) });
            return;
        }
    }
    query.fetch = None;
}

/// `ORDER BY ALL` of columns that are written down.
fn order_by_all(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    let has_names = |item: &SelectItem| {
        matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
    };
    let Some(order) = &mut query.order_by else { return };
    let OrderByKind::Expressions(exprs) = &mut order.kind else { return };
    if let [OrderByExpr { expr: Expr::Identifier(all), .. }] = exprs.as_slice()
        && all.quote_style.is_none()
        && all.value.eq_ignore_ascii_case("all")
        && select.projection.iter().all(has_names)
    {
        let all = mem::take(exprs);
        let columns = 1..=select.projection.len();
        exprs.extend(
            columns
                .zip(all.iter().cycle())
                .map(|(column, all)| OrderByExpr { expr: number(column), ..all.clone() }),
        );
    }
}

/// `SELECT DISTINCT upper(w) AS u .. ORDER BY upper(w)` is ordered by its first column.
fn order_of_distinct(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = &mut query.order_by else {
        return;
    };
    if select.distinct != Some(Distinct::Distinct) {
        return;
    }
    for by in order.iter_mut().filter(|by| !matches!(by.expr, Expr::Identifier(_) | Expr::Value(_)))
    {
        let place = select.projection.iter().position(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                *expr == by.expr
            }
            _ => false,
        });
        let has_names = |item: &SelectItem| {
            matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
        };
        if let Some(place) = place.filter(|place| select.projection[..*place].iter().all(has_names))
        {
            by.expr = number(place + 1);
        }
    }
}

fn number(number: usize) -> Expr {
    Expr::value(Value::Number(number.to_string(), false))
}
