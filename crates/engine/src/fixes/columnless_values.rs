//! `(SELECT FROM t)` as a value: it has rows, but no value. The planner takes its first column without a look.
//!
//! ```sql
//! SELECT (SELECT FROM t)
//! ```
//!
//! - DataFusion: The planner panics: it takes the subquery's first column without a look; right is an error.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.

use datafusion::common::{Result, plan_datafusion_err};
use datafusion::sql::sqlparser::ast::{Expr, Query, SetExpr, Statement, Visitor};

use crate::sql::walk::{self, Flow, ON, Stop};

/// Refuses a statement with a subquery of no columns where its value is asked for.
///
/// # Errors
/// That it has one.
pub fn check(statement: &Statement) -> Result<()> {
    walk::look(statement, &mut Values)
}

struct Values;

impl Visitor for Values {
    type Break = Stop;

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        let query = match expr {
            Expr::Subquery(query) => query,
            Expr::InSubquery { subquery, .. } => subquery,
            _ => return ON,
        };
        if !has_no_column(query) {
            return ON;
        }
        walk::stop(plan_datafusion_err!(
            "a subquery that is asked for a value has no column\nhint: SELECT x FROM .., or EXISTS (SELECT FROM ..)"
        ))
    }
}

fn has_no_column(query: &Query) -> bool {
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Select(select) => return select.projection.is_empty(),
            SetExpr::Query(query) => body = query.body.as_ref(),
            SetExpr::SetOperation { left, .. } => body = left.as_ref(),
            _ => return false,
        }
    }
}
