//! Named windows: `OVER w`, `OVER (w ORDER BY x)`, and `WINDOW w2 AS (w ORDER BY x)`.
//!
//! ```sql
//! SELECT sum(y) OVER (w) FROM t WINDOW w AS (PARTITION BY x)
//! ```
//!
//! - DataFusion: The sum of all rows, because the name in front of a specification is dropped; right is that of each `x`.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.
//!
//! The planner drops the name in front of a specification, so that such a window has neither the groups nor the order that it
//! inherits, and it knows names in the SELECT list alone. Here every name becomes the specification that it stands for. What
//! may be added to a named window is what PostgreSQL allows: an order where it has none, and a frame.

use datafusion::common::{Result, plan_datafusion_err, plan_err};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, Ident, NamedWindowDefinition, NamedWindowExpr, Query, Select, SetExpr,
    Statement, VisitMut, VisitorMut, WindowSpec, WindowType,
};

use crate::sql::nodes::is_same;
use crate::sql::walk::{self, Flow, ON, Stop};

/// Writes named windows out.
///
/// # Errors
/// A name without a window, or a window that may not be changed so.
pub fn write_out(statement: &mut Statement) -> Result<()> {
    walk::change(statement, &mut Selects)
}

struct Selects;

impl VisitorMut for Selects {
    type Break = Stop;

    fn post_visit_select(&mut self, select: &mut Select) -> Flow {
        flow(in_select(select))
    }

    // The body comes before.
    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        match (query.body.as_ref(), &mut query.order_by) {
            (SetExpr::Select(select), Some(order)) => flow(write_into(order, &select.named_window)),
            _ => ON,
        }
    }
}

fn flow(result: Result<()>) -> Flow {
    result.map_or_else(walk::stop, |()| ON)
}

fn in_select(select: &mut Select) -> Result<()> {
    let mut known: Vec<NamedWindowDefinition> = Vec::new();
    for NamedWindowDefinition(name, window) in &select.named_window {
        if known.iter().any(|other| is_same(&other.0, name)) {
            return plan_err!("window {name} is defined twice");
        }
        let spec = match window {
            NamedWindowExpr::NamedWindow(base) => find(base, &known)?.clone(),
            NamedWindowExpr::WindowSpec(spec) => inherited(spec, &known)?,
        };
        known.push(NamedWindowDefinition(name.clone(), NamedWindowExpr::WindowSpec(spec)));
    }
    select.named_window.clear();
    write_into(select, &known)?;
    select.named_window = known;
    Ok(())
}

fn write_into(node: &mut impl VisitMut, windows: &[NamedWindowDefinition]) -> Result<()> {
    walk::change(node, &mut Calls { windows, queries: 0 })
}

/// The calls of a query, not of its subqueries, which have windows of their own.
struct Calls<'a> {
    windows: &'a [NamedWindowDefinition],
    queries: usize,
}

impl VisitorMut for Calls<'_> {
    type Break = Stop;

    fn pre_visit_query(&mut self, _: &mut Query) -> Flow {
        self.queries += 1;
        ON
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        self.queries -= 1;
        ON
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let Expr::Function(Function { over: Some(over), .. }) = expr else { return ON };
        if self.queries > 0 {
            return ON;
        }
        let spec = match over {
            WindowType::NamedWindow(name) => find(name, self.windows).cloned(),
            WindowType::WindowSpec(spec) => inherited(spec, self.windows),
        };
        flow(spec.map(|spec| *over = WindowType::WindowSpec(spec)))
    }
}

/// A specification with what the window that it names gives it.
fn inherited(spec: &WindowSpec, windows: &[NamedWindowDefinition]) -> Result<WindowSpec> {
    let Some(name) = &spec.window_name else { return Ok(spec.clone()) };
    let base = find(name, windows)?;
    if !spec.partition_by.is_empty() {
        return plan_err!("PARTITION BY of window {name} cannot be changed");
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return plan_err!("ORDER BY of window {name} cannot be changed");
    }
    if base.window_frame.is_some() {
        return plan_err!(
            "window {name} has a frame, which another window cannot inherit\nhint: OVER {name}, without parentheses, is the window as it is"
        );
    }
    let order_by = if base.order_by.is_empty() { &spec.order_by } else { &base.order_by };
    Ok(WindowSpec {
        window_name: None,
        partition_by: base.partition_by.clone(),
        order_by: order_by.clone(),
        window_frame: spec.window_frame.clone(),
    })
}

fn find<'a>(name: &Ident, windows: &'a [NamedWindowDefinition]) -> Result<&'a WindowSpec> {
    let known = windows.iter().find(|known| is_same(&known.0, name));
    match known {
        Some(NamedWindowDefinition(_, NamedWindowExpr::WindowSpec(spec))) => Ok(spec),
        _ => Err(plan_datafusion_err!(
            "there is no window {name}\nhint: define it behind FROM and GROUP BY: WINDOW {name} AS (PARTITION BY ..)"
        )),
    }
}
