//! ORDER BY of an output means the output.
//!
//! ```sql
//! SELECT a AS b, CAST(b AS TEXT) AS c FROM t GROUP BY a, CAST(b AS TEXT) ORDER BY b
//! ```
//!
//! - DataFusion: Ordered by the column `b`: what is cast and its cast have one name; right is the order of the output `b`.
//! - Upstream: no upstream issue known of the order; apache/datafusion#4478 tells of the names.
//! - This can go when its canary finds the fault mended.
//!
//! The planner calls what GROUP BY casts as it calls what is cast; where an output has that name too, it takes ORDER BY of
//! the one for the other. Such an order stands outside instead: `SELECT a AS b, CAST(b AS text) .. GROUP BY .. ORDER BY b`
//! becomes `SELECT * FROM (SELECT ..) ORDER BY b`.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, Value,
    ValueWithSpan, Visitor, VisitorMut,
};

use crate::sql::nodes::plain_name;
use crate::sql::own::put_into_from;
use crate::sql::walk::{self, Flow, ON, Stop};

/// What such a query is called where it is a table.
const NAME: &str = "grouped";

/// Puts orders outside where the planner would take an output for something else.
pub fn outside(statement: &mut Statement) {
    walk::change_all(statement, &mut Outside);
}

struct Outside;

impl VisitorMut for Outside {
    type Break = Stop;

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        if is_mistaken(query) {
            let (order_by, limit_clause) = (query.order_by.take(), query.limit_clause.take());
            let fetch = query.fetch.take();
            put_into_from(query, NAME);
            (query.order_by, query.limit_clause, query.fetch) = (order_by, limit_clause, fetch);
        }
        ON
    }
}

/// Whether a query of groups is ordered by outputs alone, one of which has the name of what is cast.
fn is_mistaken(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let Some(order) = &query.order_by else { return false };
    let OrderByKind::Expressions(order) = &order.kind else { return false };
    let Some(outputs) = outputs(select) else { return false };
    let is_output = |expr: &Expr| match expr {
        Expr::Identifier(name) => outputs.contains(&Some(plain_name(name))),
        Expr::Value(ValueWithSpan { value: Value::Number(place, _), .. }) => {
            place.parse().is_ok_and(|place: usize| (1..=outputs.len()).contains(&place))
        }
        _ => false,
    };
    let cast = Cast::of(select);
    is_grouped(select)
        && outputs.iter().flatten().any(|name| cast.names.contains(name))
        && order.iter().all(|by| is_output(&by.expr))
}

fn is_grouped(select: &Select) -> bool {
    match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
    }
}

/// What outputs are called by the query itself; `None` where it does not say how many there are, or two have one name.
fn outputs(select: &Select) -> Option<Vec<Option<String>>> {
    let output = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(Some(plain_name(name))),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => {
            Some(names.last().map(plain_name))
        }
        SelectItem::UnnamedExpr(_) => Some(None),
        SelectItem::ExprWithAlias { alias, .. } => Some(Some(plain_name(alias))),
        _ => None,
    };
    let outputs = select.projection.iter().map(output).collect::<Option<Vec<_>>>()?;
    let mut seen = HashSet::new();
    outputs.iter().flatten().all(|name| seen.insert(name)).then_some(outputs)
}

/// The columns that are cast.
#[derive(Default)]
struct Cast {
    names: HashSet<String>,
    depth: usize,
}

impl Cast {
    fn of(select: &Select) -> Self {
        let mut cast = Self::default();
        walk::look_at_all(&select.projection, &mut cast);
        walk::look_at_all(&select.group_by, &mut cast);
        cast
    }

    fn add(&mut self, name: Option<&Ident>) {
        self.names.extend(name.filter(|_| self.depth > 0).map(plain_name));
    }
}

impl Visitor for Cast {
    type Break = Stop;

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        match expr {
            Expr::Cast { .. } => self.depth += 1,
            Expr::Identifier(name) => self.add(Some(name)),
            Expr::CompoundIdentifier(names) => self.add(names.last()),
            _ => {}
        }
        ON
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> Flow {
        self.depth -= usize::from(matches!(expr, Expr::Cast { .. }));
        ON
    }
}
