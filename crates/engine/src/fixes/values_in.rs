//! `x IN (VALUES (1), (2))` is `x IN (SELECT * FROM (VALUES ..))`.

use datafusion::sql::sqlparser::ast::{Query, SetExpr};

use crate::sql::own::put_into_from;

/// Selects what a subquery has of a list of rows.
pub fn select(subquery: &mut Query) {
    if matches!(*subquery.body, SetExpr::Values(_)) {
        put_into_from(subquery, "listed");
    }
}
