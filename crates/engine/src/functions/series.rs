//! `generate_series` and `range` of timestamps: those of SQL are of microseconds, the planner's of nanoseconds.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::Expr;

/// The functions.
pub const NAMES: [&str; 2] = ["generate_series", "range"];

/// A function of nanoseconds that takes microseconds.
#[derive(Debug)]
pub struct OfMoments(pub Arc<dyn TableFunctionImpl>);

impl TableFunctionImpl for OfMoments {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let exprs = args.exprs().iter().map(in_ns).collect::<Result<Vec<_>>>()?;
        self.0.call_with_args(TableFunctionArgs::new(&exprs, args.session()))
    }
}

fn in_ns(expr: &Expr) -> Result<Expr> {
    let Expr::Literal(ScalarValue::TimestampMicrosecond(Some(us), zone), metadata) = expr else {
        return Ok(expr.clone());
    };
    match us.checked_mul(1000) {
        Some(ns) => {
            let moment = ScalarValue::TimestampNanosecond(Some(ns), zone.clone());
            Ok(Expr::Literal(moment, metadata.clone()))
        }
        None => plan_err!(
            "a series of timestamps lies between 1677 and 2262\nhint: add days to a number: date '2500-01-01' + i"
        ),
    }
}
