//! Chains of rows of one key, and the ways to the first row of each.
//!
//! There are three ways to the first row of a key: by address where integers lie close together, duplicates or not;
//! by a hash of the integer; by a hash of the key's bytes.

use std::ops::Range;

use crate::build::slots::{BLOCK_ROWS, NONE, Slots, found};
use crate::build::{ByCode, Chains, Heads, Presence};
use headrace_columns::key;
use headrace_columns::key::{EncodedKeys, fold};
use headrace_columns::simd::prefetch;
use headrace_io::huge::filled;

/// Heads by address may take as many entries for each row; a hash table takes two to four, and the keys beside them.
const ADDRESSES_A_ROW: u64 = 4;
/// Or this many, whatever the number of rows.
const ADDRESSES_MIN: u64 = 1 << 16;

/// Most rows that ask for a number find out by one bit that it is not there: so many bits a row, 32 bytes, are about what the
/// row takes itself.
const PRESENCE_BITS_A_ROW: u64 = 256;

impl Chains {
    /// Chains of rows whose one key is an integer.
    pub(crate) fn of_integers(keys: &[i64]) -> Self {
        let rows = keys.len();
        let mut links = Links::of_rows(rows);
        let (base, domain) = span(keys);
        if domain <= (rows as u64 * ADDRESSES_A_ROW).max(ADDRESSES_MIN) {
            let mut heads = filled(NONE, domain as usize);
            for (row, key) in keys.iter().enumerate().rev() {
                links.link(row, &mut heads[key.wrapping_sub(base) as usize]);
            }
            return links.chains(Heads::Direct { base, heads });
        }
        let mut slots = Slots::for_rows(rows);
        for block in blocks_backwards(rows) {
            let first = slots.asked_for(block.clone(), |row| fold(0, keys[row] as u64), |_, _| {});
            for row in block.clone().rev() {
                let slot = slots.find(first[row - block.start], |head| keys[head] == keys[row]);
                links.link(row, &mut slots.0[slot]);
            }
        }
        let present = presence(keys, base, domain);
        links.chains(Heads::Integers { slots, keys: keys.to_vec(), present })
    }

    /// Chains of rows with any keys.
    pub(crate) fn of_encoded(keys: EncodedKeys) -> Self {
        let rows = keys.offsets.len() - 1;
        let mut links = Links::of_rows(rows);
        let mut slots = Slots::for_rows(rows);
        for block in blocks_backwards(rows) {
            let hash = |row| key::hash(keys.row(row));
            let first = slots.asked_for(block.clone(), hash, |step, head| keys.ask_for(step, head));
            for row in block.clone().rev() {
                let is_same = |head: usize| keys.row(head) == keys.row(row);
                let slot = slots.find(first[row - block.start], is_same);
                links.link(row, &mut slots.0[slot]);
            }
        }
        links.chains(Heads::Encoded { slots, keys })
    }

    /// First row of each integer key, `missing` for those that are not there.
    pub(crate) fn find_integers(&self, wanted: &[i64], missing: u32) -> Option<Vec<u32>> {
        match &self.heads {
            Heads::Direct { base, heads } => {
                let head = |key: &i64| {
                    let row = heads.get(key.wrapping_sub(*base) as u64 as usize);
                    found(row.copied().unwrap_or(NONE), missing)
                };
                Some(wanted.iter().map(head).collect())
            }
            Heads::Integers { slots, keys, .. } => {
                let hash = |row: usize| fold(0, wanted[row] as u64);
                let ask = |step, head: usize| {
                    if step == 0 {
                        prefetch(&raw const keys[head]);
                    }
                };
                let is_same = |row: usize, head: usize| keys[head] == wanted[row];
                Some(slots.find_all(wanted.len(), (hash, ask, is_same), missing))
            }
            Heads::Encoded { .. } => None,
        }
    }

    /// First row of each encoded key, `missing` for those that are not there; `None` if keys are not found by that.
    pub(crate) fn find_encoded(&self, wanted: &EncodedKeys, missing: u32) -> Option<Vec<u32>> {
        let Heads::Encoded { slots, keys } = &self.heads else { return None };
        let hash = |row: usize| key::hash(wanted.row(row));
        let is_same = |row: usize, head: usize| keys.row(head) == wanted.row(row);
        let rows = wanted.offsets.len() - 1;
        Some(slots.find_all(rows, (hash, |step, head| keys.ask_for(step, head), is_same), missing))
    }

    /// Whether one integer key is looked up as a number.
    pub(crate) fn is_of_integers(&self) -> bool {
        !matches!(self.heads, Heads::Encoded { .. })
    }

    /// Host bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let heads = match &self.heads {
            Heads::Direct { heads, .. } => size_of_val::<[u32]>(heads),
            Heads::Integers { slots, keys, present } => {
                let bits = present.as_ref().map_or(0, Presence::bytes) as usize;
                slots.bytes() + size_of_val::<[i64]>(keys) + bits
            }
            Heads::Encoded { slots, keys } => {
                slots.bytes() + keys.bytes.len() + size_of_val::<[usize]>(&keys.offsets)
            }
        };
        (heads + size_of_val::<[u32]>(&self.next)) as u64
    }
}

/// Bits for the numbers of a domain, unless they are more than a hash table is worth.
fn presence(keys: &[i64], base: i64, domain: u64) -> Option<Presence> {
    let is_small = domain <= (keys.len() as u64).saturating_mul(PRESENCE_BITS_A_ROW);
    is_small.then(|| {
        let mut present = Presence::empty(base, domain);
        for &key in keys {
            present.insert(key);
        }
        present
    })
}

/// The smallest of some integers, and how many there are up to the largest.
fn span(keys: &[i64]) -> (i64, u64) {
    let base = keys.iter().copied().min().unwrap_or(0);
    let max = keys.iter().copied().max().unwrap_or(0);
    (base, (i128::from(max) - i128::from(base) + 1).try_into().unwrap_or(u64::MAX))
}

/// Chains in the making. Rows are linked from the last to the first, so that chains run forwards.
struct Links {
    next: Vec<u32>,
    /// Of the chain that begins with a row; those of 255 rows and more are counted in the end.
    lengths: Vec<u8>,
}

impl Links {
    fn of_rows(rows: usize) -> Self {
        Self { next: filled(NONE, rows), lengths: vec![0; rows] }
    }

    /// Puts a row before the others of its chain.
    #[inline(always)]
    fn link(&mut self, row: usize, head: &mut u32) {
        let others = if *head == NONE { 0 } else { self.lengths[*head as usize] };
        self.lengths[row] = others.saturating_add(1);
        self.next[row] = *head;
        *head = row as u32;
    }

    fn chains(self, heads: Heads) -> Chains {
        let duplicates_max = match self.lengths.into_iter().max().unwrap_or(0) {
            u8::MAX => longest(&self.next),
            length => length.into(),
        };
        Chains { heads, next: self.next, duplicates_max, by_code: ByCode::default() }
    }
}

/// Rows of the longest chain.
fn longest(next: &[u32]) -> u64 {
    let mut follows = vec![false; next.len()];
    let has_next = |row: &&u32| **row != NONE;
    next.iter().filter(has_next).for_each(|&row| follows[row as usize] = true);
    let after = |&row: &u32| Some(next[row as usize]).filter(|&row| row != NONE);
    let first = (0..next.len() as u32).filter(|&row| !follows[row as usize]);
    let length = |row| std::iter::successors(Some(row), after).count() as u64;
    first.map(length).max().unwrap_or(0)
}

/// Rows in blocks, the last first.
fn blocks_backwards(rows: usize) -> impl Iterator<Item = Range<usize>> {
    (1..=rows).rev().step_by(BLOCK_ROWS).map(|end| end.saturating_sub(BLOCK_ROWS)..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of each wanted key, by its chain.
    fn chain(chains: &Chains, mut row: u32) -> Vec<u32> {
        let mut rows = Vec::new();
        while row != NONE {
            rows.push(row);
            row = chains.next[row as usize];
        }
        rows
    }

    #[test]
    fn rows_of_a_key_are_found_in_their_order_whatever_the_way() {
        // Close together, and too far apart to be addresses.
        for factor in [1, 1 << 40] {
            let keys: Vec<i64> = (0..1000).map(|row| (row * 7919 % 300 - 150) * factor).collect();
            let chains = Chains::of_integers(&keys);
            assert_eq!(matches!(chains.heads, Heads::Direct { .. }), factor == 1);
            assert_eq!(chains.duplicates_max, 4);
            let wanted: Vec<i64> =
                (-160..160).map(|key| key * factor).chain([i64::MIN, i64::MAX]).collect();
            let heads = chains.find_integers(&wanted, NONE).unwrap_or_default();
            for (key, head) in wanted.iter().zip(heads) {
                let rows = keys.iter().enumerate().filter(|(_, own)| *own == key);
                assert_eq!(
                    chain(&chains, head),
                    rows.map(|(row, _)| row as u32).collect::<Vec<_>>(),
                    "{key}"
                );
            }
        }
        for rows in [254, 255, 256, 1000] {
            let keys: Vec<i64> = (0..rows).flat_map(|row| [7, row % 5 * 10]).collect();
            assert_eq!(Chains::of_integers(&keys).duplicates_max, rows as u64, "{rows}");
        }
        let none = Chains::of_integers(&[]);
        assert_eq!((none.find_integers(&[0, 5], 7), none.duplicates_max), (Some(vec![7, 7]), 0));
    }

    #[test]
    fn the_ends_of_integers_are_keys_like_any_other() {
        let chains = Chains::of_integers(&[i64::MAX, i64::MIN, i64::MAX]);
        assert!(matches!(chains.heads, Heads::Integers { present: None, .. }));
        assert_eq!(chains.find_integers(&[i64::MIN, i64::MAX, 0], NONE), Some(vec![1, 0, NONE]));
        assert_eq!(chain(&chains, 0), [0, 2]);
    }

    #[test]
    fn keys_that_lie_apart_have_bits() {
        let keys: Vec<i64> = (0..4000).map(|row| row / 2 * 77 - 1000).collect();
        let Heads::Integers { present: Some(present), .. } = Chains::of_integers(&keys).heads
        else {
            panic!("no bits")
        };
        let is_there = |i: u64| present.words[i as usize / 64] >> (i % 64) & 1 == 1;
        let found = (0..present.domain).filter(|&i| is_there(i));
        let found: Vec<i64> = found.map(|i| present.base + i as i64).collect();
        assert_eq!(found, keys.iter().copied().step_by(2).collect::<Vec<_>>());
    }
}
