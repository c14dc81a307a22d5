//! The bytes of a text file: where they lie, unpacked, as UTF-8.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use headrace_io::{ReadAt, SourceFile};

use super::encoding::{Encoding, Transcoded};
use super::packing::Packing;

/// May stand before a text in UTF-8, and is no part of it.
pub const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A file's bytes, one after the other, from where they lie; it may change or shrink: then reading fails.
pub struct FileBytes {
    file: Arc<SourceFile>,
    offset: u64,
    /// From the file's beginning on, of one that lies elsewhere, if all of it is wanted.
    stream: Option<io::Result<Box<dyn Read + Send>>>,
}

impl FileBytes {
    /// From an offset on.
    pub fn at(file: Arc<SourceFile>, offset: u64) -> Self {
        Self { file, offset, stream: None }
    }

    /// All of them: what lies elsewhere comes in one answer, so that its server need not know of ranges.
    pub fn whole(file: Arc<SourceFile>) -> Self {
        let stream = file.remote_bytes().map(|remote| remote.stream(0));
        Self { file, offset: 0, stream }
    }

    /// Bytes that were not read yet.
    pub fn left(&self) -> u64 {
        self.file.size_bytes().saturating_sub(self.offset)
    }
}

impl Read for FileBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let wanted = into.len().min(usize::try_from(self.left()).unwrap_or(usize::MAX));
        if wanted > 0 {
            let into = &mut into[..wanted];
            let read = match &mut self.stream {
                Some(Ok(stream)) => stream.read(into)?,
                Some(Err(error)) => return Err(io::Error::new(error.kind(), error.to_string())),
                None => self
                    .file
                    .read_exact_at(self.offset, into)
                    .map_err(io::Error::other)
                    .map(|()| wanted)?,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.offset += read as u64;
            return Ok(read);
        }
        Ok(0)
    }
}

/// The bytes of a file, unpacked, as UTF-8 without a byte order mark. UTF-16 is told by its own, unless somebody
/// says what it is.
pub fn unpacked(
    packing: Packing,
    encoding: Option<Encoding>,
    bytes: impl Read + Send + 'static,
) -> io::Result<Box<dyn BufRead + Send>> {
    let buffer_bytes = 1 << 20;
    let mut reader: Box<dyn BufRead + Send> = match packing {
        Packing::Gzip => {
            let packed = BufReader::with_capacity(buffer_bytes, bytes);
            Box::new(BufReader::with_capacity(buffer_bytes, MultiGzDecoder::new(packed)))
        }
        Packing::Zstd => Box::new(BufReader::with_capacity(
            buffer_bytes,
            zstd::stream::read::Decoder::new(bytes)?,
        )),
        Packing::Plain => Box::new(BufReader::with_capacity(buffer_bytes, bytes)),
    };
    let (found, mark_bytes) = encoding_of(reader.fill_buf()?, encoding);
    reader.consume(mark_bytes);
    Ok(match found {
        Encoding::Utf8 => reader,
        other => Box::new(BufReader::with_capacity(buffer_bytes, Transcoded::new(reader, other))),
    })
}

/// What the first bytes of a file say of its encoding, and how many of them say nothing else.
fn encoding_of(start: &[u8], given: Option<Encoding>) -> (Encoding, usize) {
    match (given, start) {
        (Some(Encoding::Latin1), _) => (Encoding::Latin1, 0),
        (_, [0xFF, 0xFE, ..]) => (Encoding::Utf16Le, 2),
        (_, [0xFE, 0xFF, ..]) => (Encoding::Utf16Be, 2),
        (None | Some(Encoding::Utf8), start) if start.starts_with(BYTE_ORDER_MARK) => {
            (Encoding::Utf8, BYTE_ORDER_MARK.len())
        }
        (given, _) => (given.unwrap_or(Encoding::Utf8), 0),
    }
}

/// Reads over lines; how many there were of those.
pub fn skip_lines(reader: &mut dyn BufRead, lines: u64) -> io::Result<u64> {
    for skipped in 0..lines {
        if reader.skip_until(b'\n')? == 0 {
            return Ok(skipped);
        }
    }
    Ok(lines)
}
