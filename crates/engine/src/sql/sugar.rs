//! Short words of SQL and of other databases, spelled out: `FETCH FIRST n ROWS ONLY` is LIMIT, `ORDER BY ALL` names
//! every column of the SELECT, DISTINCT is ordered by its columns, aggregates are not ordered by columns of a number, and an
//! order by a row is one by its values.

use std::mem;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Fetch, FunctionArgumentClause, FunctionArguments, LimitClause,
    NamedWindowDefinition, NamedWindowExpr, OrderBy, OrderByExpr, OrderByKind, Query, Select,
    SelectItem, SetExpr, Statement, Value, VisitorMut, WindowType,
};

use super::walk::{self, Flow, ON, Stop};

/// Spells out what the planner would refuse.
pub fn spell_out(statement: &mut Statement) {
    walk::change_all(statement, &mut SpellOut);
}

struct SpellOut;

impl VisitorMut for SpellOut {
    type Break = Stop;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        fetch(query);
        order_by_all(query);
        if let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = &mut query.order_by {
            order_by_rows(order);
        }
        order_of_distinct(query);
        ON
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for NamedWindowDefinition(_, window) in &mut select.named_window {
            if let NamedWindowExpr::WindowSpec(window) = window {
                order_by_rows(&mut window.order_by);
            }
        }
        ON
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let Expr::Function(function) = expr else { return ON };
        if let FunctionArguments::List(list) = &mut function.args {
            list.clauses.retain_mut(orders_by_values);
        }
        if let Some(WindowType::WindowSpec(window)) = &mut function.over {
            order_by_rows(&mut window.order_by);
        }
        ON
    }
}

/// `ORDER BY (a, b) DESC` is `ORDER BY a DESC, b DESC`; a number in it is no place of a column.
fn order_by_rows(order: &mut Vec<OrderByExpr>) {
    let is_row = |by: &OrderByExpr| matches!(&by.expr, Expr::Tuple(values) if !values.iter().any(|value| matches!(value, Expr::Value(_))));
    if !order.iter().any(is_row) {
        return;
    }
    for by in mem::take(order) {
        match by {
            OrderByExpr { expr: Expr::Tuple(values), mut options, with_fill }
                if !values.iter().any(|value| matches!(value, Expr::Value(_))) =>
            {
                // A row is never NULL; NULLs in it are greater than all values.
                options.nulls_first = None;
                order.extend(values.into_iter().map(|expr| OrderByExpr {
                    expr,
                    options,
                    with_fill: with_fill.clone(),
                }));
            }
            other => order.push(other),
        }
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
