//! How a table's bytes lie in files, and how such files are written.
//!
//! # The data that flows through
//!
//! ```text
//! files, folders ──open──► ArrowTable: columns, statistics, dictionaries, identities
//!                              │
//!        needed columns ───────┼─feed─────────► io::FedChunk, one by one: byte ranges to read, with the ir::Chunk
//!        bounds to prune by ───┘                    that says how they lie (whoever executes reads them)
//!                              └─read_batch───► arrow RecordBatch (any type, any compression)
//!
//! PostgreSQL's blocks ──heap::Decoder──► arrow RecordBatch, or a reason to let the server read them
//!
//! Parquet's metadata ──ParquetTable──feed──► io::FedChunk of pages ──SegmentDecoder──► arrow RecordBatch
//!
//! a producer ──BatchStream──► BatchTable ──feed──► io::FedChunk over the batches' own memory
//!
//! arrow RecordBatch ──ArrowWriter──► a file, whole or not at all
//! ```
//!
//! [`Table`] is the interface of every format to pipelines. A format answers one question: *which byte ranges of which
//! files hold the needed rows and columns, and how are the values encoded in them?* Metadata is read when a table is
//! opened; others read the values later, from the extents in a [`Feed`]'s chunks. Columns that a pipeline cannot take
//! in place (nested types, compressed buffers) are reported one by one ([`arrow::ArrowTable::column_support`]) and can
//! still be read as Arrow arrays.
//!
//! # What this crate must never know
//!
//! Who executes: processors, slots, devices, SQL. It knows the layouts of `ir` and reads bytes
//! through `io`.
//!
//! # Trust
//!
//! Files come from anywhere. Everything that a plan relies on is checked when the table is opened:
//! flatbuffers by their verifier, block and buffer ranges against the file's size, buffer lengths
//! against row counts. Malformed input is a [`FormatError`] that names the file, the offset and the
//! part; it never panics, and never allocates more than the file's own size for a claim of the file
//! (for compressed buffers: no more than they really expand to). Readers of values check these
//! (offsets of text, dictionary codes).
//!
//! Units: offsets and lengths are bytes; GB = 10^9 bytes.

pub mod arrow;
pub mod batches;
pub mod heap;
pub mod parquet;

mod description;
mod error;
mod feed;
mod options;
mod pages;
mod parts;
mod portable;
mod ranges;
mod table;

pub use description::TableDescription;
pub use error::{FormatError, Result};
pub use feed::{ChunkTotals, Feed, FeedFacts, FirstBy};
pub use options::{CHUNK_EXTRA_SHARE, ChunkOptions, ColumnBound};
pub use pages::{Encoded, PageSource, SegmentDecoder};
pub use parts::TablePart;
pub use portable::{FileVersion, PortableFile, PortableFormat, PortableTable};
pub use ranges::BatchRanges;
pub use table::{ColumnStats, Table};
