//! Kernels for AVX-512, 16 values at a time.

use std::arch::x86_64::*;

use super::input::{Members, Test, U24};
use super::portable;

/// Lanes of 32 bits.
const LANES: usize = 16;

/// Bits of a bitmap that is held in registers.
pub const TABLE_BITS: u32 = 4 * 512;

/// Of the 64 rows of a word, so many or fewer are moved together before they are looked up.
const SPARSE_ROWS: u32 = 40;

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
pub fn map_into<T: Copy, U>(input: &[T], output: &mut [U], f: impl Fn(T) -> U) {
    input.iter().zip(output).for_each(|(&i, o)| *o = f(i));
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
pub fn widen_24(input: &[U24], output: &mut [i32]) {
    let (whole, rest) = input.as_chunks::<LANES>();
    let (wide, last) = output.split_at_mut((whole.len() * LANES).min(output.len()));
    // Four values of three bytes to each quarter, then a byte of zeros behind each.
    let quarters = _mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
    let apart =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1));
    for (values, wide) in whole.iter().zip(wide.as_chunks_mut::<LANES>().0) {
        // SAFETY: of 64 bytes only the 48 of the values are read; there is room for 16 of 32 bits.
        unsafe {
            let packed = _mm512_maskz_loadu_epi8((1 << 48) - 1, values.as_ptr().cast());
            let spread = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(quarters, packed), apart);
            _mm512_storeu_si512(wide.as_mut_ptr().cast(), spread);
        }
    }
    portable::widen_24(rest, last);
}

/// The first `lanes` lanes, or all of them.
fn first_lanes(lanes: usize) -> u16 {
    if lanes >= LANES { u16::MAX } else { (1 << lanes) - 1 }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
pub fn pack(bytes: &[u8]) -> u64 {
    assert!(bytes.len() <= 64, "a word has 64 bits");
    let there = u64::MAX.checked_shr(64 - bytes.len() as u32).unwrap_or(0);
    // SAFETY: only the bytes of the slice are read.
    let bytes = unsafe { _mm512_maskz_loadu_epi8(there, bytes.as_ptr().cast()) };
    _mm512_test_epi8_mask(bytes, bytes)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
pub fn push_positions(words: &[u64], first: u32, positions: &mut Vec<u32>) {
    let count: usize = words.iter().map(|word| word.count_ones() as usize).sum();
    positions.reserve(count + LANES);
    let output = positions.spare_capacity_mut().as_mut_ptr();
    let numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut written = 0;
    for (i, &word) in words.iter().enumerate() {
        let mut left = word;
        let mut start = first.wrapping_add(i as u32 * 64);
        while left != 0 {
            let lanes = left as u16;
            let numbers = _mm512_add_epi32(numbers, _mm512_set1_epi32(start as i32));
            // SAFETY: at most `count` are written, and there is room for 16 more.
            unsafe {
                let numbers = _mm512_maskz_compress_epi32(lanes, numbers);
                _mm512_storeu_si512(output.add(written).cast(), numbers);
            }
            written += lanes.count_ones() as usize;
            left >>= LANES;
            start = start.wrapping_add(LANES as u32);
        }
    }
    // SAFETY: so many were written, within the capacity.
    unsafe { positions.set_len(positions.len() + written) };
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
pub fn keep_bits(test: &Test<'_>, column: &[i32], words: &mut [u64]) {
    match *test {
        Test::Between { low, width } => {
            let (low, width) = (_mm512_set1_epi32(low), _mm512_set1_epi32(width as i32));
            each_word(column, words, |lanes, values| between(lanes, values, low, width));
        }
        Test::Member(members) if members.domain <= TABLE_BITS => {
            let table = Table::new(&members);
            each_word(column, words, |lanes, values| table.contains(lanes, values));
        }
        Test::Member(members) => keep_members(&members, column, words),
    }
}

/// As [`each_word`], for a test that is the dearer the more lanes it is asked for: where few rows
/// are alive, their values are moved together.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
fn keep_members(members: &Members<'_>, column: &[i32], words: &mut [u64]) {
    let (whole, rest) = column.as_chunks::<64>();
    let (words, last) = words.split_at_mut(whole.len());
    for (word, values) in words.iter_mut().zip(whole) {
        let alive = word.count_ones();
        if alive > SPARSE_ROWS {
            let (word, values) = (std::slice::from_mut(word), values.as_slice());
            each_word(values, word, |lanes, values| is_member(lanes, values, members));
            continue;
        }
        let mut together = [0i32; 64 + LANES];
        let mut count = 0;
        for part in 0..4 {
            let lanes = (*word >> (part * LANES)) as u16;
            // SAFETY: there are four times 16 values; at most 64 are moved, with room for 16 more.
            unsafe {
                let loaded = _mm512_loadu_si512(values.as_ptr().add(part * LANES).cast());
                let target = together.as_mut_ptr().add(count).cast();
                _mm512_storeu_si512(target, _mm512_maskz_compress_epi32(lanes, loaded));
            }
            count += lanes.count_ones() as usize;
        }
        let mut found = 0;
        for (part, values) in together[..count].chunks(LANES).enumerate() {
            // SAFETY: 16 values follow any that was moved.
            let loaded = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
            let lanes = is_member(first_lanes(values.len()), loaded, members);
            found |= u64::from(lanes) << (part * LANES);
        }
        *word = _pdep_u64(found, *word);
    }
    each_word(rest, last, |lanes, values| is_member(lanes, values, members));
}

/// A bitmap in registers.
struct Table {
    base: __m512i,
    domain: __m512i,
    words: [__m512i; 4],
}

impl Table {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
    fn new(members: &Members<'_>) -> Self {
        let count = members.present.len() * 2;
        let piece = |i: usize| {
            let there = first_lanes(count.saturating_sub(i * LANES));
            let start = members.present.as_ptr().cast::<i32>().wrapping_add(i * LANES);
            // SAFETY: only the bitmap's words are read.
            unsafe { _mm512_maskz_loadu_epi32(there, start) }
        };
        Self {
            base: _mm512_set1_epi32(members.base),
            domain: _mm512_set1_epi32(members.domain as i32),
            words: [piece(0), piece(1), piece(2), piece(3)],
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
    #[inline]
    fn contains(&self, lanes: __mmask16, values: __m512i) -> __mmask16 {
        let entries = _mm512_sub_epi32(values, self.base);
        let inside = _mm512_mask_cmplt_epu32_mask(lanes, entries, self.domain);
        let places = _mm512_srli_epi32::<5>(entries);
        let [a, b, c, d] = self.words;
        let (low, high) =
            (_mm512_permutex2var_epi32(a, places, b), _mm512_permutex2var_epi32(c, places, d));
        let upper = _mm512_test_epi32_mask(places, _mm512_set1_epi32(32));
        let bits = _mm512_rorv_epi32(_mm512_mask_blend_epi32(upper, low, high), entries);
        _mm512_mask_test_epi32_mask(inside, bits, _mm512_set1_epi32(1))
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
#[inline]
fn each_word(column: &[i32], words: &mut [u64], test: impl Fn(__mmask16, __m512i) -> __mmask16) {
    let (whole, rest) = column.as_chunks::<64>();
    let (words, last) = words.split_at_mut(whole.len());
    for (word, values) in words.iter_mut().zip(whole) {
        if *word == 0 {
            continue;
        }
        let mut kept = 0;
        for part in 0..4 {
            // SAFETY: there are four times 16 values.
            let loaded = unsafe { _mm512_loadu_si512(values.as_ptr().add(part * LANES).cast()) };
            let lanes = (*word >> (part * LANES)) as u16;
            kept |= u64::from(test(lanes, loaded)) << (part * LANES);
        }
        *word = kept;
    }
    if let Some(word) = last.first_mut() {
        let mut kept = 0;
        for (part, values) in rest.chunks(LANES).enumerate() {
            let there = first_lanes(values.len());
            // SAFETY: only the values of the chunk are read.
            let loaded = unsafe { _mm512_maskz_loadu_epi32(there, values.as_ptr()) };
            let lanes = (*word >> (part * LANES)) as u16 & there;
            kept |= u64::from(test(lanes, loaded)) << (part * LANES);
        }
        *word = kept;
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
pub fn look_up(members: &Members<'_>, column: &[i32], words: &mut [u64]) {
    portable::look_up_together(members, column, words, |bytes| pack(bytes));
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
pub fn keep_positions(test: &Test<'_>, column: &[i32], positions: &mut [u32]) -> usize {
    match *test {
        Test::Between { low, width } => {
            let (low, width) = (_mm512_set1_epi32(low), _mm512_set1_epi32(width as i32));
            compact(column, positions, |lanes, values| between(lanes, values, low, width))
        }
        Test::Member(members) if members.domain <= TABLE_BITS => {
            let table = Table::new(&members);
            compact(column, positions, |lanes, values| table.contains(lanes, values))
        }
        Test::Member(members) => {
            compact(column, positions, |lanes, values| is_member(lanes, values, &members))
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
#[inline]
fn compact(
    column: &[i32],
    positions: &mut [u32],
    test: impl Fn(__mmask16, __m512i) -> __mmask16,
) -> usize {
    assert!(i32::try_from(column.len()).is_ok(), "indices are signed");
    let rows = _mm512_set1_epi32(column.len() as i32);
    let mut outside = 0;
    let mut kept = 0;
    for at in (0..positions.len()).step_by(LANES) {
        let lanes = first_lanes(positions.len() - at);
        // SAFETY: only positions of the slice are read, and only values of the column: lanes
        // that lie outside it are masked.
        let (picked, inside, values) = unsafe {
            let picked = _mm512_maskz_loadu_epi32(lanes, positions.as_ptr().add(at).cast());
            let inside = _mm512_mask_cmplt_epu32_mask(lanes, picked, rows);
            let zero = _mm512_setzero_si512();
            let values =
                _mm512_mask_i32gather_epi32::<4>(zero, inside, picked, column.as_ptr().cast());
            (picked, inside, values)
        };
        outside |= lanes ^ inside;
        let passed = test(inside, values);
        let count = passed.count_ones() as usize;
        // SAFETY: no more are written than were read.
        unsafe {
            _mm512_mask_storeu_epi32(
                positions.as_mut_ptr().add(kept).cast(),
                first_lanes(count),
                _mm512_maskz_compress_epi32(passed, picked),
            );
        }
        kept += count;
    }
    assert_eq!(outside, 0, "positions lie in the column");
    kept
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
#[inline]
fn between(lanes: __mmask16, values: __m512i, low: __m512i, width: __m512i) -> __mmask16 {
    _mm512_mask_cmple_epu32_mask(lanes, _mm512_sub_epi32(values, low), width)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
#[inline]
fn is_member(lanes: __mmask16, values: __m512i, members: &Members<'_>) -> __mmask16 {
    let entries = _mm512_sub_epi32(values, _mm512_set1_epi32(members.base));
    let domain = _mm512_set1_epi32(members.domain as i32);
    let inside = _mm512_mask_cmplt_epu32_mask(lanes, entries, domain);
    let (zero, words) = (_mm512_setzero_si512(), _mm512_srli_epi32::<5>(entries));
    // SAFETY: lanes at or above `domain` are masked, and the words hold as many bits.
    let words = unsafe {
        _mm512_mask_i32gather_epi32::<4>(zero, inside, words, members.present.as_ptr().cast())
    };
    // Brings bit `entry % 32` down to bit 0.
    let bits = _mm512_rorv_epi32(words, entries);
    _mm512_test_epi32_mask(bits, _mm512_set1_epi32(1))
}
