//! Types of parameters that a cast says: `$1::text[]` is given as an array, where the planner would see a text.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Value, Visit, Visitor};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::types::TYPES;

/// Parameters, counted from 0, and the numbers of the types that they are cast to.
pub fn casts(sql: &str) -> Vec<(usize, u32)> {
    let mut found = Casts(Vec::new());
    // What this parser does not read says nothing.
    if let Ok(statements) = Parser::parse_sql(&PostgreSqlDialect {}, sql) {
        let _ = statements.visit(&mut found);
    }
    found.0
}

struct Casts(Vec<(usize, u32)>);

impl Visitor for Casts {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Cast { expr: inner, data_type, .. } = expr
            && let Expr::Value(value) = inner.as_ref()
            && let Value::Placeholder(name) = &value.value
            && let Some(nth) = name.strip_prefix('$').and_then(|nth| nth.parse::<usize>().ok())
            && let Some(oid) = oid_of(&data_type.to_string())
        {
            self.0.push((nth.saturating_sub(1), oid));
        }
        ControlFlow::Continue(())
    }
}

/// The number of a type by its name in SQL, or in the catalog.
fn oid_of(name: &str) -> Option<u32> {
    let name = name.to_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let (plain, is_array) = match name.strip_suffix("[]") {
        Some(plain) => (plain, true),
        None => (name, false),
    };
    // Lengths and digits say nothing of how a value is sent.
    let plain = plain.split('(').next().unwrap_or(plain).trim_end();
    let plain = match plain {
        "int" => "integer",
        "decimal" => "numeric",
        "float" | "double" => "double precision",
        "timestamp" => "timestamp without time zone",
        "time" => "time without time zone",
        other => other,
    };
    let known = TYPES.iter().find(|known| known.sql == plain || known.name == plain)?;
    Some(if is_array { known.array } else { known.oid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_say_what_a_parameter_is() {
        let sql = "select $1::text[], cast($2 as int), $3::date from t where a = $4 and b = $5::numeric(10, 2)";
        assert_eq!(casts(sql), [(0, 1009), (1, 23), (2, 1082), (4, 1700)]);
        assert_eq!(casts("select $1 +"), []);
        assert_eq!((oid_of("timestamp with time zone"), oid_of("nothing")), (Some(1184), None));
    }
}
