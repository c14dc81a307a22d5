//! Parquet files for pipelines: which bytes hold the needed rows and columns, and how they become columns.
//!
//! # The data that flows through
//!
//! ```text
//! metadata, read by others ──► ParquetTable: columns, statistics, row groups
//!                                   │
//!    needed columns, bounds ────────┼─feed──► chunks: for each column of a row group the bytes of its pages, as they lie;
//!                                   │         no chunk for row groups that the bounds rule out
//!                                   │
//!                                   ├─segment_decoder, one a thread:
//!                                   │    header ─► codec ─► levels, values ──► batches of a core's cache
//!                                   │
//!                                   └─feed of plain columns, for a device:
//!                                        the same, in the thread that fills the device's slot
//! ```
//!
//! A segment is a range of rows of a row group, and has the whole column chunks: where their pages begin is known only
//! from the pages before. A row group that several threads share is read by each, which skips the pages of the others
//! without decompressing them.
//!
//! Decimals become as narrow as the file has them, in 4, 8 or 16 bytes; pipelines take all three. For a device, whole numbers
//! become differences from the least one that the statistics of all files claim, in as few of 1, 2 and 4 bytes as the
//! greatest takes; a value that has no place among them is an error of the file.
//!
//! # What is not read here
//!
//! Nested columns, timestamps of 96 bits, floats of 16, decimals and other numbers in texts, pages compressed with
//! Brotli, LZO or the first LZ4, encrypted files: [`ParquetTable::new`] says so before anything is read, and the
//! planner's reader takes such files.
//!
//! # Trust
//!
//! Files come from anywhere. Sizes, counts and codes are checked before they are used; a page that contradicts itself is
//! a [`FormatError::Corrupt`](crate::FormatError::Corrupt) with the file, the offset and the column.
//!
//! The format: <https://parquet.apache.org/docs/file-format/>.

mod bad;
mod codec;
mod codes;
mod column;
mod decoder;
mod deltas;
mod encodings;
mod feed;
mod fixed;
mod header;
mod plain;
mod runs;
mod statistics;
mod streamed;
mod table;
mod target;
mod texts;
mod values;

pub use codes::KnownTexts;
pub use decoder::REPAIR;
pub use table::{ParquetFile, ParquetTable};
