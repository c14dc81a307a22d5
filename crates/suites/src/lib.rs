//! Benchmark suites: data of any scale, straight into Arrow files, and their queries.
//!
//! [`ssb`] is the Star Schema Benchmark, [`tpch`] is TPC-H, [`tpcds`] is TPC-DS, [`clickbench`] is
//! ClickBench's one wide table, [`similarity`] searches for the nearest of fingerprints and vectors, [`join`] is one join
//! with a small table; each describes its data.
//!
//! # How data flow
//!
//! ```text
//! scale, seed  ───────► TableGenerator: any piece of any table ──► RecordBatch
//!                                                                     │ workers, in any order
//!                                                                     ▼
//!                                                    one writer a file, in row order ──► ArrowWriter
//!                                                                                           │
//!                                  SUITE.json, last: the directory is whole ◄───────────────┘
//! ```
//!
//! Written files are equal byte for byte for any number of threads. A file being written is a
//! hidden temporary; a cancelled or failed run removes what it has created.
//!
//! # Files
//!
//! One file per table, `TABLE.arrow`; the largest may be a folder `TABLE` with `part-00000.arrow`
//! and so on instead. The manifest ([`Manifest`]) comes last. Record batches have 2^20 rows,
//! uncompressed, with the minimum and maximum of every batch.
//!
//! # What this crate must never know
//!
//! Who runs the queries: processors, planners, SQL beyond the texts.

pub mod clickbench;
mod columns;
mod error;
mod generate;
pub mod join;
mod line_count;
mod manifest;
mod query;
mod random;
mod scale;
pub mod similarity;
pub mod ssb;
mod suite;
pub mod tpcds;
pub mod tpch;
mod write;

pub use error::SuiteError;
pub use generate::{GenerateOptions, Progress, Summary, generate};
pub use manifest::{Manifest, ManifestFile, ManifestTable, read_manifest};
pub use query::{Limit, Query};
pub use scale::{SCALE_MAX, SCALE_MIN};
pub use suite::Suite;
