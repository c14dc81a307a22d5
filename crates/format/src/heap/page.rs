//! The header and the line pointers of a page.
//!
//! ```text
//! byte 0  pd_lsn       8   byte 14 pd_upper            2    byte 24.. line pointers up to pd_lower
//! byte 8  pd_checksum  2   byte 16 pd_special          2    pd_lower..pd_upper  free
//! byte 10 pd_flags     2   byte 18 pd_pagesize_version 2    pd_upper..pd_special tuples
//! byte 12 pd_lower     2   byte 20 pd_prune_xid        4
//!
//! line pointer, 32 bits: offset 15 (lowest) | state 2 | length 15
//! ```

use super::Reroute;
use super::bytes::{align_up, u16_at, u32_at};
use super::checksum::checksum;

pub(super) const HEADER_BYTES: usize = 24;
const POINTER_BYTES: usize = 4;
const LAYOUT_VERSION: usize = 4;
/// PD_HAS_FREE_LINES, PD_PAGE_FULL, PD_ALL_VISIBLE.
const KNOWN_FLAGS: u16 = 0x0007;
const ALL_VISIBLE: u16 = 0x0004;
/// The smallest tuple: a header without attributes, aligned.
pub(super) const MIN_TUPLE_BYTES: usize = 24;
/// Tuples start at multiples of 8 bytes.
const ALIGN_MASK: usize = 7;

/// Keeps only these line pointers of a page, counted from 1 and ascending; missing ones are skipped.
pub fn keep_lines(page: &mut [u8], lines: &[u16]) {
    let mut kept_end = HEADER_BYTES;
    for line in lines {
        let start = HEADER_BYTES + (usize::from(*line).max(1) - 1) * POINTER_BYTES;
        if start >= kept_end && start + POINTER_BYTES <= page.len() {
            page.copy_within(start..start + POINTER_BYTES, kept_end);
            kept_end += POINTER_BYTES;
        }
    }
    // A page has at most 32 kB.
    page[12..14].copy_from_slice(&(kept_end as u16).to_le_bytes());
}

/// The content of a line pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Unused,
    Normal { start: usize, bytes: usize },
    Redirect { line: usize },
    Dead,
}

/// A page with a sound header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page<'a> {
    pub(super) bytes: &'a [u8],
    lines: usize,
    upper: usize,
}

/// The bits of a line pointer that identify one of an aligned tuple.
const PLAIN_BITS: u32 = 0x0001_8007;
const PLAIN: u32 = 0x0000_8000;

impl<'a> Page<'a> {
    /// A page that claims that all its tuples are visible to everybody. Everything except its
    /// tuples is checked.
    pub(super) fn all_visible(
        bytes: &'a [u8],
        block_bytes: usize,
        checksum_of_block: Option<u32>,
    ) -> Result<Self, Reroute> {
        let (page, flags) = Self::open(bytes, block_bytes, checksum_of_block)?;
        if flags & ALL_VISIBLE == 0 {
            return Err(Reroute::NotAllVisible);
        }
        if !page.is_plain() {
            page.check_lines()?;
        }
        Ok(page)
    }

    /// A page whose relevant tuples are known.
    pub(super) fn any(bytes: &'a [u8], block_bytes: usize) -> Result<Self, Reroute> {
        Self::open(bytes, block_bytes, None).map(|(page, _)| page)
    }

    /// Checks the header; returns the page with its flags.
    fn open(
        bytes: &'a [u8],
        block_bytes: usize,
        checksum_of_block: Option<u32>,
    ) -> Result<(Self, u16), Reroute> {
        if bytes.len() != block_bytes {
            return Err(Reroute::Length { found_bytes: bytes.len(), block_bytes });
        }
        let header = |at| {
            let value = u16_at(bytes, at).map(usize::from);
            value.ok_or(Reroute::Header { flaw: "it is cut off" })
        };
        let (lower, upper, special) = (header(12)?, header(14)?, header(16)?);
        if upper == 0 && bytes.iter().all(|byte| *byte == 0) {
            return Err(Reroute::NewPage);
        }
        if let Some(block) = checksum_of_block {
            let (stored, computed) = (header(8)? as u16, checksum(bytes, block));
            if stored != computed {
                return Err(Reroute::Checksum { stored, computed });
            }
        }
        let flaw = |flaw| Err(Reroute::Header { flaw });
        if header(18)? != block_bytes | LAYOUT_VERSION {
            return flaw("its size or layout version is another");
        }
        if lower < HEADER_BYTES || lower > upper || upper > special {
            return flaw("its bounds are out of order");
        }
        if special != block_bytes {
            return flaw("it has a special space, which no heap has");
        }
        if !(lower - HEADER_BYTES).is_multiple_of(POINTER_BYTES) || upper & ALIGN_MASK != 0 {
            return flaw("its bounds are not aligned");
        }
        let flags = header(10)? as u16;
        if flags & !KNOWN_FLAGS != 0 {
            return flaw("it has unknown flags");
        }
        Ok((Self { bytes, lines: (lower - HEADER_BYTES) / POINTER_BYTES, upper }, flags))
    }

    /// Line pointers with their numbers, from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (u16, Line)> + use<'a> {
        (1_u16..).zip(self.pointers().map(Line::new))
    }

    fn pointers(&self) -> impl ExactSizeIterator<Item = u32> + Clone + use<'a> {
        let pointers = &self.bytes[HEADER_BYTES..HEADER_BYTES + self.lines * POINTER_BYTES];
        pointers.as_chunks::<4>().0.iter().map(|pointer| u32::from_le_bytes(*pointer))
    }

    /// Whether all line pointers are sound, of tuples in descending order: what
    /// [`check_lines`](Self::check_lines) finds for most pages, without a branch per line pointer.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        let (mut below, mut other) = (0, 0);
        let (upper, mut lowest) = (self.upper as i32, self.bytes.len() as i32);
        for pointer in self.pointers() {
            let (start, bytes) = ((pointer & 0x7FFF) as i32, (pointer >> 17) as i32);
            let end = (start + bytes + ALIGN_MASK as i32) & !(ALIGN_MASK as i32);
            // Negative if one of them is.
            below |= (bytes - MIN_TUPLE_BYTES as i32) | (start - upper) | (lowest - end);
            other |= (pointer & PLAIN_BITS) ^ PLAIN;
            lowest = start;
        }
        below >= 0 && other == 0
    }

    /// The range of the tuples.
    #[inline(always)]
    pub(super) fn tuples(&self, starts: &mut Vec<u16>, ends: &mut Vec<u16>) {
        starts.clear();
        ends.clear();
        let tuples = self.pointers();
        if tuples.clone().fold(0, |other, pointer| other | (pointer & PLAIN_BITS) ^ PLAIN) == 0 {
            starts.extend(tuples.clone().map(|pointer| (pointer & 0x7FFF) as u16));
            ends.extend(tuples.map(|pointer| ((pointer & 0x7FFF) + (pointer >> 17)) as u16));
            return;
        }
        for (_, line) in self.lines() {
            if let Line::Normal { start, bytes } = line {
                starts.push(start as u16);
                ends.push((start + bytes) as u16);
            }
        }
    }

    /// The position and size of a line pointer's tuple.
    pub(super) fn tuple(&self, line: u16) -> Result<(usize, usize), Reroute> {
        match self.line(line.into()) {
            Some(Line::Normal { start, bytes }) => {
                self.check_tuple(start, bytes)
                    .map_err(|flaw| Reroute::LinePointer { line, flaw })?;
                Ok((start, bytes))
            }
            _ => Err(Reroute::LinePointer { line, flaw: "it is no tuple's" }),
        }
    }

    /// Whether all tuples lie within their space.
    pub(super) fn has_sound_tuples(&self) -> bool {
        self.is_plain()
            || self.lines().all(|(_, line)| match line {
                Line::Normal { start, bytes } => self.check_tuple(start, bytes).is_ok(),
                _ => true,
            })
    }

    fn line(&self, number: usize) -> Option<Line> {
        let index = number.checked_sub(1).filter(|index| *index < self.lines)?;
        u32_at(self.bytes, HEADER_BYTES + index * POINTER_BYTES).map(Line::new)
    }

    fn check_lines(&self) -> Result<(), Reroute> {
        // Tuples are laid down from the end of the page; most pages keep that order.
        let mut lowest = self.bytes.len();
        let mut descending = true;
        for (number, line) in self.lines() {
            let flawed = |flaw| Reroute::LinePointer { line: number, flaw };
            match line {
                Line::Unused => {}
                Line::Normal { start, bytes } => {
                    let end = self.check_tuple(start, bytes).map_err(flawed)?;
                    descending &= end <= lowest;
                    lowest = start;
                }
                Line::Redirect { line } => {
                    if !matches!(self.line(line), Some(Line::Normal { .. })) {
                        return Err(flawed("it redirects to no tuple"));
                    }
                }
                Line::Dead => {
                    return Err(flawed("it is dead, which none is on an all-visible page"));
                }
            }
        }
        if descending { Ok(()) } else { self.check_overlaps() }
    }

    /// The end of the tuple's space, if it has one.
    #[inline]
    fn check_tuple(&self, start: usize, bytes: usize) -> Result<usize, &'static str> {
        let end = align_up(start + bytes, ALIGN_MASK);
        if bytes < MIN_TUPLE_BYTES {
            return Err("it is shorter than a tuple's header");
        }
        if start < self.upper || end > self.bytes.len() {
            return Err("it points out of the tuples' space");
        }
        if start & ALIGN_MASK != 0 {
            return Err("it is not aligned");
        }
        Ok(end)
    }

    /// Marks each tuple's bytes, eight to a bit.
    fn check_overlaps(&self) -> Result<(), Reroute> {
        let mut taken = [0_u64; 32768 / 8 / 64];
        for (number, line) in self.lines() {
            let Line::Normal { start, bytes } = line else { continue };
            for unit in start / 8..(start + bytes).div_ceil(8) {
                let (word, bit) = (&mut taken[unit / 64], 1 << (unit % 64));
                if *word & bit != 0 {
                    let flaw = "it overlaps another";
                    return Err(Reroute::LinePointer { line: number, flaw });
                }
                *word |= bit;
            }
        }
        Ok(())
    }
}

impl Line {
    fn new(pointer: u32) -> Self {
        let (low, high) = ((pointer & 0x7FFF) as usize, (pointer >> 17) as usize);
        match (pointer >> 15) & 3 {
            0 => Self::Unused,
            1 => Self::Normal { start: low, bytes: high },
            2 => Self::Redirect { line: low },
            _ => Self::Dead,
        }
    }
}
