//! Integers as differences from the ones before (`DELTA_BINARY_PACKED`), and texts whose lengths are such integers.

use super::bad::Bad;
use super::runs::{GROUP, unpack_group};

/// Values of a page at most: of equal ones a few bytes say how many there are.
const VALUES_MAX: usize = 1 << 26;

/// The integers that begin at a byte, which then is the one behind them; of more than `most` is an error.
pub(super) fn integers(bytes: &[u8], at: &mut usize, most: usize) -> Result<Vec<i64>, Bad> {
    let mut input = Input { bytes, at: *at };
    let block = input.size("values of a block")?;
    let parts = input.size("parts of a block")?;
    let count = input.size("values")?;
    let first = input.integer()?;
    if count > most.min(VALUES_MAX) {
        return Err(Bad::new(format!("{count} differences in a page of {most} values")));
    }
    if block == 0
        || parts == 0
        || !block.is_multiple_of(parts)
        || !(block / parts).is_multiple_of(GROUP)
    {
        return Err(Bad::new(format!("differences in blocks of {block} values in {parts} parts")));
    }
    let mut values = Vec::new();
    let refused = |cause| Bad::new(format!("{count} differences: {cause}"));
    values.try_reserve_exact(count).map_err(refused)?;
    if count > 0 {
        values.push(first);
    }
    let mut last = first;
    while values.len() < count {
        let least = input.integer()?;
        let widths = input.take(parts)?;
        for &bits in widths {
            if values.len() == count {
                break;
            }
            // What pads the last part may be missing.
            let size = (block / parts).saturating_mul(bits.into()) / 8;
            let wanted = (block / parts).min(count - values.len());
            let there = input.bytes.len() - input.at;
            if bits > 64 || there < (wanted * usize::from(bits)).div_ceil(8) {
                return Err(Bad::new(format!("differences of {bits} bits are cut off")));
            }
            let packed = input.take(size.min(there))?;
            for difference in Packed::new(packed, bits.into()).take(wanted) {
                last = last.wrapping_add(least).wrapping_add(difference as i64);
                values.push(last);
            }
        }
    }
    *at = input.at;
    Ok(values)
}

/// Lengths, which are not negative.
pub(super) fn lengths(bytes: &[u8], at: &mut usize, most: usize) -> Result<Vec<u32>, Bad> {
    let negative = |_| Bad::new("a text of a length that is none");
    integers(bytes, at, most)?
        .into_iter()
        .map(|length| u32::try_from(length).map_err(negative))
        .collect()
}

/// Values of one width each. Each begins as the one before it; their bytes follow each other.
pub(super) fn prefixed(page: &[u8], at: usize, most: usize, width: usize) -> Result<Vec<u8>, Bad> {
    let mut at = at;
    let prefixes = lengths(page, &mut at, most)?;
    let rests = lengths(page, &mut at, most)?;
    let mut values: Vec<u8> = Vec::new();
    for (prefix, rest) in prefixes.into_iter().zip(rests) {
        let (prefix, rest) = (prefix as usize, rest as usize);
        let before = values.len().saturating_sub(width);
        let bytes = page.get(at..).and_then(|bytes| bytes.get(..rest));
        let bytes = bytes.filter(|_| prefix.checked_add(rest) == Some(width));
        let (Some(bytes), true) = (bytes, before + prefix <= values.len()) else {
            return Err(Bad::new(format!("a value that does not have {width} bytes")));
        };
        values.extend_from_within(before..before + prefix);
        values.extend(bytes);
        at += rest;
    }
    Ok(values)
}

/// Numbers of up to 64 bits each.
struct Packed<'a> {
    packed: &'a [u8],
    bits: u32,
    group: [u32; GROUP],
    next: usize,
}

impl<'a> Packed<'a> {
    fn new(packed: &'a [u8], bits: u32) -> Self {
        Self { packed, bits, group: [0; GROUP], next: 0 }
    }

    /// A number of more than 32 bits, by its bytes.
    fn wide(&self) -> u64 {
        let from = self.next * self.bits as usize;
        let bytes = self.packed.get(from / 8..).unwrap_or_default();
        let mut padded = [0; 16];
        let there = bytes.len().min(16);
        padded[..there].copy_from_slice(&bytes[..there]);
        let mask = u64::MAX >> (64 - self.bits);
        (u128::from_le_bytes(padded) >> (from % 8)) as u64 & mask
    }
}

impl Iterator for Packed<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let value = if self.bits > 32 {
            self.wide()
        } else {
            if self.next.is_multiple_of(GROUP) {
                let from = self.next / GROUP * self.bits as usize * GROUP / 8;
                let packed = self.packed.get(from..).unwrap_or_default();
                unpack_group(self.bits, packed, &mut self.group);
            }
            self.group[self.next % GROUP].into()
        };
        self.next += 1;
        Some(value)
    }
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn varint(&mut self) -> Result<u64, Bad> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Bad::new("a difference of more than 64 bits"))
    }

    fn integer(&mut self) -> Result<i64, Bad> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn size(&mut self, what: &str) -> Result<usize, Bad> {
        let size = self.varint()?;
        let fits = usize::try_from(size).ok().filter(|&size| size <= i32::MAX as usize);
        fits.ok_or_else(|| Bad::new(format!("{size} {what} of differences")))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count));
        self.at += count;
        taken.ok_or_else(|| Bad::new("differences are cut off"))
    }
}
