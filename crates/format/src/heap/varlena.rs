//! Values of variable length.
//!
//! ```text
//! first byte  xxxxxxx1 (not 00000001)  7 bits: bytes in all; content follows; not aligned
//!             00000001                 a pointer into the TOAST table, its tag follows; not aligned
//!             xxxxxx00                 a word whose upper 30 bits are the bytes in all; content
//!             xxxxxx10                 such a word; then a word with the bytes that the content
//!                                      expands to (30 bits) and the method (2); compressed content
//! ```
//!
//! A zero byte where a value may start is padding up to its alignment: no short header is zero.

use super::bytes::{align_up, u32_at};
use super::pglz;

const EXTERNAL: u8 = 0x01;
/// VARTAG_ONDISK, the only kind of stored pointer, and its bytes with header and tag.
const EXTERNAL_ON_DISK: u8 = 18;
const EXTERNAL_BYTES: usize = 18;
const WORD_BYTES: usize = 4;
/// The maximum expansion per byte of any method (LZ4: 255 a byte of length, less its first bytes).
const MAX_EXPANSION: usize = 256;

/// Whether a value that starts so is an inline short one: `first >> 1` bytes in all.
#[inline(always)]
pub(super) fn is_short(first: u8) -> bool {
    first & 1 != 0 && first != EXTERNAL
}

/// The first byte of a value that starts at or after `at` and must end by `end`, and the byte after
/// it.
#[inline(always)]
pub(super) fn span(
    page: &[u8],
    at: usize,
    align_mask: usize,
    end: usize,
) -> Result<(usize, usize), &'static str> {
    const CUT: &str = "a value is longer than its tuple";
    let page = page.get(..end).ok_or(CUT)?;
    let first = *page.get(at).ok_or(CUT)?;
    if first & 1 != 0 {
        let bytes = match first {
            EXTERNAL if page.get(at + 1) == Some(&EXTERNAL_ON_DISK) => EXTERNAL_BYTES,
            EXTERNAL => return Err("a value is a pointer of an unknown kind"),
            _ => usize::from(first >> 1),
        };
        return (at + bytes <= end).then_some((at, at + bytes)).ok_or(CUT);
    }
    let aligned = align_up(at, align_mask);
    if first != 0 && aligned != at {
        return Err("a value is not aligned");
    }
    let word = u32_at(page, aligned).ok_or(CUT)?;
    let bytes = (word >> 2) as usize;
    if word & 1 != 0 || bytes < WORD_BYTES {
        return Err("a value has no header of its own");
    }
    (aligned + bytes <= end).then_some((aligned, aligned + bytes)).ok_or(CUT)
}

/// The content of a value.
pub(super) enum Content<'a> {
    /// These bytes.
    Plain(&'a [u8]),
    /// These bytes, expanded.
    Compressed(Compressed<'a>),
    /// The value is in the TOAST table.
    External,
}

/// A compressed value.
pub(super) struct Compressed<'a> {
    method: u32,
    bytes: &'a [u8],
    /// Bytes of the content.
    pub(super) raw_bytes: usize,
}

/// The value at `at`, found by [`span`].
#[inline]
pub(super) fn content(page: &[u8], at: usize) -> Result<Content<'_>, &'static str> {
    const CUT: &str = "a value is longer than its page";
    let first = *page.get(at).ok_or(CUT)?;
    if first == EXTERNAL {
        return Ok(Content::External);
    }
    if first & 1 != 0 {
        return page.get(at + 1..at + usize::from(first >> 1)).map(Content::Plain).ok_or(CUT);
    }
    let word = u32_at(page, at).ok_or(CUT)?;
    let bytes = page.get(at + WORD_BYTES..at + (word >> 2) as usize).ok_or(CUT)?;
    if word & 2 == 0 {
        return Ok(Content::Plain(bytes));
    }
    let (info, bytes) = (u32_at(bytes, 0).ok_or(CUT)?, &bytes[WORD_BYTES..]);
    let raw_bytes = (info & 0x3FFF_FFFF) as usize;
    if raw_bytes > bytes.len() * MAX_EXPANSION {
        return Err("a compressed value cannot be as long as it says");
    }
    Ok(Content::Compressed(Compressed { method: info >> 30, bytes, raw_bytes }))
}

impl Compressed<'_> {
    /// Fills `output`, of `raw_bytes`.
    pub(super) fn expand(&self, output: &mut [u8]) -> Result<(), &'static str> {
        let expanded = match self.method {
            0 => pglz::decompress(self.bytes, output),
            1 => lz4_flex::block::decompress_into(self.bytes, output)
                .ok()
                .and_then(|bytes| (bytes == output.len()).then_some(())),
            _ => return Err("a value is compressed by an unknown method"),
        };
        expanded.ok_or("a compressed value is damaged")
    }
}
