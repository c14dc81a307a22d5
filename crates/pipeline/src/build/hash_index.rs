//! The hash table of a build.

use crate::build::{ByCode, HashIndex, key};

const EMPTY: u32 = u32::MAX;

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
        for row in (0..rows as u32).rev() {
            let slot = index.slot(index.key(row));
            index.next[row as usize] = index.heads[slot];
            index.heads[slot] = row;
        }
        index.duplicates_max = index.longest_chain();
        index
    }

    /// First row of a key.
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        let head = self.heads[self.slot(key)];
        (head != EMPTY).then_some(head)
    }

    /// The encoded key of a row.
    pub fn key(&self, row: u32) -> &[u8] {
        let row = row as usize;
        &self.key_bytes[self.key_offsets[row] as usize..self.key_offsets[row + 1] as usize]
    }

    fn longest_chain(&self) -> u64 {
        let length = |head: u32| {
            std::iter::successors(Some(head), |&row| {
                Some(self.next[row as usize]).filter(|&next| next != EMPTY)
            })
            .count() as u64
        };
        self.heads
            .iter()
            .filter(|&&head| head != EMPTY)
            .map(|&head| length(head))
            .max()
            .unwrap_or(0)
    }

    /// Where a key is, or the empty entry where it belongs: linear probing.
    fn slot(&self, key: &[u8]) -> usize {
        let mask = self.heads.len() - 1;
        let mut slot = key::hash(key) as usize & mask;
        while self.heads[slot] != EMPTY && self.key(self.heads[slot]) != key {
            slot = (slot + 1) & mask;
        }
        slot
    }
}
