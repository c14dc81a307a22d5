//! Kernels for AVX2, 8 values at a time. What does not fill a vector is left to scalars.

use std::arch::x86_64::*;

use super::input::{Members, Test, U24};
use super::portable;

/// Lanes of 32 bits.
const LANES: usize = 8;

/// For each set of lanes, the lanes that are in it, and then any.
static COMPRESS: [[u32; LANES]; 256] = compress_table();

const fn compress_table() -> [[u32; LANES]; 256] {
    let mut table = [[0; LANES]; 256];
    let mut set = 0;
    while set < 256 {
        let (mut lane, mut count) = (0, 0);
        while lane < LANES {
            if set >> lane & 1 != 0 {
                table[set][count] = lane as u32;
                count += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    table
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub fn map_into<T: Copy, U>(input: &[T], output: &mut [U], f: impl Fn(T) -> U) {
    input.iter().zip(output).for_each(|(&i, o)| *o = f(i));
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub fn widen_24(input: &[U24], output: &mut [i32]) {
    let (whole, rest) = input.as_chunks::<LANES>();
    let (wide, last) = output.split_at_mut((whole.len() * LANES).min(output.len()));
    let low = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    let high = _mm_setr_epi8(4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
    for (values, wide) in whole.iter().zip(wide.as_chunks_mut::<LANES>().0) {
        let (from, to) = (values.as_ptr().cast::<u8>(), wide.as_mut_ptr().cast::<__m128i>());
        // SAFETY: bytes 0 to 16 and 8 to 24 are those of the values; there is room for 8 of 32 bits.
        unsafe {
            _mm_storeu_si128(to, _mm_shuffle_epi8(_mm_loadu_si128(from.cast()), low));
            let second = _mm_loadu_si128(from.add(8).cast());
            _mm_storeu_si128(to.add(1), _mm_shuffle_epi8(second, high));
        }
    }
    portable::widen_24(rest, last);
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub fn pack(bytes: &[u8]) -> u64 {
    let Ok(bytes) = <&[u8; 64]>::try_from(bytes) else { return portable::pack(bytes) };
    let half = |from: usize| {
        // SAFETY: `from` is 0 or 32.
        let bytes = unsafe { _mm256_loadu_si256(bytes.as_ptr().add(from).cast()) };
        let zeros = _mm256_cmpeq_epi8(bytes, _mm256_setzero_si256());
        u64::from(!_mm256_movemask_epi8(zeros) as u32)
    };
    half(0) | half(32) << 32
}

/// Moves the lanes of `lanes` to the front.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
#[inline]
fn compress(lanes: u8, values: __m256i) -> __m256i {
    // SAFETY: a row of the table is 32 bytes.
    let order = unsafe { _mm256_loadu_si256(COMPRESS[usize::from(lanes)].as_ptr().cast()) };
    _mm256_permutevar8x32_epi32(values, order)
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub fn push_positions(words: &[u64], first: u32, positions: &mut Vec<u32>) {
    let count: usize = words.iter().map(|word| word.count_ones() as usize).sum();
    positions.reserve(count + LANES);
    let output = positions.spare_capacity_mut().as_mut_ptr();
    let numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let mut written = 0;
    for (i, &word) in words.iter().enumerate() {
        let mut left = word;
        let mut start = first.wrapping_add(i as u32 * 64);
        while left != 0 {
            let lanes = left as u8;
            let numbers = _mm256_add_epi32(numbers, _mm256_set1_epi32(start as i32));
            // SAFETY: at most `count` are written, and there is room for 8 more.
            unsafe {
                _mm256_storeu_si256(output.add(written).cast(), compress(lanes, numbers));
            }
            written += lanes.count_ones() as usize;
            left >>= LANES;
            start = start.wrapping_add(LANES as u32);
        }
    }
    // SAFETY: so many were written, within the capacity.
    unsafe { positions.set_len(positions.len() + written) };
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub fn keep_bits(test: &Test<'_>, column: &[i32], words: &mut [u64]) {
    let (whole, rest) = column.as_chunks::<64>();
    let (words, last) = words.split_at_mut(whole.len());
    portable::keep_bits(test, rest, last);
    match *test {
        Test::Between { low, width } => {
            let (low, width) = (_mm256_set1_epi32(low), _mm256_set1_epi32(width as i32));
            each_word(whole, words, |values| between(values, low, width));
        }
        Test::Member(members) => each_word(whole, words, |values| is_member(values, &members)),
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
#[inline]
fn each_word(whole: &[[i32; 64]], words: &mut [u64], test: impl Fn(__m256i) -> u8) {
    for (word, values) in words.iter_mut().zip(whole) {
        if *word == 0 {
            continue;
        }
        let mut kept = 0;
        for part in 0..8 {
            // SAFETY: there are eight times 8 values.
            let loaded = unsafe { _mm256_loadu_si256(values.as_ptr().add(part * LANES).cast()) };
            kept |= u64::from(test(loaded)) << (part * LANES);
        }
        *word &= kept;
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub fn look_up(members: &Members<'_>, column: &[i32], words: &mut [u64]) {
    portable::look_up_together(members, column, words, |bytes| pack(bytes));
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub fn keep_positions(test: &Test<'_>, column: &[i32], positions: &mut [u32]) -> usize {
    match *test {
        Test::Between { low, width } => {
            let (low, width) = (_mm256_set1_epi32(low), _mm256_set1_epi32(width as i32));
            compact(test, column, positions, |values| between(values, low, width))
        }
        Test::Member(members) => {
            compact(test, column, positions, |values| is_member(values, &members))
        }
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
#[inline]
fn compact(
    test: &Test<'_>,
    column: &[i32],
    positions: &mut [u32],
    passes: impl Fn(__m256i) -> u8,
) -> usize {
    assert!(i32::try_from(column.len()).is_ok(), "indices are signed");
    let Some(last) = column.len().checked_sub(1) else {
        return portable::keep_positions(test, column, positions);
    };
    let last = _mm256_set1_epi32(last as i32);
    let whole = positions.len() / LANES * LANES;
    let mut all_inside = true;
    let mut kept = 0;
    for at in (0..whole).step_by(LANES) {
        // SAFETY: there are 8 positions from `at` on, none outside the column once they are
        // limited to its last row.
        let (picked, values) = unsafe {
            let picked = _mm256_loadu_si256(positions.as_ptr().add(at).cast());
            let limited = _mm256_min_epu32(picked, last);
            all_inside &= lanes_of(_mm256_cmpeq_epi32(picked, limited)) == u8::MAX;
            (picked, _mm256_i32gather_epi32::<4>(column.as_ptr(), limited))
        };
        let passed = passes(values);
        // SAFETY: 8 positions were read at `at`, which is not before `kept`.
        unsafe {
            let target = positions.as_mut_ptr().add(kept).cast();
            _mm256_storeu_si256(target, compress(passed, picked));
        }
        kept += passed.count_ones() as usize;
    }
    assert!(all_inside, "positions lie in the column");
    let rest = portable::keep_positions(test, column, &mut positions[whole..]);
    positions.copy_within(whole..whole + rest, kept);
    kept + rest
}

/// The lanes whose sign bit is set.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
#[inline]
fn lanes_of(mask: __m256i) -> u8 {
    _mm256_movemask_ps(_mm256_castsi256_ps(mask)) as u8
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
#[inline]
fn between(values: __m256i, low: __m256i, width: __m256i) -> u8 {
    let above = _mm256_sub_epi32(values, low);
    lanes_of(_mm256_cmpeq_epi32(_mm256_min_epu32(above, width), above))
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
#[inline]
fn is_member(values: __m256i, members: &Members<'_>) -> u8 {
    let entries = _mm256_sub_epi32(values, _mm256_set1_epi32(members.base));
    let last = _mm256_set1_epi32((members.domain - 1) as i32);
    let inside = _mm256_cmpeq_epi32(_mm256_min_epu32(entries, last), entries);
    let words = _mm256_srli_epi32::<5>(entries);
    // SAFETY: lanes at or above `domain` are masked, and the words hold as many bits.
    let words = unsafe {
        let present = members.present.as_ptr().cast();
        _mm256_mask_i32gather_epi32::<4>(_mm256_setzero_si256(), present, words, inside)
    };
    // Brings bit `entry % 32` up to the sign.
    let place = _mm256_andnot_si256(entries, _mm256_set1_epi32(31));
    lanes_of(_mm256_sllv_epi32(words, place))
}
