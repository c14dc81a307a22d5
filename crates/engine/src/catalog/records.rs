//! Text files cut into blocks of whole records, so that many threads can read one file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use headrace_io::{ReadAt, SourceFile};
use memchr::{memchr, memchr_iter, memchr2, memchr3, memrchr};

use super::files::{Packing, packing_of};

/// A record that is longer is taken for a quote that nobody closed.
const RECORD_BYTES_MAX: usize = 256 << 20;

/// What is looked at to see whether JSON is a table.
const FIRST_RECORD_BYTES_MAX: u64 = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

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

/// The bytes of a file, unpacked, without a byte order mark.
pub fn unpacked(
    packing: Packing,
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
    if reader.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
        reader.consume(BYTE_ORDER_MARK.len());
    }
    Ok(reader)
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

/// Whether a JSON file is a list of objects: its first line is a whole one, or it is an array that begins
/// with one.
pub fn is_json_table(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| is_json_list(path, file))
}

/// The same of its bytes.
pub fn is_json_list(path: &Path, bytes: impl Read + Send + 'static) -> bool {
    let Ok(mut reader) = unpacked(packing_of(path), bytes) else { return false };
    let records = Records::of_json(&mut reader);
    // Bytes, since the last character may be cut.
    let (mut start, mut reader) = (Vec::new(), reader.take(FIRST_RECORD_BYTES_MAX));
    match records {
        Ok(Records::Lines) => {
            let read = reader.read_until(b'\n', &mut start);
            let line = start.trim_ascii();
            read.is_ok() && line.starts_with(b"{") && line.ends_with(b"}")
        }
        Ok(_) => {
            let read = reader.read_to_end(&mut start);
            let first = start.trim_ascii_start().strip_prefix(b"[").map(<[u8]>::trim_ascii_start);
            read.is_ok() && first.is_some_and(|text| matches!(text.first(), Some(b'{' | b']')))
        }
        Err(_) => false,
    }
}

/// Where records end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// With each line.
    Lines,
    /// With a line outside of quotes; a quote counts where a value begins.
    Separated(Separators),
    /// JSON values of any layout, also as members of one array.
    Values,
}

/// What stands between and around separated values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Separators {
    /// Between values.
    pub delimiter: u8,
    /// Around a value.
    pub quote: u8,
    /// Before a quote that is part of a value, besides doubling it.
    pub escape: Option<u8>,
}

impl Separators {
    /// No byte of a text: stands for no quote at all.
    pub const NO_QUOTE: u8 = 0xFF;

    /// Quotes that are doubled.
    pub fn of(delimiter: u8) -> Self {
        Self { delimiter, quote: b'"', escape: None }
    }
}

impl Records {
    /// How a JSON file is laid out.
    pub fn of_json(reader: &mut dyn BufRead) -> io::Result<Records> {
        let start = reader.fill_buf()?;
        let line_end = memchr(b'\n', start).unwrap_or(start.len());
        let line = start[..line_end].trim_ascii();
        let is_whole = line.starts_with(b"{") && line.ends_with(b"}");
        Ok(if is_whole { Records::Lines } else { Records::Values })
    }
}

/// Whole records.
pub struct Block {
    /// JSON has a line for each.
    pub bytes: Vec<u8>,
    /// Line of the file in which it begins, from 1.
    pub first_line: u64,
    /// Whether nothing of the file's records comes before it.
    pub is_first: bool,
}

/// A file's blocks.
pub struct Blocks {
    reader: Box<dyn BufRead + Send>,
    records: Records,
    state: State,
    /// The beginning of a record whose end was not seen yet.
    rest: Vec<u8>,
    line: u64,
    is_begun: bool,
    is_done: bool,
}

#[derive(Clone, Copy, Default)]
struct State {
    place: Place,
    /// Of JSON: open objects and arrays.
    depth: usize,
    /// Of JSON: the records are members of an array.
    in_array: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// A value begins here.
    #[default]
    Start,
    Inside,
    Quoted,
    /// After a quote inside of quotes, or a backslash: what comes next says what it was.
    Escape,
    /// After what stands before a quote that is part of a value.
    Escaped,
}

impl Blocks {
    /// Blocks of whatever the reader still has.
    pub fn new(reader: Box<dyn BufRead + Send>, records: Records, first_line: u64) -> Self {
        let (state, rest) = (State::default(), Vec::new());
        Self { reader, records, state, rest, line: first_line, is_begun: false, is_done: false }
    }

    /// The next block, of about `bytes`; `None` at the end.
    pub fn next(&mut self, bytes: usize) -> io::Result<Option<Block>> {
        let mut block = std::mem::take(&mut self.rest);
        let mut end = 0;
        let first_line = self.line;
        while !self.is_done && (end == 0 || block.len() < bytes) {
            let seen = block.len();
            let wanted = bytes.saturating_sub(seen).max(1 << 16);
            let taken = self.reader.by_ref().take(wanted as u64).read_to_end(&mut block)?;
            self.is_done = taken == 0;
            self.line += memchr_iter(b'\n', &block[seen..]).count() as u64;
            end = self.cut(&mut block, seen).unwrap_or(end);
            if block.len() - end > RECORD_BYTES_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "the record that begins near line {first_line} is longer than {} MB: is a quote \
                         not closed?",
                        RECORD_BYTES_MAX >> 20
                    ),
                ));
            }
        }
        if !self.is_done {
            self.rest = block.split_off(end);
            let unread = memchr_iter(b'\n', &self.rest).count() as u64;
            self.line = self.line.saturating_sub(unread);
        }
        if let Records::Separated(_) = self.records {
            check_text(&block, first_line)?;
        }
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let mut block = Block { bytes: block, first_line, is_first };
        if !is_first && block.bytes.starts_with(BYTE_ORDER_MARK) {
            // The reader of a block would take it for that of a file; an empty line is no record.
            block.bytes.insert(0, b'\n');
            block.first_line -= 1;
        }
        Ok((!block.bytes.is_empty()).then_some(block))
    }

    /// Looks at bytes from `seen` on; where the last record ends that ends there.
    fn cut(&mut self, block: &mut [u8], seen: usize) -> Option<usize> {
        match self.records {
            Records::Lines => memrchr(b'\n', &block[seen..]).map(|at| seen + at + 1),
            Records::Separated(separators) => self.state.cut_separated(block, seen, separators),
            Records::Values => self.state.cut_values(block, seen),
        }
    }
}

/// The reader of separated values checks the values of many records as one text: a character whose bytes two of them share
/// would leave both with a text that is none.
fn check_text(block: &[u8], first_line: u64) -> io::Result<()> {
    let Err(error) = std::str::from_utf8(block) else { return Ok(()) };
    let before = memchr_iter(b'\n', &block[..error.valid_up_to()]).count() as u64;
    let line = first_line + before;
    let cause = format!("line {line} is not UTF-8: convert the file first (iconv -t UTF-8)");
    Err(io::Error::new(io::ErrorKind::InvalidData, cause))
}

/// What the reader of separated values takes for the end of a record. Blocks are cut behind newlines alone: whether one
/// follows is not always known.
fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

impl State {
    fn cut_separated(
        &mut self,
        block: &[u8],
        seen: usize,
        separators: Separators,
    ) -> Option<usize> {
        let Separators { delimiter, quote, escape } = separators;
        // What no text has is looked for where there is no escape.
        let escape = escape.unwrap_or(Separators::NO_QUOTE);
        let is_plain = matches!(self.place, Place::Start | Place::Inside);
        if is_plain && memchr(quote, &block[seen..]).is_none() {
            self.place = match block.last() {
                Some(last) if *last == delimiter || is_line_end(*last) => Place::Start,
                _ if block.len() == seen => self.place,
                _ => Place::Inside,
            };
            return memrchr(b'\n', &block[seen..]).map(|at| seen + at + 1);
        }
        let (mut end, mut at) = (None, seen);
        while at < block.len() {
            let byte = block[at];
            self.place = match (self.place, byte) {
                (Place::Escaped, _) => Place::Quoted,
                (Place::Start | Place::Escape, byte) if byte == quote => Place::Quoted,
                (Place::Quoted, byte) if byte == quote => Place::Escape,
                (Place::Quoted, byte) if byte == escape => Place::Escaped,
                (Place::Quoted, _) => {
                    let next = memchr2(quote, escape, &block[at..]);
                    at = next.map_or(block.len(), |next| at + next);
                    continue;
                }
                (_, b'\n') => {
                    end = Some(at + 1);
                    Place::Start
                }
                (_, byte) if byte == delimiter || is_line_end(byte) => Place::Start,
                _ => {
                    self.place = Place::Inside;
                    let next = memchr3(delimiter, b'\n', b'\r', &block[at..]);
                    at = next.map_or(block.len(), |next| at + next);
                    continue;
                }
            };
            at += 1;
        }
        end
    }

    /// Lays each value out on a line of its own as well.
    fn cut_values(&mut self, block: &mut [u8], seen: usize) -> Option<usize> {
        let (mut end, mut at) = (None, seen);
        while at < block.len() {
            let byte = block[at];
            match (self.place, byte) {
                (Place::Escape, _) => self.place = Place::Quoted,
                (Place::Quoted, b'\\') => self.place = Place::Escape,
                (Place::Quoted, b'"') => self.place = Place::Inside,
                (Place::Quoted, _) => {
                    at = memchr2(b'"', b'\\', &block[at..]).map_or(block.len(), |next| at + next);
                    continue;
                }
                (_, b'"') => self.place = Place::Quoted,
                (_, b'[') if self.depth == 0 && !self.in_array => {
                    self.in_array = true;
                    block[at] = b' ';
                }
                (_, b']') if self.depth == 0 && self.in_array => {
                    self.in_array = false;
                    block[at] = b' ';
                }
                (_, b',') if self.depth == 0 && self.in_array => {
                    block[at] = b'\n';
                    end = Some(at + 1);
                }
                (_, b'{' | b'[') => self.depth += 1,
                (_, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
                (_, b'\n' | b'\r') if self.depth > 0 => block[at] = b' ',
                (_, b'\n') => end = Some(at + 1),
                _ => {
                    let skip = memchr3(b'"', b'\n', b',', &block[at + 1..]);
                    let brackets = block[at + 1..]
                        .iter()
                        .take(skip.unwrap_or(block.len()))
                        .position(|b| matches!(b, b'{' | b'}' | b'[' | b']' | b'\r'));
                    at += 1 + brackets.or(skip).unwrap_or(block.len());
                    continue;
                }
            }
            at += 1;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn blocks(text: &str, records: Records, bytes: usize) -> Vec<(String, u64)> {
        let reader = Box::new(BufReader::with_capacity(3, io::Cursor::new(text.to_string())));
        let mut blocks = Blocks::new(reader, records, 1);
        let mut found = Vec::new();
        while let Some(block) = blocks.next(bytes).unwrap() {
            found.push((String::from_utf8(block.bytes).unwrap(), block.first_line));
        }
        found
    }

    #[test]
    fn what_is_no_text_is_told_by_its_line() {
        let commas = Records::Separated(Separators::of(b','));
        // Two bytes of a character that the quote's end of a record stands between.
        for text in [b"a\n\"\xc3\xa9\"\nx\xef\n\"\xbb\xbf\"\n".as_slice(), b"a\n\xc3\xa9\nb\xe9"] {
            let mut blocks = Blocks::new(Box::new(io::Cursor::new(text.to_vec())), commas, 1);
            let error = blocks.next(1 << 20).map(drop).unwrap_err();
            assert!(error.to_string().starts_with("line 3 is not UTF-8"), "{error}");
        }
    }

    #[test]
    fn a_long_list_is_a_table_in_any_alphabet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.json");
        for shift in ["", " "] {
            let text = format!("[{shift}{{\"a\": \"{}\"}}]", "é".repeat(1 << 20));
            std::fs::write(&path, text).unwrap();
            assert!(is_json_table(&path));
        }
    }

    /// Blocks are at least 64 KiB, so the texts are long.
    #[test]
    fn a_block_ends_with_a_record() {
        let filler = "x".repeat(10_000);
        let row = format!("\"a\n\"\"b\n\",5\" pipe,{filler}\n");
        let text = row.repeat(50);
        let found = blocks(&text, Records::Separated(Separators::of(b',')), 1);
        assert!(found.len() > 5);
        assert!(found.iter().all(|(block, _)| block.len() % row.len() == 0));
        assert_eq!(found.iter().map(|(block, _)| block.as_str()).collect::<String>(), text);
        let (first, second) = (&found[0], &found[1]);
        assert_eq!(second.1, 1 + first.0.matches('\n').count() as u64);
    }

    /// As the reader takes it: what follows is the beginning of a value, and may be quoted.
    #[test]
    fn a_carriage_return_ends_a_record_too() {
        let filler = "x".repeat(10_000);
        let row = format!("1,{filler}\r\"a\nb\",{filler}\n");
        let found = blocks(&row.repeat(50), Records::Separated(Separators::of(b',')), 1);
        assert!(found.len() > 5);
        assert!(found.iter().all(|(block, _)| block.len() % row.len() == 0));
    }

    #[test]
    fn json_of_any_layout_is_a_line_a_value() {
        let value = "{\"a\": \"},\\\"{\n\",\n \"b\": [1,\n {\"c\": 2}]}".replace("{\n\"", "{\"");
        for (text, expected) in [
            (format!("[{value},\n{value}\n]\n"), 2),
            (format!("{value}\n{value}"), 2),
            (format!("[{}]", vec![value.as_str(); 9_000].join(",")), 9_000),
            ("[]".to_string(), 0),
        ] {
            let found = blocks(&text, Records::Values, 1);
            let lines: Vec<&str> = found
                .iter()
                .flat_map(|(b, _)| b.lines())
                .filter(|l| !l.trim().is_empty())
                .collect();
            assert_eq!(lines.len(), expected, "{text:.60}");
            let parsed: Vec<_> = lines.iter().filter(|line| line.trim().ends_with("}]}")).collect();
            assert_eq!(parsed.len(), expected);
            assert!(expected < 9_000 || found.len() > 1);
        }
    }
}
