//! `FETCH FIRST 3 ROWS WITH TIES`, `LIMIT 2 BY k`, `LIMIT (SELECT ..)` and `SELECT TOP 3` in the planner's words: conditions of
//! ranks, and LIMIT.
//!
//! ```text
//! .. ORDER BY x FETCH FIRST n ROWS WITH TIES    .. QUALIFY rank() OVER (ORDER BY x) <= n ORDER BY x
//! .. ORDER BY x LIMIT n BY k                    .. QUALIFY row_number() OVER (PARTITION BY k ORDER BY x) <= n ORDER BY x
//! .. ORDER BY x LIMIT (SELECT n) OFFSET m       .. QUALIFY row_number() OVER (ORDER BY x) - m BETWEEN 1 AND (SELECT n) ORDER BY x
//! ```

use datafusion::common::{Result, plan_err};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Fetch, Function, LimitClause, OrderByExpr, OrderByKind, Query, Select,
    SelectItem, SetExpr, Statement, Top, TopQuantity, Value, Visitor, VisitorMut, WindowType,
};

use super::nodes::plain_name;
use super::own::{parse_expr, put_into_from};
use super::rows_asked;
use super::walk::{self, Flow, ON, Stop};

/// Spells them out.
///
/// # Errors
/// What is not offered of them.
pub fn spell_out(statement: &mut Statement) -> Result<()> {
    walk::change(statement, &mut FirstRows)
}

struct FirstRows;

impl VisitorMut for FirstRows {
    type Break = Stop;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        match in_query(query) {
            Ok(()) => ON,
            Err(error) => walk::stop(error),
        }
    }
}

fn in_query(query: &mut Query) -> Result<()> {
    top(query)?;
    if query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties) {
        return with_ties(query);
    }
    if let Some(LimitClause::LimitOffset { limit_by, .. }) = &query.limit_clause
        && !limit_by.is_empty()
    {
        return limit_by_keys(query);
    }
    if is_asked(query) {
        return limit_by_query(query);
    }
    Ok(())
}

/// Whether a query says how many rows are wanted, or left out.
fn is_asked(query: &Query) -> bool {
    let mut asks = Asks(false);
    match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => {
            let offset = offset.as_ref().map(|offset| &offset.value);
            limit.iter().chain(offset).for_each(|rows| walk::look_at_all(rows, &mut asks));
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
            [offset, limit].into_iter().for_each(|rows| walk::look_at_all(rows, &mut asks));
        }
        None => {}
    }
    asks.0
}

struct Asks(bool);

impl Visitor for Asks {
    type Break = Stop;

    fn pre_visit_query(&mut self, _: &Query) -> Flow {
        self.0 = true;
        ON
    }
}

/// A NULL is no limit.
fn limit_by_query(query: &mut Query) -> Result<()> {
    let (limit, offset) = match query.limit_clause.take() {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => {
            (limit, offset.map(|offset| offset.value))
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(limit), Some(offset)),
        None => (None, None),
    };
    let limit = match query.fetch.take() {
        Some(Fetch { percent: false, quantity, .. }) if limit.is_none() => quantity,
        None => limit,
        Some(_) => {
            return plan_err!(
                "FETCH beside LIMIT, or of a percentage\nhint: fetch a number of rows"
            );
        }
    };
    let is_one_select =
        matches!(query.body.as_ref(), SetExpr::Select(select) if select.distinct.is_none());
    if !is_one_select {
        let (order, with) = (query.order_by.take(), query.with.take());
        put_into_from(query, "limited");
        (query.order_by, query.with) = (order, with);
    }
    let order = order_of(query)?;
    let text = |rows: Option<Expr>, none: &str| {
        rows.map_or_else(
            || none.to_string(),
            |rows| format!("coalesce(\"{}\"(({rows})), {none})", rows_asked::NAME),
        )
    };
    let mut wanted = parse_expr(&format!(
        "cast(row_number() over () as bigint) - {} between 1 and {}",
        text(offset, "0"),
        text(limit, &i64::MAX.to_string()),
    ))?;
    if let Expr::Between { expr, .. } = &mut wanted
        && let Expr::BinaryOp { left, .. } = expr.as_mut()
        && let Expr::Cast { expr: number, .. } = left.as_mut()
        && let Expr::Function(Function { over: Some(WindowType::WindowSpec(window)), .. }) =
            number.as_mut()
    {
        window.order_by = order;
    }
    if let SetExpr::Select(select) = query.body.as_mut() {
        keep(select, wanted);
    }
    Ok(())
}

/// TOP is LIMIT.
fn top(query: &mut Query) -> Result<()> {
    let SetExpr::Select(select) = query.body.as_mut() else { return Ok(()) };
    let Some(top) = select.top.take() else { return Ok(()) };
    let limit = match top {
        Top { with_ties: false, percent: false, quantity: Some(quantity) } => match quantity {
            TopQuantity::Expr(rows) => rows,
            TopQuantity::Constant(rows) => parse_expr(&rows.to_string())?,
        },
        other => {
            return plan_err!(
                "{other} is not offered\nhint: write ORDER BY .. LIMIT, or FETCH FIRST .. ROWS WITH TIES behind it"
            );
        }
    };
    if query.limit_clause.is_some() || query.fetch.is_some() {
        return plan_err!("TOP and LIMIT say the same\nhint: write one of them");
    }
    let limit = Some(limit);
    query.limit_clause =
        Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() });
    Ok(())
}

fn with_ties(query: &mut Query) -> Result<()> {
    let Some(Fetch { percent: false, quantity, .. }) = query.fetch.take() else {
        return plan_err!("FETCH of a percentage is not offered\nhint: fetch a number of rows");
    };
    let offset = match &query.limit_clause {
        None => None,
        Some(LimitClause::LimitOffset { limit: None, offset, .. }) => offset.clone(),
        Some(_) => return plan_err!("FETCH and LIMIT say the same\nhint: write one of them"),
    };
    let rows = quantity.unwrap_or(parse_expr("1")?);
    let rows = match offset {
        Some(offset) => parse_expr(&format!("({rows}) + ({})", offset.value))?,
        None => rows,
    };
    let order = order_of(query)?;
    if order.is_empty() {
        return plan_err!("WITH TIES is of an order\nhint: write ORDER BY before FETCH");
    }
    qualify(query, "rank()", Vec::new(), order, rows)
}

fn limit_by_keys(query: &mut Query) -> Result<()> {
    let Some(LimitClause::LimitOffset { limit: Some(rows), offset: None, limit_by }) =
        query.limit_clause.take()
    else {
        return plan_err!(
            "LIMIT BY with OFFSET is not offered\nhint: QUALIFY row_number() OVER (..) BETWEEN .."
        );
    };
    let order = order_of(query)?;
    qualify(query, "row_number()", limit_by, order, rows)
}

/// The order of a query, by what its outputs are made of.
fn order_of(query: &Query) -> Result<Vec<OrderByExpr>> {
    let (Some(order), SetExpr::Select(select)) = (&query.order_by, query.body.as_ref()) else {
        return Ok(Vec::new());
    };
    let OrderByKind::Expressions(order) = &order.kind else {
        return plan_err!("ORDER BY ALL is not offered beside WITH TIES and LIMIT BY");
    };
    let mut order = order.clone();
    for by in &mut order {
        match output_of(select, &by.expr) {
            Some(output) => by.expr = output,
            None if matches!(by.expr, Expr::Value(_)) => {
                return plan_err!(
                    "ORDER BY {} names no output that is written, beside WITH TIES, LIMIT BY or LIMIT (SELECT ..)\n\
                     hint: name the column",
                    by.expr
                );
            }
            None => {}
        }
    }
    Ok(order)
}

/// What an output is made of, which an order names by its place or alias.
fn output_of(select: &Select, by: &Expr) -> Option<Expr> {
    match by {
        Expr::Value(value) => match &value.value {
            Value::Number(place, _) => {
                match select.projection.get(place.parse::<usize>().ok()?.checked_sub(1)?)? {
                    SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                        Some(expr.clone())
                    }
                    _ => None,
                }
            }
            _ => None,
        },
        Expr::Identifier(name) => select.projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if plain_name(alias) == plain_name(name) => {
                Some(expr.clone())
            }
            _ => None,
        }),
        _ => None,
    }
}

/// Keeps the rows of the first numbers of a window.
fn qualify(
    query: &mut Query,
    call: &str,
    keys: Vec<Expr>,
    order: Vec<OrderByExpr>,
    rows: Expr,
) -> Result<()> {
    let SetExpr::Select(select) = query.body.as_mut() else {
        return plan_err!(
            "WITH TIES and LIMIT BY are of one SELECT\nhint: select from the union: SELECT * FROM (..) ORDER BY .."
        );
    };
    if select.distinct.is_some() {
        return plan_err!(
            "WITH TIES and LIMIT BY are not offered beside DISTINCT\nhint: select from the distinct rows: SELECT * FROM (SELECT DISTINCT ..) AS d ORDER BY .."
        );
    }
    let Expr::Function(mut number) = parse_expr(&format!("{call} over ()"))? else {
        return plan_err!("{call} is no function");
    };
    if let Function { over: Some(WindowType::WindowSpec(window)), .. } = &mut number {
        window.partition_by = keys;
        window.order_by = order;
    }
    let condition = Expr::BinaryOp {
        left: Box::new(Expr::Function(number)),
        op: BinaryOperator::LtEq,
        right: Box::new(Expr::Nested(Box::new(rows))),
    };
    keep(select, condition);
    Ok(())
}

/// Adds a condition of windows.
fn keep(select: &mut Select, condition: Expr) {
    select.qualify = Some(match select.qualify.take() {
        Some(other) => Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(other))),
            op: BinaryOperator::And,
            right: Box::new(condition),
        },
        None => condition,
    });
}
