//! The checksum of a page, as `checksum_impl.h` of PostgreSQL defines it.
//!
//! The page is a matrix of 32 columns of 32-bit words. Each column is hashed separately, so vector
//! units can process all at once, by FNV-1a with one more mixing: with `t = hash ^ word`, the next
//! hash is `t * 16777619 ^ (t >> 17)`. Each column starts from its own offset and takes two rounds
//! of zeros at the end; the columns' hashes are folded by XOR. The checksum's own field counts as
//! zero. The block number is mixed in by XOR, so that a misplaced block is noticed, and the result
//! is reduced to 1..=65535: zero never occurs.
//!
//! Sixteen bits: about one random change in 65535 goes undetected.

/// Columns hashed in parallel.
const LANES: usize = 32;
const ROW_BYTES: usize = LANES * 4;
const PRIME: u32 = 16_777_619;
/// The word that holds `pd_checksum` in its lower half.
const CHECKSUM_WORD: usize = 2;

const OFFSETS: [u32; LANES] = [
    0x5B1F36E9, 0xB8525960, 0x02AB50AA, 0x1DE66D2A, 0x79FF467A, 0x9BB9F8A3, 0x217E7CD2, 0x83E13D2C,
    0xF8D4474F, 0xE39EB970, 0x42C6AE16, 0x993216FA, 0x7B093B5D, 0x98DAFF3C, 0xF718902A, 0x0B1C9CDB,
    0xE58F764B, 0x187636BC, 0x5D7B3BB1, 0xE73DE7DE, 0x92BEC979, 0xCCA6C0B2, 0x304A0979, 0x85AA43D4,
    0x783125BB, 0x6CA8EAA2, 0xE407EAC6, 0x4B5CFC3E, 0x9FBF8C76, 0x15CA20BE, 0xF2CA9FD3, 0x959BD756,
];

/// The checksum of a page as block `block` of its relation (counted over all segments).
pub(super) fn checksum(page: &[u8], block: u32) -> u16 {
    let folded = hash(page) ^ block;
    // At most 65535, so that nothing is lost.
    ((folded % 65_535) + 1) as u16
}

#[inline(always)]
fn mix(hash: u32, word: u32) -> u32 {
    let mixed = hash ^ word;
    mixed.wrapping_mul(PRIME) ^ (mixed >> 17)
}

fn hash(page: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, the only thing that the function asks for.
        return unsafe { hash_avx2(page) };
    }
    hash_any(page)
}

/// [`hash_any`], compiled for processors that multiply eight words at once.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn hash_avx2(page: &[u8]) -> u32 {
    hash_any(page)
}

#[inline(always)]
fn hash_any(page: &[u8]) -> u32 {
    let mut sums = OFFSETS;
    let mut rows = page.chunks_exact(ROW_BYTES).map(words);
    if let Some(mut first) = rows.next() {
        first[CHECKSUM_WORD] &= 0xFFFF_0000;
        round(&mut sums, &first);
    }
    for row in rows {
        round(&mut sums, &row);
    }
    round(&mut sums, &[0; LANES]);
    round(&mut sums, &[0; LANES]);
    sums.iter().fold(0, |folded, sum| folded ^ sum)
}

#[inline(always)]
fn round(sums: &mut [u32; LANES], words: &[u32; LANES]) {
    for (sum, word) in sums.iter_mut().zip(words) {
        *sum = mix(*sum, *word);
    }
}

#[inline(always)]
fn words(row: &[u8]) -> [u32; LANES] {
    let mut words = [0; LANES];
    for (word, bytes) in words.iter_mut().zip(row.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}
