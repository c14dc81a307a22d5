//! The last key of each block of a list, read in advance: an index of a few bytes per megabyte.

use std::ops::Range;
use std::sync::Arc;

use headrace_io::{MemoryBudget, MemoryUse, Reservation, try_map};

use super::Repeats;
use super::list::KeyList;
use super::unsorted::{check_pair, unsorted_within};
use crate::{Number, Result};

/// Keys that a search reads at once: for evenly distributed keys the first read succeeds.
const WINDOW_KEYS: u64 = 2048;

/// Small reads that justify starting a thread.
pub(super) const READS_PER_THREAD_MIN: usize = 16;

/// Concurrent small reads of a plan: enough to hide a drive's latency.
pub(super) const PLAN_READERS: usize = 32;

/// Memory for a fence and for the plan at it: segments of a list, pairs, extents of chunks.
const FENCE_MEMORY_BYTES: u64 = 512;

/// A list and its fences.
pub(super) struct Fenced<'a, K: Number> {
    pub list: &'a KeyList,
    /// By position; the last is at the list's end.
    pub fences: Vec<Fence<K::Ordered>>,
    /// Why cached fences beside the list were ignored.
    pub note: Option<String>,
    repeats: Repeats,
    /// For these, and for a plan made from them.
    pub memory: Reservation,
}

/// The end of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fence<O> {
    /// Position after the block's last key.
    pub end: u64,
    /// That key.
    pub last: O,
}

/// Keys not below the one and not above the other, as far as that is known.
pub(super) struct Between<O> {
    low: Option<O>,
    high: Option<O>,
}

impl<O: Ord + Copy> Between<O> {
    /// Whether one of these keys, which are in order, may be among them.
    pub fn meets(&self, keys: &[O]) -> bool {
        let first = self.low.map_or(0, |low| keys.partition_point(|key| *key < low));
        let first = keys.get(first);
        first.is_some_and(|key| self.high.is_none_or(|high| *key <= high))
    }
}

impl<'a, K: Number> Fenced<'a, K> {
    /// # Errors
    /// A list that the fences show to be unsorted: each block may be in order while its last key is still below
    /// the previous fence.
    pub fn new(
        list: &'a KeyList,
        fences: Vec<Fence<K::Ordered>>,
        repeats: Repeats,
        memory: Reservation,
    ) -> Result<Self> {
        let Some(pair) = fences.windows(2).find(|pair| pair[1].last < pair[0].last) else {
            return Ok(Fenced { list, fences, note: None, repeats, memory });
        };
        let between = || (list, pair[0].end..pair[1].end);
        Err(unsorted_within::<K>([between(), between()], repeats))
    }

    /// Reads the fences of blocks of up to this many keys; blocks end at segment ends.
    ///
    /// # Errors
    /// Errors of reading; a list that the fences show to be unsorted; no memory for them.
    pub fn read(
        list: &'a KeyList,
        block_keys: u64,
        repeats: Repeats,
        (readers, memory): (usize, &Arc<MemoryBudget>),
    ) -> Result<Self> {
        let (mut ends, mut start) = (Vec::new(), 0);
        let count = list.keys() / block_keys + list.segment_ends().count() as u64;
        let reserved = memory.reserve(MemoryUse::Operators, count * FENCE_MEMORY_BYTES)?;
        for segment_end in list.segment_ends() {
            let blocks = (segment_end - start).div_ceil(block_keys);
            ends.extend((1..=blocks).map(|block| (start + block * block_keys).min(segment_end)));
            start = segment_end;
        }
        let fence = |index: usize| -> Result<Fence<K::Ordered>> {
            let end: u64 = ends[index];
            let last = check_pair::<K>(list, end, repeats)?;
            Ok(Fence { end, last })
        };
        let fences = try_map(ends.len(), (READS_PER_THREAD_MIN, readers), fence)?;
        Self::new(list, fences, repeats, reserved)
    }

    /// The blocks that begin or end within a range of positions, as fences.
    pub fn within(&self, positions: &Range<u64>) -> &[Fence<K::Ordered>] {
        let from = self.fences.partition_point(|fence| fence.end <= positions.start);
        let to = self.fences.partition_point(|fence| fence.end < positions.end);
        &self.fences[from..to.max(from)]
    }

    /// What the fences tell of the keys at these positions.
    pub fn keys_between(&self, start: u64, end: u64) -> Between<K::Ordered> {
        let before = self.fences.partition_point(|fence| fence.end <= start);
        let behind = self.fences.partition_point(|fence| fence.end < end);
        let last = |index: usize| self.fences.get(index).map(|fence| fence.last);
        Between { low: before.checked_sub(1).and_then(last), high: last(behind) }
    }

    /// The first position whose key is not below `key`, or is above it.
    fn bound(&self, key: K::Ordered, is_upper: bool) -> Result<u64> {
        let is_behind = |other: K::Ordered| if is_upper { other > key } else { other >= key };
        let block = self.fences.partition_point(|fence| !is_behind(fence.last));
        let Some(fence) = self.fences.get(block) else { return Ok(self.list.keys()) };
        let start = if block == 0 { 0 } else { self.fences[block - 1].end };
        // The fence's own key is behind: only those before it are asked for.
        let mut within = start..fence.end - 1;
        let before = if block == 0 { None } else { Some(self.fences[block - 1].last) };
        let mut middle = guessed(&within, before.map(Into::into), key.into(), fence.last.into());
        loop {
            let window = around(middle, &within);
            let keys = self.list.keys_at::<K>(window.clone())?;
            let found = keys.partition_point(|other| !is_behind(other.ordered())) as u64;
            // What is found at an edge may go on behind it.
            let goes_on = [found == 0, found == keys.len() as u64];
            match goes_on {
                [true, _] if window.start > within.start => within.end = window.start,
                [_, true] if window.end < within.end => within.start = window.end,
                _ => return Ok(window.start + found),
            }
            middle = within.start + (within.end - within.start) / 2;
        }
    }

    /// The cut of this list for a cut of `other` at `position`. Both are in order there: the keys on both
    /// sides of a cut were checked.
    ///
    /// # Errors
    /// Errors of reading; an unsorted list.
    pub fn beside(&self, other: &Fenced<'_, K>, position: u64) -> Result<u64> {
        if position >= other.list.keys() {
            return Ok(self.list.keys());
        }
        let key = other.list.keys_at::<K>(position..position + 1)?[0].ordered();
        let first = self.bound(key, false)?;
        if position == 0 || check_pair::<K>(other.list, position, self.repeats)? < key {
            return Ok(first);
        }
        let rank = position - other.bound(key, false)?.min(position);
        let cut = (first + rank).min(self.bound(key, true)?);
        if (1..self.list.keys()).contains(&cut) {
            check_pair::<K>(self.list, cut, self.repeats)?;
        }
        Ok(cut)
    }
}

/// The interpolated position of a key in a range, if keys grow evenly from `before` to `last`.
fn guessed(positions: &Range<u64>, before: Option<u64>, key: u64, last: u64) -> u64 {
    let count = positions.end - positions.start;
    let share = match before {
        Some(before) if before < last => key.saturating_sub(before) as f64 / (last - before) as f64,
        _ => 0.5,
    };
    positions.start + ((count as f64 * share) as u64).min(count)
}

/// Positions around one, inside a range.
fn around(middle: u64, positions: &Range<u64>) -> Range<u64> {
    let start = middle.saturating_sub(WINDOW_KEYS / 2).max(positions.start);
    start..(start + WINDOW_KEYS).min(positions.end)
}
