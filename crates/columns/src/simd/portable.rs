//! Kernels for any machine; what the others must agree with, and what they leave to scalars.

use super::input::{Members, Test, U24};

#[inline(always)]
pub fn map_into<T: Copy, U>(input: &[T], output: &mut [U], f: impl Fn(T) -> U) {
    input.iter().zip(output).for_each(|(&i, o)| *o = f(i));
}

pub fn widen_24(input: &[U24], output: &mut [i32]) {
    map_into(input, output, Into::into);
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
        Test::Member(members) => look_up(members, column, words),
    }
}

/// Clears the bits of rows whose value is not in a set.
pub fn look_up(members: &Members<'_>, column: &[i32], words: &mut [u64]) {
    each_word(column, words, |value| members.contains(value));
}

/// As [`look_up`], compiled for a tier's instructions: what is computed of 64 values is computed together, and one load a
/// value is left. `pack` sets one bit a byte that is not 0.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn look_up_together(
    members: &Members<'_>,
    column: &[i32],
    words: &mut [u64],
    pack: impl Fn(&[u8]) -> u64,
) {
    /// With so few rows alive, one after the other is faster.
    const ALIVE_MIN: u32 = 12;
    let (whole, rest) = column.as_chunks::<64>();
    let (words, last) = words.split_at_mut(whole.len());
    let (base, domain, bytes) = (members.base, members.domain, members.bytes());
    for (word, values) in words.iter_mut().zip(whole) {
        if word.count_ones() < ALIVE_MIN {
            let mut left = *word;
            while left != 0 {
                let row = left.trailing_zeros();
                left &= left - 1;
                let is_member = members.contains(values[row as usize]);
                *word &= !(u64::from(!is_member) << row);
            }
            continue;
        }
        let (mut places, mut bits) = ([0_u32; 64], [0_u8; 64]);
        for ((place, bit), value) in places.iter_mut().zip(&mut bits).zip(values) {
            let entry = value.wrapping_sub(base) as u32;
            let is_inside = entry < domain;
            *place = if is_inside { entry / 8 } else { 0 };
            *bit = if is_inside { 1 << (entry % 8) } else { 0 };
        }
        let mut found = [0_u8; 64];
        for (found, &place) in found.iter_mut().zip(&places) {
            // SAFETY: places lie below an eighth of the domain, and as many bits are there; a domain is not empty.
            *found = unsafe { *bytes.get_unchecked(place as usize) };
        }
        for (found, bit) in found.iter_mut().zip(&bits) {
            *found &= bit;
        }
        *word &= pack(&found);
    }
    look_up(members, rest, last);
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
