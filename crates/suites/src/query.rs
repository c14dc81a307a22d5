//! A query of a suite.

/// One query of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its number, such as "1.1" in the Star Schema Benchmark and "15" in the others.
    pub id: &'static str,
    /// The text, without a semicolon.
    pub sql: &'static str,
    /// The rows that its LIMIT leaves, if it has one.
    pub limit: Option<Limit>,
}

/// The first rows of an order that may have ties: rows that tie with the last one are
/// interchangeable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The number of rows.
    pub rows: usize,
    /// The columns of the answer that the query orders by, counted from 0.
    pub keys: &'static [usize],
}

impl Query {
    /// Its order is total, so that a LIMIT leaves the same rows in every system.
    pub(crate) const fn new(id: &'static str, sql: &'static str) -> Self {
        Self { id, sql, limit: None }
    }

    /// Of a file that is named by its number in two digits.
    pub(crate) const fn of_file(name: &'static str, sql: &'static str) -> Self {
        Self::new(if let [b'0', _] = name.as_bytes() { name.split_at(1).1 } else { name }, sql)
    }
}

/// The queries in files of these names, beside the file that says so.
macro_rules! queries {
    ($($name:literal $({ $($limit:tt)* })?),* $(,)?) => {
        [$(Query {
            $(limit: Some(Limit { $($limit)* }),)?
            ..Query::of_file($name, include_str!(concat!("queries/", $name, ".sql")))
        }),*]
    };
}
pub(crate) use queries;

/// A query in tests: one statement for every dialect.
#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use sqlparser::{
        ast::Statement,
        dialect::{Dialect, DuckDbDialect, GenericDialect, PostgreSqlDialect},
        parser::Parser,
    };

    use super::Query;

    pub(crate) fn statement(query: &Query) -> Statement {
        let parsed = |dialect: &dyn Dialect| Parser::parse_sql(dialect, query.sql).unwrap();
        for dialect in [&PostgreSqlDialect {} as &dyn Dialect, &DuckDbDialect {}] {
            assert_eq!(parsed(dialect).len(), 1, "{}", query.id);
        }
        let [statement] = parsed(&GenericDialect {}).try_into().unwrap();
        statement
    }

    /// They are numbered from `first` on, and what is limited is ordered.
    pub(crate) fn check_ordered(queries: &[Query], first: usize) {
        for (query, number) in queries.iter().zip(first..) {
            assert_eq!(query.id, format!("{number}"));
            statement(query);
            let lines = |begin| query.sql.lines().any(|line: &str| line.starts_with(begin));
            assert!(!lines("limit ") || lines("order by"), "{}", query.id);
        }
    }
}
