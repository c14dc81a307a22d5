//! Streams of Arrow batches, whose lengths are looked at before their reader takes memory for them.
//!
//! The reader of the Arrow library believes what a message says of its own length, of its body's, and of what compressed
//! buffers expand to. What lies in the file is known, so here a lie is an error.

use std::io::{self, BufReader, Cursor, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::{Message, RecordBatch, root_as_message};

use super::bytes::FileBytes;

/// A block of at least 4 bytes expands to 128 KiB at most, of either codec.
const EXPANSION_MAX: u64 = 32_768;

const CONTINUATION: [u8; 4] = [0xFF; 4];

/// Begins to read a stream.
///
/// # Errors
/// What keeps it from being one.
pub fn open(bytes: FileBytes) -> Result<StreamReader<impl Read>, ArrowError> {
    let messages = Messages { bytes, ready: Cursor::default(), body_left: 0, is_done: false };
    let reader = BufReader::with_capacity(1 << 20, messages);
    let opened = catch_unwind(AssertUnwindSafe(|| StreamReader::try_new(reader, None)));
    let panicked = |_| Err(ArrowError::IpcError("the reader of streams panicked".to_string()));
    opened.unwrap_or_else(panicked)
}

/// The bytes of a stream, message by message.
struct Messages {
    bytes: FileBytes,
    /// What was looked at: lengths, metadata, compressed bodies.
    ready: Cursor<Vec<u8>>,
    /// Of a body that is handed on as it is.
    body_left: u64,
    is_done: bool,
}

impl Read for Messages {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.ready.read(into)?;
        if read > 0 || into.is_empty() || self.is_done {
            return Ok(read);
        }
        if self.body_left == 0 {
            self.look_at_next()?;
            return self.ready.read(into);
        }
        let read = self.bytes.by_ref().take(self.body_left).read(into)?;
        self.body_left -= read as u64;
        self.is_done = read == 0;
        Ok(read)
    }
}

impl Messages {
    fn look_at_next(&mut self) -> io::Result<()> {
        let mut message = Vec::new();
        self.append(4, &mut message)?;
        if message == CONTINUATION {
            self.append(4, &mut message)?;
        }
        let start = message.len();
        let length = message.last_chunk().map_or(0, |length| i32::from_le_bytes(*length));
        if length == 0 {
            self.is_done = true;
        } else {
            self.append(self.inside(length.into(), "message")?, &mut message)?;
            // What is no message is the reader's to refuse.
            if let Ok(parsed) = root_as_message(&message[start..]) {
                let body_bytes = self.inside(parsed.bodyLength(), "body")?;
                if is_compressed(parsed) {
                    let mut body = Vec::new();
                    self.append(body_bytes, &mut body)?;
                    batch(parsed).map_or(Ok(()), |batch| check_expansion(batch, &body))?;
                    message.append(&mut body);
                } else {
                    self.body_left = body_bytes;
                }
            }
        }
        self.ready = Cursor::new(message);
        Ok(())
    }

    /// A length that lies within what is left of the file.
    fn inside(&self, length: i64, what: &str) -> io::Result<u64> {
        let left = self.bytes.left();
        let inside = u64::try_from(length).ok().filter(|length| *length <= left);
        inside.ok_or_else(|| {
            invalid(format!("a {what} of {length} bytes, where the file has {left} more"))
        })
    }

    fn append(&mut self, bytes: u64, to: &mut Vec<u8>) -> io::Result<()> {
        self.bytes.by_ref().take(bytes).read_to_end(to).map(drop)
    }
}

fn batch(message: Message<'_>) -> Option<RecordBatch<'_>> {
    let dictionary = || message.header_as_dictionary_batch()?.data();
    message.header_as_record_batch().or_else(dictionary)
}

fn is_compressed(message: Message<'_>) -> bool {
    batch(message).is_some_and(|batch| batch.compression().is_some())
}

/// Each buffer begins with what it expands to.
fn check_expansion(batch: RecordBatch<'_>, body: &[u8]) -> io::Result<()> {
    for buffer in batch.buffers().into_iter().flatten() {
        let start = usize::try_from(buffer.offset()).ok().and_then(|start| body.get(start..));
        let Some(claimed) = start.and_then(|bytes| bytes.first_chunk()) else { continue };
        let claimed = i64::from_le_bytes(*claimed);
        let bytes_max = buffer.length().unsigned_abs().saturating_mul(EXPANSION_MAX);
        if u64::try_from(claimed).is_ok_and(|claimed| claimed > bytes_max) {
            let length = buffer.length();
            return Err(invalid(format!(
                "a buffer of {length} bytes that would expand to {claimed}"
            )));
        }
    }
    Ok(())
}

fn invalid(cause: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}
