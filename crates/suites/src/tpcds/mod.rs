//! TPC-DS: the data of its specification at any scale, and the 99 queries.
//!
//! Source: Transaction Processing Performance Council, "TPC Benchmark DS Standard Specification",
//! revision 3. The values are dsdgen's own, from the crates `tpcdsgen` and `tpcdsgen-arrow`; every
//! scale has one set of data, so there is no seed. Figures measured with them are not TPC-DS results.
//!
//! # Tables
//!
//! Names of tables and columns are those of the specification. Columns other than keys may be NULL. Sales
//! are in the order of their tickets or orders, which for catalog and web sales is the order of their days.
//!
//! | table | rows at scale 1 | at other scales |
//! |---|---|---|
//! | store_sales, catalog_sales, web_sales | 2,880,404, 1,441,548, 719,384 | in proportion, by 10,000 tickets, 10,000 and 1,000 orders |
//! | store_returns, catalog_returns, web_returns | a tenth of the sales | a tenth of the sales |
//! | inventory | 11,745,000: a row for an item, a warehouse and a week | items · warehouses |
//! | customer, customer_address, item | 100,000, 50,000, 18,000 | above 1 less than in proportion, below by 1,000, 1,000 and 2,000 |
//! | promotion, web_page, web_site, store, call_center, warehouse | 300, 60, 30, 12, 6, 5 | above 1 slowly more, below less, at least one |
//! | catalog_page | 11,718 | above 1 slowly more |
//! | customer_demographics, time_dim, date_dim, household_demographics | 1,920,800, 86,400, 73,049, 7,200 | the same |
//! | reason, ship_mode, income_band | 75, 20, 20 | the same |
//!
//! So a scale below 0.01 is hardly smaller than 0.01: 120,527 store sales, 2.6 million rows in all.
//!
//! # Columns
//!
//! | values | written as |
//! |---|---|
//! | `_sk` keys, numbers without digits after the point | Int32 |
//! | `_ticket_number`, `_order_number` | Int64 |
//! | money | Decimal128(7, 2) in 4 bytes, of promotions (15, 2) in 8; shares and offsets of hours (5, 2) in 4 |
//! | dates | Date32 |
//! | text | Utf8 |

mod queries;
mod tables;

pub use queries::QUERIES;
pub(crate) use tables::tables;

/// Version of the generated data; changes with any change of a value, a type or an encoding.
pub const DATA_VERSION: u32 = 1;
