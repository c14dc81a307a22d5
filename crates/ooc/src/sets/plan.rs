//! Which bytes form a chunk.
//!
//! ```text
//! A  ──┬────────┬──────┬───────  fences: the last key of each block
//! B  ─────┬───────┬───────────
//!      └─ cut ─┴─ cut ─┘         at a fence of either list, and beside it in the other (`cut`)
//!      pair     pair             a stretch of A and the stretch of B that its keys may meet
//!      └─────chunk─────┘         pairs, up to what a slot holds
//! ```
//!
//! Pairs without output are dropped: the race never reads them. If one list is much denser than the other, the few keys of
//! a pair are read, and the other list is cut where blocks begin that have no counterpart among them.
//!
//! The plan needs one small read for each 2 MiB of input, a guess for each chunk, and of lists of very different density
//! the shorter one. Nothing else must be known before the race.

use std::ops::Range;
use std::sync::Arc;

use headrace_flow::{ChunkSpec, ReadSpec};
use headrace_io::{MemoryBudget, Reservation, try_map};

use super::fences::{Fenced, READS_PER_THREAD_MIN};
use super::found::{CHUNK_PAIRS_MAX, Pair};
use super::list::KeyList;
use super::sidecar::fenced;
use super::unsorted::unsorted_within;
use super::{Repeats, SetOperation};
use crate::{Number, Result};

/// Storage has read so many bytes before it has found another place.
const SKIPPED_BYTES_MIN: u64 = 256 << 10;

/// Options of a plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Maximum keys of a chunk, of both lists.
    pub chunk_keys: u64,
    /// Keys of a block; the last one is its fence.
    pub block_keys: u64,
    /// Fewer keys without a counterpart are read rather than left out.
    pub skipped_keys_min: u64,
    /// Concurrent reads.
    pub readers: usize,
}

impl Shape {
    /// For chunks of this many bytes.
    pub fn of(chunk_bytes: u64, fence_bytes: u64, key_bytes: u64, readers: usize) -> Shape {
        // A device counts keys of a chunk with 32 bits.
        let chunk_keys = (chunk_bytes / key_bytes).clamp(16, 1 << 31);
        // A chunk may be a block longer than it was meant to be.
        let block_keys = (fence_bytes / key_bytes).clamp(1, chunk_keys / 8);
        let skipped_keys_min = (SKIPPED_BYTES_MIN / key_bytes).min(chunk_keys / 64);
        Shape { chunk_keys, block_keys, skipped_keys_min, readers }
    }
}

/// The chunks of a race.
#[derive(Debug)]
pub(super) struct Plan {
    pub chunks: Vec<Vec<Pair>>,
    /// Keys in no chunk.
    pub dropped_keys: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
    _memory: [Reservation; 2],
}

impl Plan {
    /// Plans an operation.
    ///
    /// # Errors
    /// Errors of reading; a list found out of order.
    pub fn new<K: Number>(
        lists: [&KeyList; 2],
        operation: SetOperation,
        repeats: Repeats,
        shape: Shape,
        memory: &Arc<MemoryBudget>,
    ) -> Result<Plan> {
        let list = |number: usize| {
            fenced::<K>(lists[number], shape.block_keys, repeats, (shape.readers, memory))
        };
        let mut planner = Planner { lists: [list(0)?, list(1)?], operation, repeats, shape };
        let pairs = planner.pairs()?;
        let all_keys = lists[0].keys() + lists[1].keys();
        let kept_keys: u64 = pairs.iter().map(Pair::keys).sum();
        let notes = planner.lists.iter_mut().filter_map(|list| list.note.take()).collect();
        let chunks = grouped(pairs, shape.chunk_keys);
        let _memory = planner.lists.map(|list| list.memory);
        Ok(Plan { chunks, dropped_keys: all_keys - kept_keys, notes, _memory })
    }

    /// The reads of the race: for each pair the stretch of the first list, then that of the second.
    pub fn specs(&self, lists: [&KeyList; 2]) -> Vec<ChunkSpec> {
        let files_of_a = lists[0].files().len();
        let reads = |pair: &Pair| -> [ReadSpec; 2] {
            let b = lists[1].read(&pair.b, files_of_a);
            // An empty range of an empty list is in none of its files.
            let b = if pair.b.is_empty() { ReadSpec { file: 0, offset: 0, bytes: 0 } } else { b };
            let a = lists[0].read(&pair.a, 0);
            let a =
                if pair.a.is_empty() { ReadSpec { file: b.file, offset: 0, bytes: 0 } } else { a };
            [a, b]
        };
        let spec = |pairs: &Vec<Pair>| ChunkSpec { reads: pairs.iter().flat_map(reads).collect() };
        self.chunks.iter().map(spec).collect()
    }
}

struct Planner<'a, K: Number> {
    lists: [Fenced<'a, K>; 2],
    operation: SetOperation,
    repeats: Repeats,
    shape: Shape,
}

/// A cut of both lists.
type Cut = [u64; 2];

/// Consecutive blocks which have counterparts in the other list, or have none.
struct Stretch {
    end: u64,
    is_met: bool,
}

impl<K: Number> Planner<'_, K> {
    /// The pairs that may have output, in order.
    fn pairs(&self) -> Result<Vec<Pair>> {
        let ends = [0, 1].map(|list: usize| self.lists[list].list.keys());
        let mut cuts = self.beside(&self.chosen())?;
        cuts.extend([[0, 0], ends]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut pairs = Vec::with_capacity(cuts.len());
        for pair in cuts.windows(2) {
            self.add(self.between(pair[0], pair[1])?, &mut pairs)?;
        }
        Ok(pairs)
    }

    /// Fences to cut at, of either list: enough that the stretch between two fits a chunk, as far as
    /// fences tell, and every segment end.
    fn chosen(&self) -> Vec<(usize, u64)> {
        let [a, b] = [&self.lists[0].fences, &self.lists[1].fences];
        let mut segment_ends =
            [0, 1].map(|list: usize| self.lists[list].list.segment_ends().peekable());
        let (mut next, mut at, mut cut_at) = ([0, 0], [0u64, 0], 0);
        let mut chosen: Vec<(usize, u64)> = Vec::new();
        // What a pair may have beyond what its fences tell: a block of the list that is cut beside one.
        let keys_max = self.shape.chunk_keys.saturating_sub(2 * self.shape.block_keys).max(1);
        let mut last: Option<(usize, u64)> = None;
        while next[0] < a.len() || next[1] < b.len() {
            let list = match (a.get(next[0]), b.get(next[1])) {
                (Some(x), Some(y)) => usize::from(y.last < x.last),
                (Some(_), None) => 0,
                _ => 1,
            };
            let fence = self.lists[list].fences[next[list]];
            next[list] += 1;
            let keys = fence.end - at[list];
            at[list] = fence.end;
            let total = at[0] + at[1];
            if total - cut_at > keys_max
                && let Some(before) = last
            {
                chosen.push(before);
                cut_at = total - keys;
            }
            last = Some((list, fence.end));
            // Where a list ends there is nothing to cut.
            let is_segment_end = segment_ends[list].next_if_eq(&fence.end).is_some();
            if is_segment_end && fence.end < self.lists[list].list.keys() {
                chosen.push((list, fence.end));
                (cut_at, last) = (total, None);
            }
        }
        chosen
    }

    /// The cuts at these positions of either list. Both lists are in order at each.
    fn beside(&self, chosen: &[(usize, u64)]) -> Result<Vec<Cut>> {
        try_map(chosen.len(), (READS_PER_THREAD_MIN, self.shape.readers), |index| -> Result<Cut> {
            let (list, position) = chosen[index];
            let other = 1 - list;
            let mut cut = [position; 2];
            cut[other] = self.lists[other].beside(&self.lists[list], position)?;
            Ok(cut)
        })
    }

    /// # Errors
    /// Contradicting cuts: a list is out of order.
    fn between(&self, from: Cut, to: Cut) -> Result<Pair> {
        if from[0] <= to[0] && from[1] <= to[1] {
            return Ok(Pair { a: from[0]..to[0], b: from[1]..to[1] });
        }
        let all = |number: usize| (self.lists[number].list, 0..self.lists[number].list.keys());
        Err(unsorted_within::<K>([all(0), all(1)], self.repeats))
    }

    /// Where, in the longer list of a pair, blocks begin and end that have no counterpart among the few keys of the other.
    fn ends_of_stretches(&self, of: [&Range<u64>; 2], longer: usize) -> Result<Vec<u64>> {
        let (long, short) = (&self.lists[longer], &self.lists[1 - longer]);
        let fences = long.within(of[longer]);
        if fences.is_empty() {
            return Ok(Vec::new());
        }
        let keys = short.list.keys_at::<K>(of[1 - longer].clone())?;
        let keys: Vec<K::Ordered> = keys.into_iter().map(|key| key.ordered()).collect();
        if !keys.is_sorted() {
            let within = || (short.list, of[1 - longer].clone());
            return Err(unsorted_within::<K>([within(), within()], self.repeats));
        }
        let mut stretches: Vec<Stretch> = Vec::new();
        let ends = fences.iter().map(|fence| fence.end).chain([of[longer].end]);
        let mut start = of[longer].start;
        for end in ends {
            let is_met = long.keys_between(start, end).meets(&keys);
            match stretches.last_mut().filter(|last| last.is_met == is_met) {
                Some(last) => last.end = end,
                None => stretches.push(Stretch { end, is_met }),
            }
            start = end;
        }
        let mut start = of[longer].start;
        for stretch in &mut stretches {
            stretch.is_met |= stretch.end - start < self.shape.skipped_keys_min;
            start = stretch.end;
        }
        let changes = stretches.windows(2).filter(|pair| pair[0].is_met != pair[1].is_met);
        Ok(changes.map(|pair| pair[0].end).collect())
    }

    /// Adds a pair, or its non-empty parts, none larger than a chunk.
    fn add(&self, pair: Pair, pairs: &mut Vec<Pair>) -> Result<()> {
        let count = |keys: &Range<u64>| keys.end - keys.start;
        if self.operation.is_void(count(&pair.a), count(&pair.b)) {
            return Ok(());
        }
        let longer = usize::from(count(&pair.b) > count(&pair.a));
        let positions = [&pair.a, &pair.b][longer].clone();
        let drops = match self.operation {
            SetOperation::Intersection => true,
            SetOperation::Difference => longer == 1,
            _ => false,
        };
        let is_large = pair.keys() > self.shape.chunk_keys;
        let inner: Vec<(usize, u64)> = if is_large {
            // Fences told less than there is, or runs of equal keys are longer than blocks.
            vec![(longer, positions.start + count(&positions) / 2)]
        } else if drops && pair.is_skewed() {
            let ends = self.ends_of_stretches([&pair.a, &pair.b], longer)?;
            ends.into_iter().map(|end| (longer, end)).collect()
        } else {
            Vec::new()
        };
        if inner.is_empty() {
            pairs.push(pair);
            return Ok(());
        }
        let mut cuts = vec![[pair.a.start, pair.b.start]];
        cuts.extend(self.beside(&inner)?);
        cuts.push([pair.a.end, pair.b.end]);
        for part in cuts.windows(2) {
            let part = self.between(part[0], part[1])?;
            match is_large {
                true => self.add(part, pairs)?,
                false if self.operation.is_void(count(&part.a), count(&part.b)) => {}
                false => pairs.push(part),
            }
        }
        Ok(())
    }
}

/// Consecutive pairs, grouped into chunks that fit a slot.
fn grouped(pairs: Vec<Pair>, chunk_keys: u64) -> Vec<Vec<Pair>> {
    let mut chunks: Vec<Vec<Pair>> = Vec::new();
    let mut keys = 0;
    for pair in pairs {
        let joins = keys + pair.keys() <= chunk_keys;
        match chunks.last_mut().filter(|chunk| joins && chunk.len() < CHUNK_PAIRS_MAX) {
            Some(chunk) => {
                keys += pair.keys();
                chunk.push(pair);
            }
            None => {
                keys = pair.keys();
                chunks.push(vec![pair]);
            }
        }
    }
    chunks
}
