//! `x IN (VALUES (1), (2))` is `x IN (SELECT * FROM (VALUES ..))`.
//!
//! ```sql
//! SELECT x FROM t WHERE x IN (VALUES (1), (7))
//! ```
//!
//! - DataFusion: An internal error of a rule; right is the rows of 1 and 7.
//! - Upstream: no upstream issue known.
//! - This can go when its canary finds the fault mended.

use datafusion::sql::sqlparser::ast::{Query, SetExpr};

use crate::sql::own::put_into_from;

/// Turns a subquery that is a list of rows into a SELECT of them.
pub fn select(subquery: &mut Query) {
    if matches!(*subquery.body, SetExpr::Values(_)) {
        put_into_from(subquery, "listed");
    }
}
