//! Pieces of both lists, and what is found in them.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use headrace_flow::BoxError;
use parking_lot::Mutex;

use super::Repeats;

/// Maximum pairs of a chunk: each is a separate launch on a device.
pub(super) const CHUNK_PAIRS_MAX: usize = 32;

/// From this ratio on a pair is cut where blocks of its longer list have no counterpart: the shorter list then has less than one
/// key per some kilobytes of the longer.
const SKEW: u64 = 64;

/// A stretch of each list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub a: Range<u64>,
    pub b: Range<u64>,
}

impl Pair {
    pub fn keys(&self) -> u64 {
        (self.a.end - self.a.start) + (self.b.end - self.b.start)
    }

    pub fn is_skewed(&self) -> bool {
        let [a, b] = [&self.a, &self.b].map(|keys| keys.end - keys.start);
        a.min(b) * SKEW < a.max(b)
    }
}

/// The combined findings of chunks.
pub(super) struct Found {
    pub repeats: Repeats,
    pub is_counted_only: bool,
    keys: AtomicU64,
    /// The first pair found out of order.
    pub unsorted: Mutex<Option<Pair>>,
}

impl Found {
    pub fn new(repeats: Repeats, is_counted_only: bool) -> Self {
        Found { repeats, is_counted_only, keys: AtomicU64::new(0), unsorted: Mutex::new(None) }
    }

    pub fn add(&self, keys: u64) {
        self.keys.fetch_add(keys, Ordering::Relaxed);
    }

    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// A pair is out of order; its position is determined after the race.
    pub fn unsorted(&self, pair: &Pair) -> BoxError {
        let mut first = self.unsorted.lock();
        if first
            .as_ref()
            .is_none_or(|first| (pair.a.start, pair.b.start) < (first.a.start, first.b.start))
        {
            *first = Some(pair.clone());
        }
        "a list is out of order".into()
    }
}
