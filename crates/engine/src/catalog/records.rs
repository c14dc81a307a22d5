//! Text files cut into blocks of whole records, so that many threads can read one file.
//!
//! What does not end where a record ends is an error: of a file that breaks off, no row is lost in silence.

use std::io::{self, BufRead, Read};

use memchr::{memchr, memchr_iter, memchr2, memchr3, memrchr};

use super::bytes::BYTE_ORDER_MARK;

/// What helps against quotes that mean nothing.
const QUOTE_HINT: &str = "\nhint: close it, or read quotes as letters: read_csv('..', quote => '')";

const STRAY_QUOTE: &str = "text follows a closing quote\nhint: double the quotes within a value, or read quotes as \
                           letters: read_csv('..', quote => '')";

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
    /// Begins lines that are no records.
    pub comment: Option<u8>,
}

impl Separators {
    /// No byte of a text: stands for no quote at all.
    pub const NO_QUOTE: u8 = 0xFF;

    /// Quotes that are doubled.
    pub fn of(delimiter: u8) -> Self {
        Self { delimiter, quote: b'"', escape: None, comment: None }
    }
}

/// Whole records.
pub struct Block {
    /// JSON has a line for each.
    pub bytes: Vec<u8>,
    /// Line of the file in which it begins, from 1.
    pub first_line: u64,
    /// Lines of the file in it.
    pub lines: u64,
    /// Whether nothing of the file's records comes before it.
    pub is_first: bool,
}

/// How long a record may be.
#[derive(Clone, Copy)]
enum RecordBytes {
    /// One that is longer is taken for a quote that nobody closed.
    Likely,
    /// As there is memory for.
    InMemory(usize),
}

impl RecordBytes {
    fn max(self) -> usize {
        match self {
            Self::Likely => 256 << 20,
            Self::InMemory(bytes) => bytes,
        }
    }

    fn exceeded(self, line: u64) -> String {
        match self {
            Self::Likely => format!(
                "the record that begins near line {line} is longer than {} MB: is a quote not closed?",
                self.max() >> 20
            ),
            Self::InMemory(bytes) => format!(
                "out of host memory: the record that begins near line {line} is longer than {:.1} MB, as much as the \
                 reader of a file may hold of the memory limit\nhint: raise the memory limit, or close a quote that is open",
                bytes as f64 / 1e6
            ),
        }
    }
}

/// A file's blocks.
pub struct Blocks {
    reader: Box<dyn BufRead + Send>,
    records: Records,
    state: State,
    /// The beginning of a record whose end was not seen yet.
    rest: Vec<u8>,
    /// Of a record.
    bytes_max: RecordBytes,
    line: u64,
    /// With which the first record begins.
    start_line: u64,
    is_begun: bool,
    is_done: bool,
}

#[derive(Clone, Copy, Default)]
struct State {
    place: Place,
    /// Of JSON: open objects and arrays.
    depth: usize,
    /// Of JSON: the records are members of an array, and what came last in it.
    member: Option<Member>,
    /// Of JSON: lines that ended.
    lines: u64,
}

/// What came last between the brackets of an array of records.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Bracket,
    Comma,
    Value,
}

/// What keeps bytes from being records: where, and why.
struct Broken {
    at: usize,
    cause: &'static str,
}

/// How far whole records go that end in the bytes at hand.
type Cut = Result<Option<usize>, Broken>;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// A record begins here, or a line that is none.
    #[default]
    Record,
    /// A value begins here.
    Start,
    Inside,
    Quoted,
    /// After a quote inside of quotes, or a backslash: what comes next says what it was.
    Escape,
    /// After what stands before a quote that is part of a value.
    Escaped,
    /// After a value that was quoted.
    Closed,
    Comment,
}

impl Blocks {
    /// Blocks of whatever the reader still has.
    pub fn new(reader: Box<dyn BufRead + Send>, records: Records, first_line: u64) -> Self {
        let (state, rest) = (State::default(), Vec::new());
        let (line, start_line) = (first_line, first_line);
        let bytes_max = RecordBytes::Likely;
        let (is_begun, is_done) = (false, false);
        Self { reader, records, state, rest, bytes_max, line, start_line, is_begun, is_done }
    }

    /// The same, of records of so many bytes at most, because there is no memory for more.
    pub fn within(self, bytes: Option<usize>) -> Self {
        let bytes = bytes.filter(|&bytes| bytes < RecordBytes::Likely.max());
        Self { bytes_max: bytes.map_or(self.bytes_max, RecordBytes::InMemory), ..self }
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
            end = match self.cut(&mut block, seen) {
                Ok(cut) => cut.unwrap_or(end),
                Err(broken) => return Err(self.broken(&block, first_line, &broken)),
            };
            if block.len() - end > self.bytes_max.max() {
                return Err(invalid(self.bytes_max.exceeded(first_line)));
            }
        }
        if self.is_done {
            self.check_end(&block, first_line, end)?;
        } else {
            self.rest = block.split_off(end);
            let unread = memchr_iter(b'\n', &self.rest).count() as u64;
            self.line = self.line.saturating_sub(unread);
        }
        if let Records::Separated(_) = self.records {
            check_text(&block, first_line)?;
        }
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let lines = self.line - first_line;
        let mut block = Block { bytes: block, first_line, lines, is_first };
        if !is_first && block.bytes.starts_with(BYTE_ORDER_MARK) {
            // The reader of a block would take it for that of a file; an empty line is no record.
            block.bytes.insert(0, b'\n');
            block.first_line -= 1;
        }
        Ok((!block.bytes.is_empty()).then_some(block))
    }

    /// Looks at bytes from `seen` on; where the last record ends that ends there.
    fn cut(&mut self, block: &mut [u8], seen: usize) -> Cut {
        match self.records {
            Records::Lines => Ok(memrchr(b'\n', &block[seen..]).map(|at| seen + at + 1)),
            Records::Separated(separators) => self.state.cut_separated(block, seen, separators),
            Records::Values => self.state.cut_values(block, seen),
        }
    }

    fn broken(&self, block: &[u8], first_line: u64, broken: &Broken) -> io::Error {
        let line = match self.records {
            Records::Values => self.start_line + self.state.lines,
            _ => first_line + memchr_iter(b'\n', &block[..broken.at]).count() as u64,
        };
        invalid(format!("line {line}: {}", broken.cause))
    }

    /// The file ends: so must its last record, which begins at `end` if it has no line end.
    fn check_end(&self, block: &[u8], first_line: u64, end: usize) -> io::Result<()> {
        let State { place, depth, member, lines, .. } = self.state;
        let last_line = self.start_line + lines;
        match self.records {
            Records::Separated(_) if matches!(place, Place::Quoted | Place::Escaped) => {
                let line = first_line + memchr_iter(b'\n', &block[..end]).count() as u64;
                Err(invalid(format!(
                    "line {line}: a quote is opened in this record and never closed{QUOTE_HINT}"
                )))
            }
            Records::Values if depth > 0 || matches!(place, Place::Quoted | Place::Escape) => {
                Err(invalid(format!("line {last_line}: the file ends within an object")))
            }
            Records::Values if member.is_some() => Err(invalid(format!(
                "line {last_line}: the file ends within its list: the closing ] is missing"
            ))),
            _ => Ok(()),
        }
    }
}

fn invalid(cause: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}

/// The reader of separated values checks the values of many records as one text: a character whose bytes two of them share
/// would leave both with a text that is none.
fn check_text(block: &[u8], first_line: u64) -> io::Result<()> {
    let Err(error) = std::str::from_utf8(block) else { return Ok(()) };
    let before = memchr_iter(b'\n', &block[..error.valid_up_to()]).count() as u64;
    let line = first_line + before;
    Err(invalid(format!(
        "line {line} is not UTF-8\nhint: name what it is: read_csv('..', encoding => 'latin-1'), or convert the \
         file first (iconv -t UTF-8)"
    )))
}

/// What the reader of separated values takes for the end of a record. Blocks are cut behind newlines alone: whether one
/// follows is not always known.
fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

impl State {
    fn cut_separated(&mut self, block: &[u8], seen: usize, separators: Separators) -> Cut {
        let Separators { delimiter, quote, escape, comment } = separators;
        // What no text has is looked for where there is no escape.
        let escape = escape.unwrap_or(Separators::NO_QUOTE);
        let is_plain = matches!(self.place, Place::Record | Place::Start | Place::Inside);
        if is_plain && comment.is_none() && memchr(quote, &block[seen..]).is_none() {
            self.place = match block.last() {
                Some(last) if *last == delimiter => Place::Start,
                Some(last) if is_line_end(*last) => Place::Record,
                _ if block.len() == seen => self.place,
                _ => Place::Inside,
            };
            return Ok(memrchr(b'\n', &block[seen..]).map(|at| seen + at + 1));
        }
        let (mut end, mut at) = (None, seen);
        while at < block.len() {
            let byte = block[at];
            let next = match (self.place, byte) {
                (Place::Escaped, _) => Place::Quoted,
                (Place::Record, byte) if Some(byte) == comment => Place::Comment,
                (Place::Record | Place::Start | Place::Escape, byte) if byte == quote => {
                    Place::Quoted
                }
                (Place::Quoted, byte) if byte == quote => Place::Escape,
                (Place::Quoted, byte) if byte == escape => Place::Escaped,
                (Place::Quoted, _) => {
                    let next = memchr2(quote, escape, &block[at..]);
                    at = next.map_or(block.len(), |next| at + next);
                    continue;
                }
                (_, b'\n') => {
                    end = Some(at + 1);
                    Place::Record
                }
                (Place::Comment, _) => {
                    at = memchr(b'\n', &block[at..]).map_or(block.len(), |next| at + next);
                    continue;
                }
                (_, b'\r') => Place::Record,
                (_, byte) if byte == delimiter => Place::Start,
                (Place::Escape | Place::Closed, b' ') => Place::Closed,
                (Place::Escape | Place::Closed, _) => {
                    return Err(Broken { at, cause: STRAY_QUOTE });
                }
                _ => {
                    self.place = Place::Inside;
                    let next = memchr3(delimiter, b'\n', b'\r', &block[at..]);
                    at = next.map_or(block.len(), |next| at + next);
                    continue;
                }
            };
            self.place = next;
            at += 1;
        }
        Ok(end)
    }

    /// Lays each value out on a line of its own as well.
    fn cut_values(&mut self, block: &mut [u8], seen: usize) -> Cut {
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
                (_, b'"') => {
                    self.member_continues();
                    self.place = Place::Quoted;
                }
                (_, b'[') if self.depth == 0 && self.member.is_none() => {
                    self.member = Some(Member::Bracket);
                    block[at] = b' ';
                }
                (_, b']') if self.depth == 0 && self.member.is_some() => {
                    if self.member == Some(Member::Comma) {
                        return Err(Broken { at, cause: "a value is missing before ]" });
                    }
                    self.member = None;
                    block[at] = b' ';
                }
                (_, b',') if self.depth == 0 && self.member.is_some() => {
                    if self.member != Some(Member::Value) {
                        return Err(Broken { at, cause: "a value is missing before a comma" });
                    }
                    self.member = Some(Member::Comma);
                    block[at] = b'\n';
                    end = Some(at + 1);
                }
                (_, b'{' | b'[') => {
                    if self.depth == 0 && self.member == Some(Member::Value) {
                        return Err(Broken { at, cause: "a comma is missing before a value" });
                    }
                    self.member_continues();
                    self.depth += 1;
                }
                (_, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(1);
                    // Others may follow in the same line.
                    if self.depth == 0 && self.member.is_none() {
                        end = Some(at + 1);
                    }
                }
                (_, b'\n') => {
                    self.lines += 1;
                    match self.depth {
                        0 => end = Some(at + 1),
                        _ => block[at] = b' ',
                    }
                }
                (_, b'\r') if self.depth > 0 => block[at] = b' ',
                _ => {
                    if !byte.is_ascii_whitespace() {
                        self.member_continues();
                    }
                    let skip = memchr3(b'"', b'\n', b',', &block[at + 1..]);
                    let brackets = block[at + 1..]
                        .iter()
                        .take(skip.unwrap_or(block.len()))
                        .position(|b| matches!(b, b'{' | b'}' | b'[' | b']' | b'\r'));
                    let letters = if byte.is_ascii_whitespace() {
                        let until = brackets.or(skip).unwrap_or(block.len() - at - 1);
                        block[at + 1..][..until].iter().position(|b| !b.is_ascii_whitespace())
                    } else {
                        None
                    };
                    at += 1 + letters.or(brackets).or(skip).unwrap_or(block.len());
                    continue;
                }
            }
            at += 1;
        }
        Ok(end)
    }

    /// Something of a member of the array stands here.
    fn member_continues(&mut self) {
        if self.depth == 0 && self.member.is_some() {
            self.member = Some(Member::Value);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::BufReader;

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
