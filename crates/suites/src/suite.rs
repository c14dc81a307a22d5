//! The benchmark suites and their differences.

use crate::{
    Query, SuiteError, clickbench, join, similarity, ssb, tpcds, tpch, write::TableGenerator,
};

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
    /// One join and a grouping ([`join`]).
    Join,
}

impl Suite {
    /// The name in commands and file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ssb => "ssb",
            Self::Tpch => "tpch",
            Self::Tpcds => "tpcds",
            Self::ClickBench => "clickbench",
            Self::Similarity => "similarity",
            Self::Join => "join",
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
            Self::Join => "Join",
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
            Self::Join => &["t1", "t0"],
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
            Self::Join => join::ROWS_PER_SCALE,
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
            Self::Join => &join::QUERIES,
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
            Self::Join => join::DATA_VERSION,
        }
    }

    /// The seed of the data, if they depend on one.
    pub(crate) const fn seed(self, seed: u64) -> Option<u64> {
        match self {
            Self::Ssb | Self::ClickBench | Self::Similarity | Self::Join => Some(seed),
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
            Self::Join => join::tables(scale, seed),
        }
    }
}
