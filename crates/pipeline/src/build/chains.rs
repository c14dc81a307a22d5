//! Chains of rows of one key, and the ways to the first row of each.
//!
//! There are three ways to the first row of a key: by address where integers lie close together, duplicates or not;
//! by a hash of the integer; by a hash of the key's bytes.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use headrace_columns::key::{self, ASK_STEPS, EncodedKeys, fold};
use headrace_columns::simd::prefetch;
use headrace_io::huge::{filled, zeroed};
use headrace_io::{for_each, try_map};
use headrace_ir::ValueRange;
use parking_lot::Mutex;

use crate::build::payload::{entry_of, range_of, wider};
use crate::build::pieces::{Bits, shared};
use crate::build::slots::{BLOCK_ROWS, NONE, Slots, found};
use crate::build::{ByCode, Chains, Heads, Presence};

/// Heads by address may take as many entries for each row; a hash table takes two to four, and the keys beside them.
const ADDRESSES_A_ROW: u64 = 4;
/// Or this many, whatever the number of rows.
const ADDRESSES_MIN: u64 = 1 << 16;

/// Most rows that ask for a number find out by one bit that it is not there: so many bits a row, 32 bytes, are about what the
/// row takes itself.
const PRESENCE_BITS_A_ROW: u64 = 256;

/// Rows whose hashes one thread makes at a time.
const HASHED_AT_ONCE: usize = 1 << 16;

impl Chains {
    /// Chains of rows whose one key is an integer.
    pub(crate) fn of_integers(keys: Vec<i64>, threads: usize) -> Self {
        let rows = keys.len();
        let mut links = Links::of_rows(rows, threads);
        let (base, domain) = span(&keys, threads);
        if domain <= (rows as u64 * ADDRESSES_A_ROW).max(ADDRESSES_MIN) {
            let mut heads = filled(NONE, domain as usize, threads);
            links.shared().by_address(&mut heads, threads, |row| entry_of(keys[row], base));
            return links.chains(Heads::Direct { base, heads });
        }
        let mut slots = Slots::for_rows(rows, threads);
        let hash = |row: usize| fold(0, keys[row] as u64);
        let is_same = |row: usize, head: usize| keys[head] == keys[row];
        links.shared().by_hash(&mut slots, threads, hash, |_, _| {}, is_same);
        let present = presence(&keys, (base, domain), threads);
        links.chains(Heads::Integers { slots, keys, present })
    }

    /// Chains of rows with any keys.
    pub(crate) fn of_encoded(keys: EncodedKeys, threads: usize) -> Self {
        let rows = keys.offsets.len() - 1;
        let mut links = Links::of_rows(rows, threads);
        let mut slots = Slots::for_rows(rows, threads);
        let is_same = |row: usize, head: usize| keys.row(head) == keys.row(row);
        let ask = |step: usize, head: usize| keys.ask_for(step, head);
        // Each thread asks for every row's hash.
        let mut hashes: Vec<u64> = zeroed(if threads > 1 { rows } else { 0 });
        let chunks = hashes.chunks_mut(HASHED_AT_ONCE).enumerate();
        for_each(chunks, threads, |(chunk, hashes)| {
            let rows = chunk * HASHED_AT_ONCE..;
            hashes.iter_mut().zip(rows).for_each(|(hash, row)| *hash = key::hash(keys.row(row)));
        });
        let hash = |row: usize| match hashes.get(row) {
            Some(hash) => *hash,
            None => key::hash(keys.row(row)),
        };
        links.shared().by_hash(&mut slots, threads, hash, ask, is_same);
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
fn presence(keys: &[i64], (base, domain): (i64, u64), threads: usize) -> Option<Presence> {
    let is_small = domain <= (keys.len() as u64).saturating_mul(PRESENCE_BITS_A_ROW);
    is_small.then(|| {
        let mut present = Presence::empty(base, domain);
        let bits = Bits::of(&mut present.words);
        for_each(keys.chunks(HASHED_AT_ONCE), threads, |keys| {
            bits.set(keys.iter().map(|&key| entry_of(key, base)));
        });
        present
    })
}

/// The smallest of some integers, and how many there are up to the largest.
fn span(keys: &[i64], threads: usize) -> (i64, u64) {
    let chunks: Vec<_> = keys.chunks(HASHED_AT_ONCE).collect();
    let bounds = |chunk: usize| Ok::<_, Infallible>(range_of(chunks[chunk], None));
    let Ok(bounds) = try_map(chunks.len(), (1, threads), bounds);
    let all = bounds.into_iter().flatten().reduce(wider);
    let ValueRange { min, max } = all.unwrap_or(ValueRange { min: 0, max: 0 });
    (min, (i128::from(max) - i128::from(min) + 1).try_into().unwrap_or(u64::MAX))
}

/// Chains in the making. Rows are linked from the last to the first, so that chains run forwards.
struct Links {
    next: Vec<u32>,
    /// Of the chain that begins with a row; those of 255 rows and more are counted in the end.
    lengths: Vec<u8>,
}

impl Links {
    fn of_rows(rows: usize, threads: usize) -> Self {
        Self { next: filled(NONE, rows, threads), lengths: zeroed(rows) }
    }

    fn shared(&mut self) -> SharedLinks<'_> {
        SharedLinks { next: shared(&mut self.next), lengths: shared(&mut self.lengths) }
    }

    fn chains(self, heads: Heads) -> Chains {
        let duplicates_max = match self.lengths.into_iter().max().unwrap_or(0) {
            u8::MAX => longest(&self.next),
            length => length.into(),
        };
        Chains { heads, next: self.next, duplicates_max, by_code: ByCode::default() }
    }
}

/// Links that several threads make. Each thread owns some of the heads; it looks at all rows and links those of its heads.
/// So the rows of a key keep their order, and threads do not wait for each other where most rows have one key.
#[derive(Clone, Copy)]
struct SharedLinks<'a> {
    next: &'a [AtomicU32],
    lengths: &'a [AtomicU8],
}

impl SharedLinks<'_> {
    /// Puts a row before the others of its chain.
    #[inline(always)]
    fn link(self, row: usize, head: &mut u32) {
        let others = match *head {
            NONE => 0,
            first => self.lengths[first as usize].load(Ordering::Relaxed),
        };
        self.lengths[row].store(others.saturating_add(1), Ordering::Relaxed);
        self.next[row].store(*head, Ordering::Relaxed);
        *head = row as u32;
    }

    /// Links all rows by the places of their heads.
    fn by_address(self, heads: &mut [u32], threads: usize, place: impl Fn(usize) -> usize + Sync) {
        for_each(parts(heads, threads), threads, |(first, heads)| {
            self.in_blocks(first..first + heads.len(), &place, |rows| {
                rows.iter().for_each(|&(_, place)| prefetch(&raw const heads[place]));
                rows.iter().for_each(|&(row, place)| self.link(row, &mut heads[place]));
            });
        });
    }

    /// Links all rows by the slots of their keys.
    fn by_hash(
        self,
        slots: &mut Slots,
        threads: usize,
        hash: impl Fn(usize) -> u64 + Sync,
        ask: impl Fn(usize, usize) + Sync,
        is_same: impl Fn(usize, usize) -> bool + Sync,
    ) {
        let mask = slots.0.len() - 1;
        let first_slot = |row: usize| hash(row) as usize & mask;
        let left: Mutex<Vec<Vec<u32>>> = Mutex::default();
        for_each(parts(&mut slots.0, threads), threads, |(first, slots)| {
            let own = first..first + slots.len();
            let mut part = SlotPart { slots, links: self, left: Vec::new() };
            self.in_blocks(own, first_slot, |rows| part.link(rows, &ask, &is_same));
            left.lock().push(part.left);
        });
        // All rows of a key are of one part, in the order in which it came to them.
        for row in left.into_inner().into_iter().flatten() {
            let row = row as usize;
            let slot = slots.find(first_slot(row), |head| is_same(row, head));
            self.link(row, &mut slots.0[slot]);
        }
    }

    /// Looks at all rows, from the last to the first, and hands those in `own` places to `link`, block by block, each with its
    /// place within `own`.
    #[inline(always)]
    fn in_blocks(
        self,
        own: Range<usize>,
        place: impl Fn(usize) -> usize,
        mut link: impl FnMut(&[(usize, usize)]),
    ) {
        let (mut rows, mut count) = ([(0, 0); BLOCK_ROWS], 0);
        for row in (0..self.next.len()).rev() {
            let place = place(row).wrapping_sub(own.start);
            // Without a branch: the owner of a row cannot be predicted.
            rows[count] = (row, place);
            count += usize::from(place < own.len());
            if count == BLOCK_ROWS {
                link(&rows);
                count = 0;
            }
        }
        link(&rows[..count]);
    }
}

/// Some of the slots, for the keys whose first slot is one of them.
struct SlotPart<'a> {
    slots: &'a mut [u32],
    links: SharedLinks<'a>,
    /// Rows whose key has no place among them.
    left: Vec<u32>,
}

impl SlotPart<'_> {
    /// Links rows, whose first slots are known.
    #[inline(always)]
    fn link(
        &mut self,
        rows: &[(usize, usize)],
        ask: &impl Fn(usize, usize),
        is_same: &impl Fn(usize, usize) -> bool,
    ) {
        rows.iter().for_each(|&(_, slot)| prefetch(&raw const self.slots[slot]));
        for step in 0..ASK_STEPS {
            let heads = rows.iter().map(|&(_, slot)| self.slots[slot]);
            heads.filter(|&head| head != NONE).for_each(|head| ask(step, head as usize));
        }
        for &(row, first) in rows {
            let is_mine = |head: &&mut u32| **head == NONE || is_same(row, **head as usize);
            match self.slots[first..].iter_mut().find(is_mine) {
                Some(head) => self.links.link(row, head),
                None => self.left.push(row as u32),
            }
        }
    }
}

/// About equal parts of some heads, each with the place of its first.
fn parts(
    heads: &mut [u32],
    threads: usize,
) -> impl ExactSizeIterator<Item = (usize, &mut [u32])> + Send {
    let size = heads.len().div_ceil(threads.max(1)).max(1);
    heads.chunks_mut(size).enumerate().map(move |(part, heads)| (part * size, heads))
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
        for (factor, threads) in [(1, 1), (1 << 40, 1), (1, 3), (1 << 40, 3), (1 << 40, 64)] {
            let keys: Vec<i64> = (0..1000).map(|row| (row * 7919 % 300 - 150) * factor).collect();
            let chains = Chains::of_integers(keys.clone(), threads);
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
            assert_eq!(Chains::of_integers(keys, 2).duplicates_max, rows as u64, "{rows}");
        }
        let none = Chains::of_integers(vec![], 2);
        assert_eq!((none.find_integers(&[0, 5], 7), none.duplicates_max), (Some(vec![7, 7]), 0));
    }

    #[test]
    fn the_ends_of_integers_are_keys_like_any_other() {
        let chains = Chains::of_integers(vec![i64::MAX, i64::MIN, i64::MAX], 1);
        assert!(matches!(chains.heads, Heads::Integers { present: None, .. }));
        assert_eq!(chains.find_integers(&[i64::MIN, i64::MAX, 0], NONE), Some(vec![1, 0, NONE]));
        assert_eq!(chain(&chains, 0), [0, 2]);
    }

    #[test]
    fn keys_that_lie_apart_have_bits() {
        let keys: Vec<i64> = (0..4000).map(|row| row / 2 * 77 - 1000).collect();
        let Heads::Integers { present: Some(present), .. } =
            Chains::of_integers(keys.clone(), 2).heads
        else {
            panic!("no bits")
        };
        let is_there = |i: u64| present.words[i as usize / 64] >> (i % 64) & 1 == 1;
        let found = (0..present.domain).filter(|&i| is_there(i));
        let found: Vec<i64> = found.map(|i| present.base + i as i64).collect();
        assert_eq!(found, keys.iter().copied().step_by(2).collect::<Vec<_>>());
    }
    /// Keys of bytes, too, whoever makes the chains, where no part has place for all of its keys either.
    #[test]
    fn chains_are_the_same_whoever_makes_them() {
        let spelled = |row: usize| (row * 7919 % 90_001).to_string();
        let parts = (0..4).map(|part| {
            let rows: Vec<usize> = (part * 25_000..(part + 1) * 25_000).collect();
            let ends = rows.iter().scan(0, |end, &row| {
                *end += spelled(row).len();
                Some(*end)
            });
            let offsets = std::iter::once(0).chain(ends).collect();
            let bytes = rows.iter().flat_map(|&row| spelled(row).into_bytes()).collect();
            EncodedKeys { bytes, offsets }
        });
        let parts: Vec<EncodedKeys> = parts.collect();
        let whole = |threads| EncodedKeys::joined(&parts, threads);
        let wanted = whole(1);
        assert!((0..100_000).all(|row| wanted.row(row) == spelled(row).as_bytes()));
        let alone = Chains::of_encoded(whole(1), 1);
        for threads in [2, 5, 64] {
            let together = Chains::of_encoded(whole(threads.min(5)), threads);
            assert_eq!(together.next, alone.next);
            let found = together.find_encoded(&wanted, NONE);
            assert!(found.is_some() && found == alone.find_encoded(&wanted, NONE));
        }
    }
}
