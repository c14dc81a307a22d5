//! Columns of values, and what a core computes of them.
//!
//! # The data that flows through
//!
//! ```text
//! segment ──load──► Vector ──kernels──► Vector ──push──► Column ──into_array──► Arrow array
//!  bytes             views    values, a column at a time   rows that are gathered
//! Arrow array ──append_array──► Column       Vectors ──key, hash──► bytes, numbers
//! ```
//!
//! 1. A [`segment`] is a range of rows as bytes of some encoding; [`load`] makes vectors of them, of
//!    all rows or of some, and believes nothing that the bytes say.
//! 2. A [`vector::Vector`] is one column of some thousand rows: typed values, validity, or one constant for all
//!    rows. How values are held is a [`repr::Repr`].
//! 3. Kernels take vectors and make vectors: [`arithmetic`], [`compare`], [`cast`], [`logic`], [`function`], [`text`],
//!    [`like`], [`in_list`], [`shift`], [`lookup`]; decimals that fit 64 bits are [`narrow`]. A kernel that
//!    fails returns a [`fault::Fault`] for its [`fault::Target`]. Hot loops use the vector instructions of the
//!    machine ([`simd`]).
//! 4. Rows that stay are a [`column::Column`], which grows, and leaves as an Arrow array. Keys are bytes ([`key`] of
//!    joins, [`group_keys`]) and hashes ([`hash`]), the same for all callers.
//!
//! # What this crate must never know
//!
//! Programs, their steps and sinks; builds, groups' states, who runs what and when; files, CUDA,
//! DataFusion, PostgreSQL. Of `io` it uses memory alone: large pages, and the budget that pays for texts.

pub mod arithmetic;
pub mod automaton;
pub mod calendar;
pub mod cast;
pub mod column;
pub mod column_in;
pub mod compare;
pub mod convert;
pub mod decimal;
pub mod distance;
pub mod fault;
pub mod function;
pub mod group_keys;
pub mod hash;
pub mod in_list;
pub mod key;
pub mod like;
pub mod load;
pub mod logic;
pub mod lookup;
pub mod mean;
pub mod memory;
pub mod narrow;
pub mod repr;
pub mod segment;
pub mod select;
pub mod shift;
pub mod simd;
pub mod spread;
pub mod text;
pub mod values;
pub mod vector;
pub mod whole;
pub mod wide;

mod error;

pub use error::ColumnError;
