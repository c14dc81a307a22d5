//! Kernels for any machine; what the others must agree with, and what they leave to scalars.

use super::Test;

#[inline(always)]
pub fn map_into<T: Copy, U>(input: &[T], output: &mut [U], f: impl Fn(T) -> U) {
    input.iter().zip(output).for_each(|(&i, o)| *o = f(i));
}

pub fn pack(bytes: &[u8]) -> u64 {
    bytes.iter().enumerate().fold(0, |word, (i, &byte)| word | u64::from(byte != 0) << i)
}

pub fn push_positions(words: &[u64], first: u32, positions: &mut Vec<u32>) {
    for (i, &word) in words.iter().enumerate() {
        let mut left = word;
        while left != 0 {
            positions.push(first + i as u32 * 64 + left.trailing_zeros());
            left &= left - 1;
        }
    }
}

#[inline(always)]
fn between(low: i32, width: u32) -> impl Fn(i32) -> bool {
    move |value| value.wrapping_sub(low) as u32 <= width
}

pub fn keep_bits(test: &Test<'_>, column: &[i32], words: &mut [u64]) {
    match test {
        Test::Between { low, width } => each_word(column, words, between(*low, *width)),
        Test::Member(members) => each_word(column, words, |value| members.contains(value)),
    }
}

#[inline(always)]
fn each_word(column: &[i32], words: &mut [u64], test: impl Fn(i32) -> bool) {
    for (word, values) in words.iter_mut().zip(column.chunks(64)) {
        if *word == 0 {
            continue;
        }
        let mut kept = 0;
        for (i, &value) in values.iter().enumerate() {
            kept |= u64::from(test(value)) << i;
        }
        *word &= kept;
    }
}

/// Moves the positions whose value passes the test to the front; answers how many.
pub fn keep_positions<N: Copy + Into<i32>>(
    test: &Test<'_>,
    column: &[N],
    positions: &mut [u32],
) -> usize {
    match test {
        Test::Between { low, width } => compact(column, positions, between(*low, *width)),
        Test::Member(members) => compact(column, positions, |value| members.contains(value)),
    }
}

/// Without a branch on whether a value passes: writes first and then counts or does not count.
#[inline(always)]
fn compact<N: Copy + Into<i32>>(
    column: &[N],
    positions: &mut [u32],
    test: impl Fn(i32) -> bool,
) -> usize {
    let mut kept = 0;
    for at in 0..positions.len() {
        let position = positions[at];
        positions[kept] = position;
        kept += usize::from(test(column[position as usize].into()));
    }
    kept
}
