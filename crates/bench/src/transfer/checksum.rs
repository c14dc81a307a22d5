//! A checksum of bytes and of their positions, identical on the host and on a GPU.
//!
//! The bytes are little-endian 64-bit words w(i), with i counted from the start of the file (the
//! last word is padded with zeros). Two sums modulo 2^64 are formed over them:
//!
//! ```text
//! plain = Σ w(i)
//! mixed = Σ low32(x(i)) · high32(x(i)),   x(i) = w(i) xor (i + 1) · 0x9e3779b97f4a7c15
//! ```
//!
//! Sums do not depend on order, so blocks of threads and chunks can be added in any. A single wrong
//! word always shows in `plain`; swapped words show in `mixed`, whose step is that of XXH3's
//! accumulator (Collet 2019). It is no defence against an adversary.

use std::ops::AddAssign;

use serde::Serialize;

/// 2^64 divided by the golden ratio, odd.
pub(crate) const PLACE_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Words that are processed in parallel.
const LANES: usize = 8;
const BLOCK_BYTES: usize = LANES * 8;

/// See the module's text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Checksum {
    /// Sum of the words.
    pub plain: u64,
    /// Sum of the words mixed with their positions.
    pub mixed: u64,
}

impl AddAssign for Checksum {
    fn add_assign(&mut self, other: Checksum) {
        self.plain = self.plain.wrapping_add(other.plain);
        self.mixed = self.mixed.wrapping_add(other.mixed);
    }
}

impl Checksum {
    /// Checksum of `bytes`, which begin at `offset` of their file.
    ///
    /// # Panics
    /// If `offset` is not a multiple of 8.
    pub fn of(offset: u64, bytes: &[u8]) -> Checksum {
        assert!(offset.is_multiple_of(8), "words are counted from the start of the file");
        let first_word = offset / 8;
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { sums_avx2(first_word, bytes) };
        }
        sums(first_word, bytes)
    }
}

/// The same code, compiled for wider registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sums_avx2(first_word: u64, bytes: &[u8]) -> Checksum {
    sums(first_word, bytes)
}

#[inline(always)]
fn sums(first_word: u64, bytes: &[u8]) -> Checksum {
    let mut key: [u64; LANES] = std::array::from_fn(|lane| key_of(first_word + lane as u64));
    let (mut plain, mut mixed) = ([0u64; LANES], [0u64; LANES]);
    let mut blocks = bytes.chunks_exact(BLOCK_BYTES);
    for block in &mut blocks {
        for lane in 0..LANES {
            let mut word = [0u8; 8];
            word.copy_from_slice(&block[lane * 8..lane * 8 + 8]);
            let word = u64::from_le_bytes(word);
            plain[lane] = plain[lane].wrapping_add(word);
            mixed[lane] = mixed[lane].wrapping_add(mix(word ^ key[lane]));
            key[lane] = key[lane].wrapping_add(PLACE_FACTOR.wrapping_mul(LANES as u64));
        }
    }
    let mut sum = Checksum::default();
    for lane in 0..LANES {
        sum += Checksum { plain: plain[lane], mixed: mixed[lane] };
    }
    let done_words = (bytes.len() / BLOCK_BYTES * LANES) as u64;
    for (index, part) in (first_word + done_words..).zip(blocks.remainder().chunks(8)) {
        let mut word = [0u8; 8];
        word[..part.len()].copy_from_slice(part);
        let word = u64::from_le_bytes(word);
        sum += Checksum { plain: word, mixed: mix(word ^ key_of(index)) };
    }
    sum
}

#[inline(always)]
fn key_of(word: u64) -> u64 {
    word.wrapping_add(1).wrapping_mul(PLACE_FACTOR)
}

#[inline(always)]
fn mix(word: u64) -> u64 {
    (word & 0xffff_ffff).wrapping_mul(word >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Word by word, following the definition.
    fn by_definition(offset: u64, bytes: &[u8]) -> Checksum {
        let mut sum = Checksum::default();
        for (i, part) in bytes.chunks(8).enumerate() {
            let word = part.iter().rev().fold(0u64, |word, b| word << 8 | u64::from(*b));
            let place = (offset / 8 + i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let x = word ^ place;
            sum += Checksum { plain: word, mixed: (x % (1 << 32)) * (x >> 32) };
        }
        sum
    }

    proptest! {
        #[test]
        fn it_is_what_the_definition_says(
            bytes in prop::collection::vec(any::<u8>(), 0..500),
            word in 0u64..1 << 40,
        ) {
            let (found, wanted) = (Checksum::of(word * 8, &bytes), by_definition(word * 8, &bytes));
            prop_assert_eq!(found, wanted);
            prop_assert_eq!(sums(word, &bytes), wanted);
        }

        #[test]
        fn parts_add_up_in_any_order(
            bytes in prop::collection::vec(any::<u8>(), 0..500),
            cut in 0usize..60,
        ) {
            let cut = (cut * 8).min(bytes.len() / 8 * 8);
            let mut sum = Checksum::of(cut as u64, &bytes[cut..]);
            sum += Checksum::of(0, &bytes[..cut]);
            prop_assert_eq!(sum, Checksum::of(0, &bytes));
        }

        #[test]
        fn a_wrong_byte_and_an_exchanged_word_show(
            bytes in prop::collection::vec(any::<u8>(), 16..500),
            at in any::<prop::sample::Index>(),
            change in 1u8..,
        ) {
            let sum = Checksum::of(0, &bytes);
            let mut wrong = bytes.clone();
            wrong[at.index(bytes.len())] ^= change;
            prop_assert_ne!(Checksum::of(0, &wrong), sum);
            let mut exchanged = bytes.clone();
            let word = at.index(bytes.len() / 8 - 1) * 8;
            exchanged[word..word + 16].rotate_left(8);
            if exchanged != bytes {
                prop_assert_ne!(Checksum::of(0, &exchanged), sum);
            }
            prop_assert_ne!(Checksum::of(8, &bytes), sum);
        }
    }
}
