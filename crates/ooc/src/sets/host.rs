//! The kernel on the CPU.

use headrace_flow::{BoxError, FedChunk, HostProducer, Outbox, Verdict};

use super::SetOperation;
use super::cut::at_diagonal;
use super::found::{Found, Pair};
use super::merge::{Merge, merge_of};
use super::unsorted::first_out_of_order;
use crate::Number;

/// Keys of both lists that are checked and merged at a time: with their output they stay in a core's cache.
const TILE_KEYS: usize = 16 << 10;

/// The state of a thread.
pub(super) struct OnHost<'a, K> {
    merge: Merge<K>,
    found: &'a Found,
    chunks: &'a [Vec<Pair>],
    /// Output that is counted and not written.
    scratch: Vec<K>,
}

impl<'a, K: Number> OnHost<'a, K> {
    pub fn new(operation: SetOperation, found: &'a Found, chunks: &'a [Vec<Pair>]) -> Self {
        let scratch = vec![K::zeroed(); TILE_KEYS + 1];
        OnHost { merge: merge_of(operation), found, chunks, scratch }
    }

    /// Processes a pair; its output keys go to the start of `out` if that is given.
    fn pair(
        &mut self,
        pair: &Pair,
        [a, b]: [&[K]; 2],
        mut out: Option<&mut [K]>,
    ) -> Result<usize, BoxError> {
        let (mut keys, mut from) = (0, (0, 0));
        let all = a.len() + b.len();
        while from.0 + from.1 < all {
            let to = at_diagonal(a, b, (from.0 + from.1 + TILE_KEYS).min(all));
            if to.0 < from.0 || to.1 < from.1 {
                return Err(self.found.unsorted(pair));
            }
            for (list, from, to) in [(a, from.0, to.0), (b, from.1, to.1)] {
                if first_out_of_order(&list[from.saturating_sub(1)..to], self.found.repeats)
                    .is_some()
                {
                    return Err(self.found.unsorted(pair));
                }
            }
            let into = match &mut out {
                Some(out) => &mut out[keys..],
                None => &mut self.scratch[..],
            };
            let merged = (self.merge)(&a[from.0..to.0], &b[from.1..to.1], into);
            keys += merged.ok_or_else(|| self.found.unsorted(pair))?;
            from = to;
        }
        Ok(keys)
    }

    fn chunk(
        &mut self,
        pairs: &[Pair],
        lists: &[&[u8]],
        mut out: Option<&mut [K]>,
    ) -> Result<usize, BoxError> {
        let mut keys = 0;
        for (pair, lists) in pairs.iter().zip(lists.as_chunks::<2>().0) {
            let mut aligned = [Vec::new(), Vec::new()];
            for (list, aligned) in lists.iter().zip(&mut aligned) {
                if bytemuck::try_cast_slice::<u8, K>(list).is_err() {
                    *aligned = bytemuck::pod_collect_to_vec(list);
                }
            }
            let keys_of = |list: usize| match bytemuck::try_cast_slice(lists[list]) {
                Ok(keys) => keys,
                Err(_) => &aligned[list][..],
            };
            let out = out.as_deref_mut().map(|out| &mut out[keys..]);
            keys += self.pair(pair, [keys_of(0), keys_of(1)], out)?;
        }
        Ok(keys)
    }
}

impl<K: Number> HostProducer for OnHost<'_, K> {
    fn produce(
        &mut self,
        chunk: &FedChunk,
        lists: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError> {
        let pairs = &self.chunks[chunk.number];
        let keys = if self.found.is_counted_only {
            self.chunk(pairs, lists, None)?
        } else {
            let bytes_max = lists.iter().map(|list| list.len()).sum();
            let mut window = outbox.append(0, bytes_max)?;
            let keys = self.chunk(pairs, lists, Some(bytemuck::cast_slice_mut(&mut window)))?;
            window.send_first(keys * size_of::<K>());
            keys
        };
        self.found.add(keys as u64);
        Ok(Verdict::Continue)
    }
}
