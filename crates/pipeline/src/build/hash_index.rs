//! The hash table of a build.

use std::ops::Range;

use crate::build::key::EncodedKeys;
use crate::build::{ByCode, HashIndex, key};
use crate::cpu::simd::prefetch;

const EMPTY: u32 = u32::MAX;

/// Rows that are looked up together: all ask for a cache line before the first of them reads its own.
const BLOCK_ROWS: usize = 64;

impl HashIndex {
    /// A table over the keys of rows `0 .. offsets.len() - 1`. Rows of one key are chained in
    /// their order.
    pub(crate) fn new(key_bytes: Vec<u8>, key_offsets: Vec<u64>) -> Self {
        let rows = key_offsets.len() - 1;
        let entries = (rows * 2).next_power_of_two().max(2);
        let mut index = Self {
            heads: vec![EMPTY; entries],
            next: vec![EMPTY; rows],
            key_bytes,
            key_offsets,
            duplicates_max: 0,
            by_code: ByCode::default(),
        };
        // From the last row to the first, so that chains run forwards.
        let mut lengths = vec![0u32; rows];
        for end in (1..=rows).rev().step_by(BLOCK_ROWS) {
            let begin = end.saturating_sub(BLOCK_ROWS);
            let slots = index.asked_for(begin..end, |row| index.key(row as u32));
            for row in (begin..end).rev() {
                let slot = index.slot(index.key(row as u32), slots[row - begin]);
                let head = index.heads[slot];
                lengths[row] = 1 + if head == EMPTY { 0 } else { lengths[head as usize] };
                index.next[row] = head;
                index.heads[slot] = row as u32;
            }
        }
        index.duplicates_max = lengths.into_iter().max().unwrap_or(0).into();
        index
    }

    /// First row of a key.
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        let head = self.heads[self.slot(key, self.first_slot(key))];
        (head != EMPTY).then_some(head)
    }

    /// First row of each key, `missing` for those that are not there or for which `skipped` is not 0.
    pub(crate) fn find_all(
        &self,
        keys: &EncodedKeys,
        skipped: Option<&[u8]>,
        missing: u32,
    ) -> Vec<u32> {
        let rows = keys.offsets.len() - 1;
        let mut found = Vec::with_capacity(rows);
        for begin in (0..rows).step_by(BLOCK_ROWS) {
            let end = (begin + BLOCK_ROWS).min(rows);
            let slots = self.asked_for(begin..end, |row| keys.row(row));
            found.extend((begin..end).map(|row| {
                if skipped.is_some_and(|skipped| skipped[row] != 0) {
                    return missing;
                }
                let head = self.heads[self.slot(keys.row(row), slots[row - begin])];
                if head == EMPTY { missing } else { head }
            }));
        }
        found
    }

    /// The first slots of a block of keys; what will be read of them is on its way.
    #[inline(always)]
    fn asked_for<'k>(
        &self,
        rows: Range<usize>,
        key: impl Fn(usize) -> &'k [u8],
    ) -> [usize; BLOCK_ROWS] {
        let mut slots = [0; BLOCK_ROWS];
        let count = rows.len();
        for (slot, row) in slots.iter_mut().zip(rows) {
            *slot = self.first_slot(key(row));
            prefetch(&raw const self.heads[*slot]);
        }
        let head = |slot: &usize| Some(self.heads[*slot] as usize).filter(|&h| h != EMPTY as usize);
        let heads = || slots[..count].iter().filter_map(head);
        heads().for_each(|head| prefetch(&raw const self.key_offsets[head]));
        heads().for_each(|head| {
            prefetch(self.key_bytes.as_ptr().wrapping_add(self.key_offsets[head] as usize));
        });
        slots
    }

    /// The encoded key of a row.
    pub fn key(&self, row: u32) -> &[u8] {
        let row = row as usize;
        &self.key_bytes[self.key_offsets[row] as usize..self.key_offsets[row + 1] as usize]
    }

    fn first_slot(&self, key: &[u8]) -> usize {
        key::hash(key) as usize & (self.heads.len() - 1)
    }

    /// Where a key is, or the empty entry where it belongs, looked for from its first slot on: linear
    /// probing.
    fn slot(&self, key: &[u8], first: usize) -> usize {
        let mask = self.heads.len() - 1;
        let mut slot = first;
        while self.heads[slot] != EMPTY && self.key(self.heads[slot]) != key {
            slot = (slot + 1) & mask;
        }
        slot
    }
}
