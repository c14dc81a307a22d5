//! Heap pages as columns, by a kernel that walks their tuples: what it is told, where it writes, and
//! what it says.
//!
//! ```text
//! PagePlan + registers that are read ──► PageDecoding: words of the walk, places of the columns
//!
//! pages ──kernel──► a verdict a page ──host, owner──► first rows ──kernel──► columns of their rows
//! ```
//!
//! The kernel (`kernels/pages.cu`) runs twice over a chunk, since how many rows come before a page is
//! known when all verdicts are there, and whether a page still holds may be asked only when it was
//! copied. The columns lie as those of a segment of a file do: whatever kernel reads those reads these.
//! Texts stay in their pages, which must outlive the kernels that read the columns.

use headrace_gpu::Source;
use headrace_ir::Segment;
use headrace_ir::pages::{
    HoldAnswer, Length, MissingValue, PageFlaw, PagePlan, PageStep, PageVerdict, StoredValue,
};
use headrace_pipeline::WhyNot;

use crate::headers::HEADERS;
use crate::layout::ColumnForm;

/// Name of the kernel.
pub const PAGES_KERNEL_NAME: &str = "headrace_pages";

/// Threads of a block of it, which takes a page.
pub(crate) const PAGE_BLOCK_THREADS: u32 = 64;

/// Bytes of a page's entry in the kernel's table, and of its verdict.
pub const PAGE_ENTRY_BYTES: usize = 16;
/// As above.
pub const PAGE_VERDICT_BYTES: usize = 8;

/// The first row of a page that is not taken.
pub const NOT_TAKEN: u32 = u32::MAX;

/// Where parts of the columns' memory begin.
const ALIGN_BYTES: u64 = 256;

/// Of a step.
const STEP_WORDS: usize = 7;

/// A header of a page, of a tuple, and a line pointer.
const PAGE_HEADER_BYTES: u32 = 24;
const TUPLE_HEADER_BYTES: u32 = 24;
const LINE_BYTES: u32 = 4;

/// The kernel's source.
pub fn pages_source() -> Source<'static> {
    Source { name: "pages.cu", text: include_str!("../kernels/pages.cu"), headers: &HEADERS }
}

/// Whose pages a run decodes.
pub trait PageOwner: Send + Sync + std::fmt::Debug {
    /// The number of a segment's first page, which is in its checksum.
    fn first_block(&self, segment: &Segment) -> u32;

    /// Asks which of a segment's pages, whose bytes were read from their file, are still what they were
    /// when they were listed. Once a segment.
    fn ask(&self, segment: &Segment, pages: usize) -> HoldAnswer;

    /// What came of the pages of a segment, each told once: before the rows of those that are taken
    /// count.
    fn settle(&self, segment: &Segment, verdicts: &[PageVerdict]);

    /// So many rows of so many pages, which a device has kept, count: nobody looks at these pages.
    fn kept(&self, pages: usize, rows: u32);
}

/// A column of the rows in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageColumn {
    /// The source register.
    pub register: usize,
    /// How it lies.
    pub form: ColumnForm,
    /// Whether it has a validity bitmap.
    pub nullable: bool,
    value_bytes: u64,
}

impl PageColumn {
    /// Bytes of so many of its values; of bits, whole words.
    pub(crate) fn values_bytes(&self, rows: u32) -> u64 {
        match self.form {
            ColumnForm::Bits => bitmap_bytes(rows),
            _ => u64::from(rows) * self.value_bytes,
        }
    }
}

/// Bytes of a bitmap of so many rows, in whole words.
pub(crate) fn bitmap_bytes(rows: u32) -> u64 {
    u64::from(rows.div_ceil(32)) * 4
}

/// Where the columns of so many rows lie: offsets of values and validity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnPlaces {
    /// By column.
    pub columns: Vec<(u64, Option<u64>)>,
    /// Bytes of all bitmaps, which come first and must be zero before.
    pub bitmap_bytes: u64,
    /// Of all.
    pub bytes: u64,
}

/// Where a launch finds what it needs, and which of the two it is.
#[derive(Clone, Copy, Debug)]
pub enum PagePass {
    /// Verdicts of [`PAGE_VERDICT_BYTES`] go to this address.
    Check(u64),
    /// Columns go to the places in the table at this address.
    Decode(u64),
}

/// How pages become columns.
#[derive(Clone, Debug)]
pub struct PageDecoding {
    block_bytes: u32,
    checksums: bool,
    attributes: u32,
    rows_max: u32,
    step_count: u32,
    words: Vec<u64>,
    columns: Vec<PageColumn>,
}

impl PageDecoding {
    /// Of a plan, the columns of these registers.
    ///
    /// # Errors
    /// A register that the plan has no column for.
    pub fn new(plan: &PagePlan, read: &[usize]) -> Result<Self, WhyNot> {
        let place = |step: &PageStep| {
            let (register, stored) = step.wanted?;
            read.iter().position(|read| *read == register).map(|place| (place, stored))
        };
        let steps = plan.steps.iter().rposition(|step| place(step).is_some());
        let steps = &plan.steps[..steps.map_or(0, |last| last + 1)];
        let columns = read.iter().enumerate().map(|(number, &register)| {
            let step = steps.iter().find(|s| place(s).is_some_and(|(place, _)| place == number));
            let found = step.and_then(|step| step.wanted.map(|(_, stored)| (step, stored)));
            let (step, stored) = found.ok_or_else(|| {
                WhyNot::new(format!("column {register} of heap pages is not decoded on a GPU"))
            })?;
            Ok(PageColumn {
                register,
                form: match stored {
                    StoredValue::Bool => ColumnForm::Bits,
                    StoredValue::Text => ColumnForm::Text,
                    _ => ColumnForm::Plain,
                },
                nullable: !step.not_null,
                value_bytes: stored.column_bytes() as u64,
            })
        });
        Ok(Self {
            block_bytes: plan.block_bytes,
            checksums: plan.checksums,
            attributes: plan.attributes,
            rows_max: rows_max(plan.block_bytes, steps),
            step_count: steps.len() as u32,
            words: words(steps, place),
            columns: columns.collect::<Result<_, _>>()?,
        })
    }

    /// Bytes of a page.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes as usize
    }

    /// The columns.
    pub fn columns(&self) -> &[PageColumn] {
        &self.columns
    }

    /// Rows of a page at most: what does not fit is not sound.
    pub fn rows_max(&self) -> u64 {
        self.rows_max.into()
    }

    /// The walk, as the kernel reads it from device memory, and texts that older tuples have: columns
    /// refer to these too.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Shared memory of a block of the kernel: the page, and a little behind it to read numbers from;
    /// bits of its tuples and line pointers; sums and flags.
    pub fn shared_bytes(&self) -> u32 {
        let page = self.block_bytes;
        page + 16 + page / 64 + page / 32 + 32 * 4 + 16
    }

    /// Where the columns of up to `rows` rows lie.
    pub fn places(&self, rows: u64) -> ColumnPlaces {
        let mut bytes = 0;
        let mut take = |of_part: u64| {
            let at = bytes;
            bytes += of_part.next_multiple_of(ALIGN_BYTES);
            at
        };
        let bitmap = rows.div_ceil(32) * 4;
        let columns = self.columns.iter();
        let bitmaps: Vec<_> = columns
            .map(|column| {
                let values = (column.form == ColumnForm::Bits).then(|| take(bitmap));
                (values, column.nullable.then(|| take(bitmap)))
            })
            .collect();
        let bitmap_bytes = take(0);
        let place = |(column, (values, validity)): (&PageColumn, (Option<u64>, Option<u64>))| {
            (values.unwrap_or_else(|| take(rows * column.value_bytes)), validity)
        };
        let columns = self.columns.iter().zip(bitmaps).map(place).collect();
        ColumnPlaces { columns, bitmap_bytes, bytes }
    }

    /// The parameter struct of `pages.cu`, field by field: `pages` entries lie at `table`, the
    /// [words](Self::words) at `steps`.
    pub fn params(&self, (table, pages): (u64, u32), steps: u64, pass: PagePass) -> [u64; 10] {
        let (checksums, verdicts, columns) = match pass {
            PagePass::Check(verdicts) => (self.checksums, verdicts, 0),
            PagePass::Decode(columns) => (false, 0, columns),
        };
        let (pages, step_count) = (u64::from(pages), u64::from(self.step_count));
        let (block_bytes, checksums) = (u64::from(self.block_bytes), u64::from(checksums));
        let (attributes, rows_max) = (u64::from(self.attributes), u64::from(self.rows_max));
        let facts = [block_bytes, checksums, attributes, rows_max];
        let [block_bytes, checksums, attributes, rows_max] = facts;
        [
            table, pages, steps, step_count, block_bytes, checksums, attributes, rows_max,
            verdicts, columns,
        ]
    }
}

/// A page's entry in the kernel's table.
pub fn page_entry(address: u64, block: u32, first_row: u32) -> [u8; PAGE_ENTRY_BYTES] {
    let facts = u64::from(block) | u64::from(first_row) << 32;
    (u128::from(address) | u128::from(facts) << 64).to_le_bytes()
}

/// Changes the first row of an entry.
pub(crate) fn set_first_row(entry: &mut [u8; PAGE_ENTRY_BYTES], first_row: u32) {
    entry[12..].copy_from_slice(&first_row.to_le_bytes());
}

/// A verdict as the kernel writes it.
pub fn page_verdict(bytes: [u8; PAGE_VERDICT_BYTES]) -> PageVerdict {
    let word = u64::from_le_bytes(bytes);
    let (flaw, detail) = (word as u32, (word >> 32) as u32);
    let about = (flaw >> 8) as u16;
    PageVerdict::Flawed(match flaw & 0xFF {
        _ if flaw == u32::MAX => return PageVerdict::Rows(detail),
        1 => PageFlaw::New,
        2 => PageFlaw::Checksum { stored: detail as u16, computed: (detail >> 16) as u16 },
        4 => PageFlaw::NotAllVisible,
        5 => PageFlaw::Line(about),
        6 => PageFlaw::Tuple(about),
        7 => PageFlaw::External(about),
        8 => PageFlaw::Compressed(about),
        9 => PageFlaw::Value(about),
        _ => PageFlaw::Header,
    })
}

/// A tuple has all that may not be NULL and is nowhere missing; tuples begin at multiples of 8.
fn rows_max(block_bytes: u32, steps: &[PageStep]) -> u32 {
    let least = |step: &PageStep| match step.length {
        _ if !step.not_null || step.missing != MissingValue::Null => 0,
        Length::Fixed(bytes) => u32::from(bytes),
        // A header of a byte, or the zero at the end.
        Length::Varlena | Length::CString => 1,
    };
    let tuple = TUPLE_HEADER_BYTES + steps.iter().map(least).sum::<u32>();
    (block_bytes - PAGE_HEADER_BYTES) / (tuple.next_multiple_of(8) + LINE_BYTES)
}

/// Steps as `pages.cu` has them, then the texts that older tuples have; `place`: which column a step
/// becomes, and how.
fn words(
    steps: &[PageStep],
    place: impl Fn(&PageStep) -> Option<(usize, StoredValue)>,
) -> Vec<u64> {
    let mut words = Vec::with_capacity(steps.len() * STEP_WORDS);
    let mut texts = Vec::new();
    for step in steps {
        let text_at = steps.len() * STEP_WORDS * 8 + texts.len();
        words.extend(step_words(step, place(step), text_at as u64));
        if let MissingValue::Text(text) = &step.missing {
            texts.extend_from_slice(text);
        }
    }
    texts.resize(texts.len().next_multiple_of(8), 0);
    words.extend(texts.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
    words
}

/// A step as `pages.cu` has it; the text that it lacks begins at `text_at`.
fn step_words(
    step: &PageStep,
    wanted: Option<(usize, StoredValue)>,
    text_at: u64,
) -> [u64; STEP_WORDS] {
    const NOT_NULL: u64 = 1;
    const HAS_MISSING: u64 = 2;
    const OPAQUE_MISSING: u64 = 4;
    const WANTED: u64 = 8;
    const WORD: u64 = u32::MAX as u64;
    let length = match step.length {
        Length::Varlena => 0,
        Length::Fixed(bytes) => u64::from(bytes),
        Length::CString => WORD,
    };
    let (missing_flags, missing) = match &step.missing {
        MissingValue::Null => (0, 0),
        MissingValue::Value(bytes) => (HAS_MISSING, u128::from_le_bytes(*bytes)),
        MissingValue::Text(text) => (HAS_MISSING, u128::from(text_at) | (text.len() as u128) << 64),
        MissingValue::Opaque => (HAS_MISSING | OPAQUE_MISSING, 0),
    };
    let flags = missing_flags
        | if step.not_null { NOT_NULL } else { 0 }
        | if wanted.is_some() { WANTED } else { 0 };
    let (column, stored) = wanted.unwrap_or((0, StoredValue::Bool));
    let (value, scale, limit) = match stored {
        StoredValue::Bool => (0, 0, 0),
        StoredValue::Plain(2) => (1, 0, 0),
        StoredValue::Plain(4) => (2, 0, 0),
        StoredValue::Plain(_) => (3, 0, 0),
        StoredValue::Date => (4, 0, 0),
        StoredValue::Time => (5, 0, 0),
        StoredValue::Timestamp => (6, 0, 0),
        StoredValue::Numeric { precision, scale } => {
            (7, i32::from(scale), 10_u128.saturating_pow(precision.into()))
        }
        StoredValue::Text => (8, 0, 0),
    };
    let halves = |value: u128| [value as u64, (value >> 64) as u64];
    let ([limit, limit_high], [missing, missing_high]) = (halves(limit), halves(missing));
    [
        length | (step.align.mask() as u64) << 32,
        flags | value << 32,
        column as u64 | u64::from(scale as u32) << 32,
        limit,
        limit_high,
        missing,
        missing_high,
    ]
}
