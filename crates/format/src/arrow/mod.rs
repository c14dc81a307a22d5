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
mod description;
mod dictionary;
mod fields;
mod file;
mod growing;
mod kept;
mod mapping;
mod message;
mod packed;
mod plain;
mod portable;
mod read;
mod scan;
mod schema;
mod statistics;
mod stream;
mod streamed;
mod table;
mod texts;
mod types;
mod writer;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod scale;

pub use chunks::ArrowFeed;
pub use file::ArrowFile;
pub use kept::KeptMetadata;
pub use read::StoredBatch;
pub use schema::unique_names;
pub use statistics::{MAX_VALUES_KEY, MIN_VALUES_KEY, has_statistics};
pub use stream::{BatchStream, begins_stream};
pub use table::{ArrowTable, SkippedFile, is_table_file};
pub(crate) use types::{encoding, row_bits};
pub use types::{ir_type, narrow_schema, packed_schema};
pub use writer::{ArrowWriter, WriterOptions, WriterSummary};
