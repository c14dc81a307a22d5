//! Streams of Arrow batches as tables.

use std::io::{BufReader, Read};
use std::sync::Arc;

use headrace_format::arrow::BatchStream;
use headrace_io::{ReadAt, SourceFile};

use super::bytes::FileBytes;

/// Begins to read a stream.
///
/// # Errors
/// What keeps it from being one, in words.
pub fn open(file: &Arc<SourceFile>) -> Result<BatchStream<impl Read + use<>>, String> {
    let bytes = BufReader::with_capacity(1 << 20, FileBytes::whole(Arc::clone(file)));
    BatchStream::open(bytes, file.size_bytes())
}
