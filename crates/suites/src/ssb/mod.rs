//! The Star Schema Benchmark: data of any scale, and the thirteen queries.
//!
//! Source: P. O'Neil, E. O'Neil, X. Chen, "The Star Schema Benchmark", revision 3 (2009), and
//! dbgen's SSB variant where the text is silent. The data are not dbgen's byte for byte, because
//! they come from another random number generator, which can start anywhere.
//!
//! A value depends only on the seed, its table, its column and its row (module `random`), so
//! threads, batches and files do not change the data.
//!
//! # Tables
//!
//! Scale S is a number from 0.001 to 10,000. Nothing is NULL. Rows come in key order.
//!
//! | table | rows |
//! |---|---|
//! | lineorder | about 6,000,000·S: round(1,500,000·S) orders of 1 to 7 lines. The line counts are dbgen's own (module `line_count`), so S = 1 has 6,001,215 rows, S = 10 59,986,052 and S = 100 600,037,902, for every seed |
//! | customer | round(30,000·S) |
//! | supplier | round(2,000·S) |
//! | part | 200,000·(1 + ⌊log2 S⌋); round(200,000·S) for S < 1, where the logarithm would be negative |
//! | date | 2,557: every day of 1992 to 1998 (dbgen leaves out the last) |
//!
//! # Columns
//!
//! `i32` is Arrow Int32 (lineorder's file holds small numbers in 1 or 2 bytes), `text` Utf8,
//! `code8` and `code16` Dictionary(Int8 or Int16, Utf8): 8 bits for lists of up to 100 values, 16
//! above. A dictionary contains its whole list, whether or not every word occurs. Money is in
//! cents. Dates are the decimal number yyyymmdd.
//!
//! | column | written as | values |
//! |---|---|---|
//! | lo_orderkey | i32; i64 for S > 357, where keys pass 2^31 | dbgen's sparse keys: of 32 numbers in a row the first 8 are used |
//! | lo_linenumber | i32 | 1..=7, within the order |
//! | lo_custkey | i32 | one an order; every third customer has no orders |
//! | lo_partkey, lo_suppkey | i32 | uniform |
//! | lo_orderdate | i32 | one an order; uniform, 1992-01-01 to 1998-08-02 |
//! | lo_orderpriority | code8 | 5 values, one an order |
//! | lo_shippriority | code8 | `0` (the specification has text of one character) |
//! | lo_quantity | i32 | 1..=50 |
//! | lo_extendedprice | i32 | quantity · price; price = 90000 + (partkey / 10) mod 20001 + 100 · (partkey mod 1000) |
//! | lo_ordtotalprice | i32 | one an order: sum of revenue · (100 + tax) / 100 over its lines |
//! | lo_discount | i32 | 0..=10, per cent |
//! | lo_revenue | i32 | extendedprice · (100 - discount) / 100 |
//! | lo_supplycost | i32 | 6 · price / 10 |
//! | lo_tax | i32 | 0..=8, per cent |
//! | lo_commitdate | i32 | 30 to 90 days after the order |
//! | lo_shipmode | code8 | 7 values |
//! | c_custkey, s_suppkey, p_partkey | i32 | from 1 without gaps |
//! | c_name, s_name | text | `Customer#000000001`, `Supplier#000000001` |
//! | c_address, s_address | text | 6 to 24 random characters |
//! | c_city, s_city | code16 | 250: nine characters of the nation, padded, and a digit |
//! | c_nation, s_nation | code8 | 25, uniform |
//! | c_region, s_region | code8 | 5, of five nations each |
//! | c_phone, s_phone | text | `cc-ddd-ddd-dddd`, cc = 10 + nation |
//! | c_mktsegment | code8 | 5 |
//! | p_name | code16 | two different colours, neither of them p_color: 8,372 |
//! | p_mfgr, p_category | code8 | 5 and 25: `MFGR#1`, `MFGR#12` |
//! | p_brand1 | code16 | 1000: `MFGR#121` to `MFGR#1240` in `MFGR#12` |
//! | p_color | code8 | 92 |
//! | p_type | code16 | 150 |
//! | p_size | i32 | 1..=50 |
//! | p_container | code8 | 40 |
//! | d_datekey | i32 | yyyymmdd |
//! | d_date | text | `January 1, 1992` |
//! | d_dayofweek, d_month | code8 | `Sunday`, `January` |
//! | d_year, d_yearmonthnum | i32 | 1992, 199201 |
//! | d_yearmonth | code8 | 84: `Jan1992` |
//! | d_daynuminweek | i32 | 1..=7 from Sunday. The true weekday: dbgen's is a day ahead |
//! | d_daynuminmonth, d_daynuminyear, d_monthnuminyear | i32 | from 1 |
//! | d_weeknuminyear | i32 | day of the year / 7 + 1 as dbgen: 1..=53 |
//! | d_sellingseason | code8 | Winter, Spring, Summer, Fall, Christmas, by month |
//! | d_lastdayinweekfl, d_lastdayinmonthfl, d_holidayfl, d_weekdayfl | i32 | 0 or 1 (the specification has bits) |
//!
//! A lineorder row takes 59 bytes, 63 for S > 357.
//!
//! # Example
//!
//! ```
//! use headrace_suites::ssb::{Generator, Table};
//!
//! let data = Generator::new(0.01, 42)?;
//! let lines = data.batch(Table::Lineorder, 1000..2000)?;
//! assert_eq!(lines.num_rows(), 1000);
//! # Ok::<(), headrace_suites::SuiteError>(())
//! ```

mod calendar;
mod contact;
mod queries;
mod scale;
mod tables;
mod vocabulary;

pub use queries::{FILTER_FACTORS, QUERIES};
pub use tables::{Generator, Table};

/// Version of the generated data; changes with any change of a value, a type or an encoding.
pub const DATA_VERSION: u32 = 1;
