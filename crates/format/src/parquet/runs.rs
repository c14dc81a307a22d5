//! Runs of equal numbers, and of numbers of a few bits each: levels and codes of dictionaries.
//!
//! The bit-packed numbers of Parquet begin at the lowest bit of the first byte; a run has a multiple of eight.

use super::bad::Bad;

/// Numbers that are unpacked together.
const BLOCK: usize = 256;
/// Numbers that begin and end at a byte, whatever bits they have.
pub(super) const GROUP: usize = 32;

/// Where a reader of runs is. The bytes are given with each call.
pub(super) struct Runs {
    at: usize,
    bits: u32,
    /// Numbers left of the current run.
    left: usize,
    /// The number of a run of equal ones; `None`: they are packed.
    same: Option<u32>,
    block: Box<[u32; BLOCK]>,
    from: usize,
    to: usize,
}

/// Some of the next numbers.
pub(super) enum Piece<'a> {
    Same(u32, usize),
    Each(&'a [u32]),
}

impl Runs {
    /// From a byte on.
    pub fn new(at: usize, bits: u32) -> Result<Self, Bad> {
        if bits > 32 {
            return Err(Bad::new(format!("codes of {bits} bits")));
        }
        Ok(Self { bits, ..Self::of_levels(at) })
    }

    /// Numbers of one bit, from a byte on.
    pub fn of_levels(at: usize) -> Self {
        Self { at, bits: 1, left: 0, same: None, block: Box::new([0; BLOCK]), from: 0, to: 0 }
    }

    /// The codes that begin at a byte, which says how many bits each has.
    pub fn of_codes(page: &[u8], at: usize) -> Result<Self, Bad> {
        match page.get(at) {
            Some(&bits) => Self::new(at + 1, bits.into()),
            // A page of NULLs alone may have no byte.
            None => Self::new(at, 0),
        }
    }

    /// The next numbers, at least one and at most so many.
    pub fn next(&mut self, bytes: &[u8], wanted: usize) -> Result<Piece<'_>, Bad> {
        if self.from == self.to {
            while self.left == 0 {
                self.begin_run(bytes)?;
            }
            if let Some(same) = self.same {
                let count = wanted.min(self.left);
                self.left -= count;
                return Ok(Piece::Same(same, count));
            }
            self.unpack(bytes)?;
        }
        let from = self.from;
        self.from = self.to.min(from + wanted);
        Ok(Piece::Each(&self.block[from..self.from]))
    }

    fn begin_run(&mut self, bytes: &[u8]) -> Result<(), Bad> {
        let cut = || Bad::new("runs are cut off");
        let (mut header, mut shift) = (0u64, 0);
        loop {
            let byte = *bytes.get(self.at).ok_or_else(cut)?;
            self.at += 1;
            header |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 35 {
                return Err(Bad::new("a run of more than 32 bits"));
            }
        }
        let count = usize::try_from(header >> 1).map_err(|_| cut())?;
        if header & 1 == 1 {
            (self.same, self.left) = (None, count.saturating_mul(8));
            return Ok(());
        }
        let width = self.bits.div_ceil(8) as usize;
        let value = bytes.get(self.at..self.at + width).ok_or_else(cut)?;
        let mut four = [0; 4];
        four[..width].copy_from_slice(value);
        let value = u32::from_le_bytes(four);
        if value.checked_shr(self.bits).is_some_and(|beyond| beyond > 0) {
            return Err(Bad::new(format!("a number of more than {} bits", self.bits)));
        }
        self.at += width;
        (self.same, self.left) = (Some(value), count);
        Ok(())
    }

    /// Unpacks as many numbers of the run as fit the block. The last run of a page may lack bytes for numbers that pad it.
    fn unpack(&mut self, bytes: &[u8]) -> Result<(), Bad> {
        let count = self.left.min(BLOCK);
        let size = (count * self.bits as usize).div_ceil(8);
        let rest = bytes.get(self.at..).unwrap_or_default();
        let there = rest.len().min(size);
        let count = if there == size { count } else { there * 8 / self.bits as usize };
        if count == 0 {
            return Err(Bad::new("packed numbers are cut off"));
        }
        let group_bytes = self.bits as usize * GROUP / 8;
        let packed = &rest[..there];
        let groups = self.block.as_chunks_mut().0.iter_mut().take(count.div_ceil(GROUP));
        for (number, group) in groups.enumerate() {
            unpack_group(self.bits, &packed[number * group_bytes..], group);
        }
        self.at += there;
        self.left = if there == size { self.left - count } else { 0 };
        (self.from, self.to) = (0, count);
        Ok(())
    }
}

/// Unpacks [`GROUP`] numbers of so many bits.
fn unpack<const BITS: usize>(packed: &[u8], out: &mut [u32; GROUP]) {
    let mut words = [0u32; GROUP + 1];
    for (word, bytes) in words.iter_mut().zip(packed[..4 * BITS].as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    let mask = u32::MAX.checked_shr(32 - BITS as u32).unwrap_or(0);
    for (i, out) in out.iter_mut().enumerate() {
        let (word, shift) = (i * BITS / 32, i * BITS % 32);
        let both = u64::from(words[word]) | u64::from(words[word + 1]) << 32;
        *out = (both >> shift) as u32 & mask;
    }
}

/// Unpacks [`GROUP`] numbers of at most 32 bits each; fewer bytes than they take count as zeros.
pub(super) fn unpack_group(bits: u32, packed: &[u8], out: &mut [u32; GROUP]) {
    match packed.get(..bits as usize * GROUP / 8) {
        Some(packed) => UNPACK[bits as usize](packed, out),
        None => {
            let mut padded = [0; 4 * GROUP];
            padded[..packed.len()].copy_from_slice(packed);
            UNPACK[bits as usize](&padded, out);
        }
    }
}

type Unpack = fn(&[u8], &mut [u32; GROUP]);

macro_rules! unpack_of {
    ($($bits:literal)*) => { [$(unpack::<$bits>),*] };
}

/// By the number of bits.
static UNPACK: [Unpack; 33] = unpack_of!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn packed(values: &[u32], bits: u32) -> Vec<u8> {
        let mut bytes = vec![0; (values.len() * bits as usize).div_ceil(8)];
        for (i, value) in values.iter().enumerate() {
            for bit in 0..bits as usize {
                let at = i * bits as usize + bit;
                bytes[at / 8] |= ((value >> bit & 1) as u8) << (at % 8);
            }
        }
        bytes
    }

    fn read(bytes: &[u8], bits: u32, count: usize, step: usize) -> Result<Vec<u32>, Bad> {
        let mut runs = Runs::new(0, bits)?;
        let mut read = Vec::new();
        while read.len() < count {
            match runs.next(bytes, step.min(count - read.len()))? {
                Piece::Same(value, count) => read.extend(std::iter::repeat_n(value, count)),
                Piece::Each(values) => read.extend(values),
            }
        }
        Ok(read)
    }

    #[test]
    fn numbers_of_every_width_come_back_in_any_steps() {
        for bits in 0..=32 {
            let mask = u32::MAX.checked_shr(32 - bits).unwrap_or(0);
            let values: Vec<u32> =
                (0..1000u32).map(|i| i.wrapping_mul(2_654_435_761) & mask).collect();
            let mut bytes = vec![0x80 | (125 << 1 | 1) as u8, 1];
            bytes.extend(packed(&values, bits));
            // 70 times the same.
            bytes.extend([0x8c, 0x01]);
            bytes.extend(&mask.to_le_bytes()[..bits.div_ceil(8) as usize]);
            let mut wanted = values;
            wanted.extend([mask; 70]);
            for step in [1, 7, 32, 100, 5000] {
                assert_eq!(
                    read(&bytes, bits, 1070, step).unwrap(),
                    wanted,
                    "{bits} bits by {step}"
                );
            }
        }
    }

    #[test]
    fn runs_without_their_bytes_are_errors() {
        assert!(read(&[], 3, 1, 1).is_err());
        assert!(read(&[0x80; 9], 3, 1, 1).is_err());
        assert!(read(&[0x04], 9, 2, 2).is_err());
        assert!(read(&[0x03, 0xff], 5, 8, 8).is_err());
        // Those that are there are numbers.
        assert_eq!(read(&[0x03, 0xff], 5, 1, 1).unwrap(), [31]);
        assert!(Runs::new(0, 33).is_err());
    }
}
