//! Arrow IPC files ("Feather version 2"), single or many to a table.
//!
//! ```text
//! ARROW1 + padding
//! schema message
//! dictionary batches, record batches   each: continuation, length, flatbuffer, body of buffers
//! end-of-stream marker
//! footer: schema again, position of every dictionary batch and record batch
//! footer length, ARROW1
//! ```
//!
//! Specification: <https://arrow.apache.org/docs/format/Columnar.html>.

mod batches;
mod bounds;
mod chunks;
mod constants;
mod decode;
mod dictionary;
mod fields;
mod file;
mod growing;
mod kept;
mod mapping;
mod message;
mod packed;
mod read;
mod scan;
mod schema;
mod statistics;
mod stream;
mod table;
mod texts;
mod types;
mod writer;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod scale;

pub(crate) use chunks::Filling;
pub use chunks::{ArrowFeed, CHUNK_EXTRA_SHARE, ChunkOptions, ColumnBound};
pub use file::ArrowFile;
pub(crate) use file::{encoding, row_bits};
pub use kept::KeptMetadata;
pub use packed::packed_schema;
pub use read::StoredBatch;
pub use schema::unique_names;
pub use statistics::{MAX_VALUES_KEY, MIN_VALUES_KEY, has_statistics};
pub use stream::{BatchStream, begins_stream};
pub use table::{ArrowTable, ColumnStats, SkippedFile, is_table_file};
pub use types::{ir_type, narrow_schema};
pub use writer::{ArrowWriter, WriterOptions, WriterSummary};
