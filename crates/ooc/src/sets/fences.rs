//! The last key of each block of a list, read before anything else: an index of a few bytes a megabyte.

use std::ops::Range;

use super::Repeats;
use super::list::KeyList;
use super::parallel::try_map;
use super::unsorted::{check_pair, unsorted_within};
use crate::{Number, Result};

/// Keys that are read at once where a search has come so far: a page, mostly.
const SEARCH_KEYS: u64 = 256;

/// A list and its fences.
pub(super) struct Fenced<'a, K: Number> {
    pub list: &'a KeyList,
    /// In the order of their positions; the last stands at the list's end.
    pub fences: Vec<Fence<K::Ordered>>,
}

/// Where a block ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fence<O> {
    /// Position behind the block's last key.
    pub end: u64,
    /// That key.
    pub last: O,
}

impl<'a, K: Number> Fenced<'a, K> {
    /// Reads the fences of blocks of up to so many keys, which end where segments do.
    ///
    /// # Errors
    /// Those of reading; a list that the fences show to be unsorted.
    pub fn read(
        list: &'a KeyList,
        block_keys: u64,
        repeats: Repeats,
        readers: usize,
    ) -> Result<Self> {
        let mut ends = Vec::new();
        let mut start = 0;
        for segment_end in list.segment_ends() {
            let blocks = (segment_end - start).div_ceil(block_keys);
            ends.extend((1..=blocks).map(|block| (start + block * block_keys).min(segment_end)));
            start = segment_end;
        }
        let fence = |index: usize| {
            let end: u64 = ends[index];
            let last = check_pair::<K>(list, end, repeats)?;
            Ok(Fence { end, last })
        };
        let fences: Vec<Fence<K::Ordered>> = try_map(readers, ends.len(), fence)?;
        // Between two fences everything may be in order, and the second still be below the first.
        if let Some(pair) = fences.windows(2).find(|pair| pair[1].last < pair[0].last) {
            let between = || (list, pair[0].end..pair[1].end);
            return Err(unsorted_within::<K>([between(), between()], repeats));
        }
        Ok(Fenced { list, fences })
    }

    /// The blocks that begin or end within a range of positions, as fences.
    pub fn within(&self, positions: &Range<u64>) -> &[Fence<K::Ordered>] {
        let from = self.fences.partition_point(|fence| fence.end <= positions.start);
        let to = self.fences.partition_point(|fence| fence.end < positions.end);
        &self.fences[from..to.max(from)]
    }

    /// The first position whose key is not below `key`, or above it.
    fn bound(&self, key: K::Ordered, is_upper: bool) -> Result<u64> {
        let is_behind = |other: K::Ordered| if is_upper { other > key } else { other >= key };
        let block = self.fences.partition_point(|fence| !is_behind(fence.last));
        let Some(fence) = self.fences.get(block) else { return Ok(self.list.keys()) };
        let start = if block == 0 { 0 } else { self.fences[block - 1].end };
        // The fence's own key is behind: only those before it are asked for.
        let Range { start: mut low, end: mut high } = start..fence.end - 1;
        while high - low > SEARCH_KEYS {
            let middle = low + (high - low) / 2;
            match is_behind(self.list.keys_at::<K>(middle..middle + 1)?[0].ordered()) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        let rest = self.list.keys_at::<K>(low..high)?;
        Ok(low + rest.partition_point(|other| !is_behind(other.ordered())) as u64)
    }

    /// Where this list is cut if `other` is cut at `position`.
    pub fn beside(&self, other: &Fenced<'_, K>, position: u64) -> Result<u64> {
        if position >= other.list.keys() {
            return Ok(self.list.keys());
        }
        let around = other.list.keys_at::<K>(position.saturating_sub(1)..position + 1)?;
        let (before, key) = (around[0].ordered(), around[around.len() - 1].ordered());
        let first = self.bound(key, false)?;
        if position == 0 || before < key {
            return Ok(first);
        }
        let rank = position - other.bound(key, false)?.min(position);
        Ok((first + rank).min(self.bound(key, true)?))
    }
}
