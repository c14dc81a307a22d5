//! Where the first rows of chains are found by hash.

use std::ops::Range;

use headrace_columns::key::ASK_STEPS;
use headrace_columns::simd::prefetch;
use headrace_io::huge::filled;

/// No row.
pub(super) const NONE: u32 = u32::MAX;

/// Rows that are looked up together: all ask for a cache line before the first of them reads its own.
pub(super) const BLOCK_ROWS: usize = 64;

/// Open addressing with linear probing: the first row of the chain that lies there, or `u32::MAX`. A power of two of them, at most
/// half of which are taken.
#[derive(Debug)]
pub struct Slots(pub(super) Vec<u32>);

impl Slots {
    pub(super) fn for_rows(rows: usize, threads: usize) -> Self {
        Self(filled(NONE, (rows * 2).next_power_of_two().max(2), threads))
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val::<[u32]>(&self.0)
    }

    /// Where a key is, or the empty slot where it belongs, looked for from a slot on.
    #[inline(always)]
    pub(super) fn find(&self, first: usize, is_same: impl Fn(usize) -> bool) -> usize {
        let mask = self.0.len() - 1;
        let mut slot = first;
        while self.0[slot] != NONE && !is_same(self.0[slot] as usize) {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// The first slots of a block of keys. Their cache lines are prefetched; `ask` prefetches the heads step by step.
    #[inline(always)]
    fn asked_for(
        &self,
        rows: Range<usize>,
        hash: impl Fn(usize) -> u64,
        ask: impl Fn(usize, usize),
    ) -> [usize; BLOCK_ROWS] {
        let mut slots = [0; BLOCK_ROWS];
        let count = rows.len();
        for (slot, row) in slots.iter_mut().zip(rows) {
            *slot = hash(row) as usize & (self.0.len() - 1);
            prefetch(&raw const self.0[*slot]);
        }
        for step in 0..ASK_STEPS {
            let heads = slots[..count].iter().map(|&slot| self.0[slot]);
            heads.filter(|&head| head != NONE).for_each(|head| ask(step, head as usize));
        }
        slots
    }

    #[inline(always)]
    pub(super) fn find_all(
        &self,
        rows: usize,
        (hash, ask, is_same): (
            impl Fn(usize) -> u64,
            impl Fn(usize, usize),
            impl Fn(usize, usize) -> bool,
        ),
        missing: u32,
    ) -> Vec<u32> {
        let mut heads = Vec::with_capacity(rows);
        for begin in (0..rows).step_by(BLOCK_ROWS) {
            let end = (begin + BLOCK_ROWS).min(rows);
            let first = self.asked_for(begin..end, &hash, &ask);
            heads.extend((begin..end).zip(first).map(|(row, first)| {
                found(self.0[self.find(first, |head| is_same(row, head))], missing)
            }));
        }
        heads
    }
}

/// A row, or what stands for none.
pub(super) fn found(row: u32, missing: u32) -> u32 {
    if row == NONE { missing } else { row }
}
