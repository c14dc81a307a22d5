//! The rows of one column of a segment: its pages one after the other, NULLs among their values.

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBufferBuilder, NullBuffer};
use arrow_schema::ArrowError;
use headrace_ir::Encoding;

use super::bad::Bad;
use super::codec::Codec;
use super::encodings;
use super::fixed::place;
use super::header::{PageHeader, PageKind};
use super::runs::{Piece, Runs};
use super::values::Values;

/// Rows that are skipped together: their texts may be long.
const SKIPPED_ROWS: usize = 256;

/// Where the bytes of a page are.
enum Body {
    Input(Range<usize>),
    /// In the reader's own buffer, from its front on.
    Own(usize),
}

/// The levels of a page that may have NULLs.
struct Levels {
    runs: Runs,
    /// The byte behind them.
    end: usize,
    /// Levels of the deprecated kind, as runs; empty: they lie in the page.
    own: Vec<u8>,
}

impl Levels {
    fn new(at: usize, end: usize, own: Vec<u8>) -> Self {
        Self { runs: Runs::of_levels(at), end, own }
    }
}

/// The levels of a page, and where its values begin.
type PageFront = (Option<Levels>, usize);

const LEVELS_CUT: &str = "the levels of a page are cut off";

/// What is known of a column chunk.
pub(super) struct ChunkFacts {
    pub codec: Codec,
    pub may_have_nulls: bool,
    /// Rows of the pages that were not begun.
    pub rows: usize,
    /// Of a page, decompressed.
    pub page_bytes_max: usize,
}

/// Reads the rows of a column.
pub(super) struct ColumnReader {
    values: Box<dyn Values>,
    chunk: ChunkFacts,
    /// The next page.
    at: usize,
    /// Rows that are left of the current page.
    page_rows: usize,
    body: Body,
    own: Vec<u8>,
    levels: Option<Levels>,
    /// Rows to skip.
    skip: usize,
    validity: BooleanBufferBuilder,
    has_nulls: bool,
}

impl ColumnReader {
    pub fn new(values: Box<dyn Values>) -> Self {
        Self::with_room(values, Vec::new())
    }

    /// One that decompresses pages to memory that is there.
    pub fn with_room(values: Box<dyn Values>, own: Vec<u8>) -> Self {
        Self {
            values,
            chunk: ChunkFacts {
                codec: Codec::Plain,
                may_have_nulls: false,
                rows: 0,
                page_bytes_max: 0,
            },
            at: 0,
            page_rows: 0,
            body: Body::Own(0),
            own,
            levels: None,
            skip: 0,
            validity: BooleanBufferBuilder::new(0),
            has_nulls: false,
        }
    }

    /// The memory of pages, for another reader.
    pub fn into_room(self) -> Vec<u8> {
        self.own
    }

    /// Begins with a column chunk, at one of its rows.
    pub fn begin(&mut self, chunk: ChunkFacts, first_row: usize) {
        self.chunk = chunk;
        (self.at, self.page_rows, self.skip) = (0, 0, first_row);
        self.clear();
        self.values.begin();
    }

    /// As [`Values::text_bytes`].
    pub fn text_bytes(&self) -> (usize, usize) {
        self.values.text_bytes()
    }

    fn clear(&mut self) {
        self.values.clear();
        self.validity.truncate(0);
        self.has_nulls = false;
    }

    /// The byte of the chunk behind the last page that was begun.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next rows of the chunk, whose bytes are given.
    pub fn read(&mut self, input: &[u8], rows: usize) -> Result<(), Bad> {
        while self.skip > 0 {
            if self.page_rows == 0 {
                self.next_page(input)?;
            }
            let rows = self.skip.min(self.page_rows).min(SKIPPED_ROWS);
            self.take(input, rows)?;
            self.skip -= rows;
            self.clear();
        }
        let mut left = rows;
        while left > 0 {
            if self.page_rows == 0 {
                self.next_page(input)?;
            }
            let rows = left.min(self.page_rows);
            self.take(input, rows)?;
            left -= rows;
        }
        Ok(())
    }

    /// Puts the rows that were read to where those from one on lie in a plain column: values, unless they are not wanted,
    /// and validity, if it is.
    pub fn put(
        &mut self,
        row: usize,
        values: Option<(&Encoding, &mut [u8])>,
        validity: Option<&mut [u8]>,
    ) -> Result<(), Bad> {
        if let Some(into) = validity {
            let rows = self.validity.len();
            let bytes = place(into, row / 8, rows.div_ceil(8))?;
            bytes.copy_from_slice(self.validity.as_slice());
            if let (rest @ 1.., Some(last)) = (rows % 8, bytes.last_mut()) {
                *last &= (1 << rest) - 1;
            }
        }
        if let Some((encoding, into)) = values {
            self.values.put(encoding, row, into)?;
        }
        self.clear();
        Ok(())
    }

    /// The array of the rows that were read.
    pub fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let validity = self.validity.finish();
        let nulls = self.has_nulls.then(|| NullBuffer::new(validity));
        self.has_nulls = false;
        self.values.finish(nulls)
    }

    /// Begins the next page that has rows which are not all skipped.
    fn next_page(&mut self, input: &[u8]) -> Result<(), Bad> {
        while self.page_rows == 0 {
            let rest = input.get(self.at..).filter(|rest| !rest.is_empty());
            let rest =
                rest.ok_or_else(|| Bad::new("the pages have fewer rows than their row group"))?;
            let header = PageHeader::read(rest)?;
            let from = self.at + header.header_bytes;
            let stored = from..from + header.stored_bytes;
            if stored.end > input.len() {
                return Err(Bad::new(format!(
                    "a page of {} bytes is cut off",
                    header.stored_bytes
                )));
            }
            self.at = stored.end;
            if matches!(header.kind, PageKind::Data { .. } | PageKind::DataV2 { .. }) {
                let left = self.chunk.rows.checked_sub(header.values);
                let beyond = || Bad::new("the pages have more rows than their row group");
                self.chunk.rows = left.ok_or_else(beyond)?;
            }
            match header.kind {
                PageKind::Other => {}
                PageKind::Dictionary { encoding } => {
                    if !matches!(encoding, encodings::PLAIN | encodings::PLAIN_DICTIONARY) {
                        return Err(Bad::encoding(encoding));
                    }
                    self.load(input, stored, header.plain_bytes, 0)?;
                    self.values
                        .set_dictionary(page(&self.body, &self.own, input), header.values)?;
                }
                PageKind::Data { .. } | PageKind::DataV2 { .. } if header.values <= self.skip => {
                    self.skip -= header.values;
                }
                PageKind::Data { encoding, level_encoding } => {
                    self.load(input, stored, header.plain_bytes, 0)?;
                    let levels = self.levels_before(input, header.values, level_encoding)?;
                    self.begin_page(input, header.values, encoding, levels)?;
                }
                PageKind::DataV2 { encoding, level_bytes, is_compressed } => {
                    let plain = if is_compressed { level_bytes } else { stored.len() };
                    self.load(input, stored, header.plain_bytes, plain)?;
                    let has_levels = self.chunk.may_have_nulls && level_bytes > 0;
                    let levels = has_levels.then(|| Levels::new(0, level_bytes, Vec::new()));
                    self.begin_page(input, header.values, encoding, (levels, level_bytes))?;
                }
            }
        }
        Ok(())
    }

    /// The bytes of a page, of which the first `plain` are not compressed.
    fn load(
        &mut self,
        input: &[u8],
        stored: Range<usize>,
        size: usize,
        plain: usize,
    ) -> Result<(), Bad> {
        if matches!(self.chunk.codec, Codec::Plain) || plain == stored.len() {
            self.body = Body::Input(stored);
            return Ok(());
        }
        if size > self.chunk.page_bytes_max {
            return Err(Bad::new(format!("a page of {size} bytes in a smaller column chunk")));
        }
        let stored = &input[stored];
        let (Some((levels, stored)), true) = (stored.split_at_checked(plain), plain <= size) else {
            return Err(Bad::new(LEVELS_CUT));
        };
        if self.own.len() < size {
            let more = size - self.own.len();
            let refused = |cause| Bad::new(format!("a page of {size} bytes: {cause}"));
            self.own.try_reserve(more).map_err(refused)?;
            self.own.resize(size, 0);
        }
        let (own_levels, own) = self.own[..size].split_at_mut(plain);
        own_levels.copy_from_slice(levels);
        self.chunk.codec.decompress(stored, own)?;
        self.body = Body::Own(size);
        Ok(())
    }

    /// The levels at the front of a page of the first version, and where its values begin.
    fn levels_before(&self, input: &[u8], rows: usize, encoding: i32) -> Result<PageFront, Bad> {
        let page = page(&self.body, &self.own, input);
        let cut = || Bad::new(LEVELS_CUT);
        Ok(match (self.chunk.may_have_nulls, encoding) {
            (false, _) => (None, 0),
            (true, encodings::RLE) => {
                let bytes = u32::from_le_bytes(*page.first_chunk().ok_or_else(cut)?);
                let end = 4 + bytes as usize;
                (Some(Levels::new(4, end, Vec::new())), end)
            }
            (true, encodings::BIT_PACKED) => {
                let bytes = rows.div_ceil(8);
                let own = packed_run(page.get(..bytes).ok_or_else(cut)?);
                (Some(Levels::new(0, own.len(), own)), bytes)
            }
            (true, other) => return Err(Bad::encoding(other)),
        })
    }

    fn begin_page(
        &mut self,
        input: &[u8],
        rows: usize,
        encoding: i32,
        (levels, at): PageFront,
    ) -> Result<(), Bad> {
        let page = page(&self.body, &self.own, input);
        if at > page.len() {
            return Err(Bad::new(LEVELS_CUT));
        }
        self.levels = levels;
        self.values.begin_page(encoding, page, at, rows)?;
        self.page_rows = rows;
        Ok(())
    }

    /// Appends rows of the current page, which has as many.
    fn take(&mut self, input: &[u8], rows: usize) -> Result<(), Bad> {
        let page = page(&self.body, &self.own, input);
        self.page_rows -= rows;
        let Some(Levels { runs, end, own }) = &mut self.levels else {
            self.validity.append_n(rows, true);
            return self.values.append(page, rows);
        };
        let levels = &(if own.is_empty() { page } else { own })[..*end];
        let mut left = rows;
        while left > 0 {
            left -= match runs.next(levels, left)? {
                Piece::Same(1, count) => {
                    self.validity.append_n(count, true);
                    self.values.append(page, count)?;
                    count
                }
                Piece::Same(_, count) => {
                    self.validity.append_n(count, false);
                    self.has_nulls = true;
                    self.values.append_nulls(count);
                    count
                }
                Piece::Each(levels) => {
                    let there = levels.iter().filter(|&&level| level == 1).count();
                    self.values.append(page, there)?;
                    if there == levels.len() {
                        self.validity.append_n(there, true);
                    } else {
                        self.has_nulls = true;
                        self.values.spread(levels, there);
                        levels.iter().for_each(|&level| self.validity.append(level == 1));
                    }
                    levels.len()
                }
            };
        }
        Ok(())
    }
}

fn page<'a>(body: &Body, own: &'a [u8], input: &'a [u8]) -> &'a [u8] {
    match body {
        Body::Input(range) => &input[range.clone()],
        Body::Own(size) => &own[..*size],
    }
}

/// Levels of one bit from the highest bit of a byte down, as a run from the lowest up.
fn packed_run(levels: &[u8]) -> Vec<u8> {
    let mut run = Vec::with_capacity(levels.len() + 5);
    let mut header = (levels.len() as u64) << 1 | 1;
    while header >= 0x80 {
        run.push(header as u8 | 0x80);
        header >>= 7;
    }
    run.push(header as u8);
    run.extend(levels.iter().map(|byte| byte.reverse_bits()));
    run
}
