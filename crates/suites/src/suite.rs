//! The benchmark suites and their differences.

use crate::{SuiteError, clickbench, similarity, ssb, tpcds, tpch, write::TableGenerator};

/// The smallest scale factor of a suite: 1,500 orders, 1,000 hits or compounds, or 240 tickets of a store.
pub const SCALE_MIN: f64 = 0.001;
/// The largest scale factor of a suite: about 60 thousand million rows of the fact table, or 10, or 29.
pub const SCALE_MAX: f64 = 10_000.0;

/// # Errors
/// [`SuiteError::Scale`] for a value that is out of range or not a number.
pub(crate) fn check_scale(scale: f64) -> Result<(), SuiteError> {
    if (SCALE_MIN..=SCALE_MAX).contains(&scale) { Ok(()) } else { Err(SuiteError::Scale { scale }) }
}

/// A benchmark: tables of any scale, and queries over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suite {
    /// The Star Schema Benchmark ([`ssb`]).
    Ssb,
    /// TPC-H ([`tpch`]).
    Tpch,
    /// TPC-DS ([`tpcds`]).
    Tpcds,
    /// ClickBench ([`clickbench`]).
    ClickBench,
    /// Similarity search ([`similarity`]).
    Similarity,
}

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

impl Suite {
    /// The name in commands and file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ssb => "ssb",
            Self::Tpch => "tpch",
            Self::Tpcds => "tpcds",
            Self::ClickBench => "clickbench",
            Self::Similarity => "similarity",
        }
    }

    /// The full name.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Ssb => "SSB",
            Self::Tpch => "TPC-H",
            Self::Tpcds => "TPC-DS",
            Self::ClickBench => "ClickBench",
            Self::Similarity => "Similarity search",
        }
    }

    /// Names of the tables in writing order; the largest is last.
    pub const fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Ssb => &["date", "customer", "supplier", "part", "lineorder"],
            Self::Tpch => &[
                "region", "nation", "supplier", "customer", "part", "partsupp", "orders",
                "lineitem",
            ],
            Self::Tpcds => &[
                "call_center", "catalog_page", "customer", "customer_address",
                "customer_demographics", "date_dim", "household_demographics", "income_band",
                "item", "promotion", "reason", "ship_mode", "store", "time_dim", "warehouse",
                "web_page", "web_site", "inventory", "web_returns", "web_sales", "catalog_returns",
                "catalog_sales", "store_returns", "store_sales",
            ],
            Self::ClickBench => &["hits"],
            Self::Similarity => &["embedding", "compound"],
        }
    }

    /// The largest table.
    pub const fn fact_table(self) -> &'static str {
        let tables = self.tables();
        tables[tables.len() - 1]
    }

    /// Approximate rows of the largest table at scale 1.
    pub const fn fact_rows(self) -> f64 {
        match self {
            Self::Ssb | Self::Tpch => 6e6,
            Self::Tpcds => 2.88e6,
            Self::ClickBench | Self::Similarity => 1e6,
        }
    }

    /// The queries in order.
    pub fn queries(self) -> &'static [Query] {
        match self {
            Self::Ssb => &ssb::QUERIES,
            Self::Tpch => &tpch::QUERIES,
            Self::Tpcds => &tpcds::QUERIES,
            Self::ClickBench => &clickbench::QUERIES,
            Self::Similarity => &similarity::QUERIES,
        }
    }

    /// Name of the manifest file.
    pub fn manifest_file(self) -> String {
        format!("{}.json", self.name())
    }

    /// Name of the file that is present while a directory is being filled.
    pub(crate) fn marker_file(self) -> String {
        format!(".{}-unfinished", self.name())
    }

    /// Version of the data that this crate generates.
    pub const fn data_version(self) -> u32 {
        match self {
            Self::Ssb => ssb::DATA_VERSION,
            Self::Tpch => tpch::DATA_VERSION,
            Self::Tpcds => tpcds::DATA_VERSION,
            Self::ClickBench => clickbench::DATA_VERSION,
            Self::Similarity => similarity::DATA_VERSION,
        }
    }

    /// The seed of the data, if they depend on one.
    pub(crate) const fn seed(self, seed: u64) -> Option<u64> {
        match self {
            Self::Ssb | Self::ClickBench | Self::Similarity => Some(seed),
            Self::Tpch | Self::Tpcds => None,
        }
    }

    /// The tables in the order of [`Suite::tables`].
    pub(crate) fn generators(
        self,
        scale: f64,
        seed: u64,
    ) -> Result<Vec<Box<dyn TableGenerator>>, SuiteError> {
        match self {
            Self::Ssb => Ok(ssb::Generator::new(scale, seed)?.into_tables()),
            Self::Tpch => tpch::tables(scale),
            Self::Tpcds => tpcds::tables(scale),
            Self::ClickBench => Ok(vec![Box::new(clickbench::Hits::new(scale, seed)?)]),
            Self::Similarity => similarity::tables(scale, seed),
        }
    }
}

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
