//! TPC-H: the data of its specification at any scale, and the 22 queries.
//!
//! Source: Transaction Processing Performance Council, "TPC Benchmark H Standard Specification",
//! revision 3. The values are dbgen's own, from the crates `tpchgen` and `tpchgen-arrow`; every
//! scale has one set of data, so there is no seed. Figures measured with them are not TPC-H
//! results.
//!
//! # Tables
//!
//! Nothing is NULL. Rows are in key order.
//!
//! | table | rows at scale S |
//! |---|---|
//! | lineitem | about 6,000,000·S: the lines of all orders |
//! | orders | 1,500,000·S |
//! | partsupp | 800,000·S |
//! | part | 200,000·S |
//! | customer | 150,000·S |
//! | supplier | 10,000·S |
//! | nation, region | 25, 5 |
//!
//! # Columns
//!
//! Names are those of the specification.
//!
//! | values | written as |
//! |---|---|
//! | keys | Int64, in 4 bytes where the scale allows it |
//! | numbers without digits after the point (`l_linenumber`, `p_size`, `ps_availqty`, `o_shippriority`) | Int32 |
//! | `l_quantity`, money, rates | Decimal128(15, 2), in 4 bytes |
//! | dates | Date32 |
//! | text of a short list | Dictionary(Int8, Utf8); `p_type`, of 150 values, Dictionary(Int16, Utf8) |
//! | other text | Utf8 |

mod queries;
mod tables;

pub use queries::QUERIES;
pub(crate) use tables::tables;

/// Version of the generated data; changes with any change of a value, a type or an encoding.
pub const DATA_VERSION: u32 = 1;
