//! Columns that stay in device memory from query to query.
//!
//! An entry is one column of one segment: values and validity in one buffer. A query that
//! streams a segment leaves its columns here while the budget lasts; entries that no running
//! query has touched make room for it, the one used longest ago first. Entries that the same
//! query brought or used never make room, so a table larger than the budget keeps a part of
//! itself resident instead of driving itself out.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headrace_gpu::DeviceBuffer;

use crate::cuda::layout::ColumnForm;

/// A file as it was when its identity was taken: see [`ResidentColumns::file_id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(u64);

/// Which column of which segment of which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ColumnKey {
    /// The file.
    pub file: FileId,
    /// Index of the column in the file.
    pub column: u32,
    /// Record batch.
    pub batch: u32,
    /// First row within the batch.
    pub first_row: u64,
    /// Number of rows.
    pub rows: u32,
}

/// One column of a segment in device memory.
#[derive(Debug)]
pub struct ResidentColumn {
    /// Values from its start.
    pub buffer: DeviceBuffer,
    /// How they lie.
    pub form: ColumnForm,
    /// What is added to differences.
    pub base: i64,
    /// Where the validity bitmap lies, if there is one, and its bytes.
    pub validity: Option<(u64, u64)>,
    /// The last query that used it, 0 for none.
    pub(super) used: AtomicU64,
}

impl ResidentColumn {
    /// Takes note that a query uses it.
    pub(super) fn touch(&self, query: u64) {
        self.used.fetch_max(query, Ordering::Relaxed);
    }
}

/// What a [`ResidentColumns`] holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentStats {
    /// Bytes that entries may take.
    pub budget_bytes: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Number of entries.
    pub entries: u64,
    /// Look-ups that found one.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Entries dropped to make room.
    pub evictions: u64,
    /// Columns that found no room.
    pub refusals: u64,
}

#[derive(Default)]
struct State {
    columns: LastUsed<ColumnKey, ResidentColumn>,
    files: HashMap<Arc<[u8]>, FileId>,
    /// Columns that did not fit what was claimed of them.
    plain: HashSet<ColumnKey>,
    stats: ResidentStats,
    query: u64,
}

/// The cache.
pub struct ResidentColumns {
    state: Mutex<State>,
}

impl ResidentColumns {
    /// An empty cache.
    pub fn new(budget_bytes: u64) -> Self {
        let stats = ResidentStats { budget_bytes, ..ResidentStats::default() };
        Self { state: Mutex::new(State { stats, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a column may be kept narrow: it was never found not to fit.
    pub fn may_narrow(&self, key: &ColumnKey) -> bool {
        !self.state().plain.contains(key)
    }

    /// A column is to be kept as it lies in its file.
    pub fn keep_plain(&self, key: ColumnKey) {
        self.state().plain.insert(key);
    }

    /// What it holds and has done.
    pub fn stats(&self) -> ResidentStats {
        self.state().stats
    }

    /// Number of a new query, for [`Self::get`] and [`Self::put`].
    pub fn begin_query(&self) -> u64 {
        let mut state = self.state();
        state.query += 1;
        state.query
    }

    /// The number of a file in keys. `identity` is whatever bytes differ when the file does.
    pub fn file_id(&self, identity: &Arc<[u8]>) -> FileId {
        let mut state = self.state();
        let next = FileId(state.files.len() as u64);
        *state.files.entry(Arc::clone(identity)).or_insert(next)
    }

    /// A column, if it is here.
    pub fn get(&self, key: &ColumnKey, query: u64) -> Option<Arc<ResidentColumn>> {
        let mut state = self.state();
        let found = state.columns.get(key);
        match &found {
            Some(column) => {
                column.touch(query);
                state.stats.hits += 1;
            }
            None => state.stats.misses += 1,
        }
        found
    }

    /// Makes room for `bytes` under the budget, if entries of older queries allow it.
    pub fn make_room(&self, bytes: u64, query: u64) -> bool {
        let mut state = self.state();
        while state.stats.bytes + bytes > state.stats.budget_bytes {
            if !state.evict(query) {
                state.stats.refusals += 1;
                return false;
            }
        }
        true
    }

    /// Keeps a column whose bytes are on their way: it must not be read by work that is not
    /// ordered behind the copy. Another copy of the same column is replaced.
    pub fn put(&self, key: ColumnKey, column: Arc<ResidentColumn>, query: u64) {
        let mut state = self.state();
        column.touch(query);
        state.stats.bytes += column.buffer.capacity_bytes();
        state.stats.entries += 1;
        if let Some(old) = state.columns.insert(key, column) {
            state.stats.bytes -= old.buffer.capacity_bytes();
            state.stats.entries -= 1;
        }
    }

    /// Drops the entry used longest ago that no query holds; whether there was one.
    pub fn evict_oldest(&self) -> bool {
        self.state().evict(u64::MAX)
    }

    /// Drops every entry that no query holds.
    pub fn clear(&self) {
        while self.evict_oldest() {}
    }
}

impl State {
    /// Drops the entry used longest ago among those last used before `query` and held by none.
    fn evict(&mut self, query: u64) -> bool {
        let Some(column) = self.columns.take_oldest(query) else { return false };
        self.stats.bytes -= column.buffer.capacity_bytes();
        self.stats.entries -= 1;
        self.stats.evictions += 1;
        true
    }
}

/// What tells when it was last used.
trait Used {
    fn used(&self) -> u64;
}

impl Used for ResidentColumn {
    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// Values by key and by last use. A use is noted in the value alone, without a lock and without a
/// new order: the order catches up where it is looked at.
struct LastUsed<K, V> {
    entries: HashMap<K, (u64, Arc<V>)>,
    /// By what was the last use when it was looked at: not later than it is.
    order: BTreeSet<(u64, K)>,
}

impl<K, V> Default for LastUsed<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Copy + Ord + std::hash::Hash, V: Used> LastUsed<K, V> {
    fn get(&self, key: &K) -> Option<Arc<V>> {
        self.entries.get(key).map(|(_, value)| Arc::clone(value))
    }

    fn insert(&mut self, key: K, value: Arc<V>) -> Option<Arc<V>> {
        let used = value.used();
        let old = self.entries.insert(key, (used, value));
        if let Some((old_used, _)) = &old {
            self.order.remove(&(*old_used, key));
        }
        self.order.insert((used, key));
        old.map(|(_, value)| value)
    }

    /// Takes out the value used longest ago among those last used before `limit` and held by
    /// nobody else.
    fn take_oldest(&mut self, limit: u64) -> Option<Arc<V>> {
        let mut held = Vec::new();
        let mut taken = None;
        while let Some((ordered, key)) = self.order.first().copied().filter(|o| o.0 < limit) {
            self.order.remove(&(ordered, key));
            let Some((noted, value)) = self.entries.get_mut(&key) else { continue };
            let used = value.used();
            if used > ordered {
                *noted = used;
                self.order.insert((used, key));
            } else if Arc::strong_count(value) > 1 {
                held.push((ordered, key));
            } else {
                taken = self.entries.remove(&key).map(|(_, value)| value);
                break;
            }
        }
        self.order.extend(held);
        taken
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Stamp(AtomicU64);

    impl Used for Stamp {
        fn used(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn cache(uses: &[u64]) -> LastUsed<usize, Stamp> {
        let mut cache = LastUsed::default();
        for (key, used) in uses.iter().enumerate() {
            assert!(cache.insert(key, Arc::new(Stamp(AtomicU64::new(*used)))).is_none());
        }
        cache
    }

    #[test]
    fn what_was_used_longest_ago_leaves_first() {
        let mut cache = cache(&[5, 1, 4, 2]);
        // A use that the order does not know of yet.
        cache.get(&1).unwrap().0.store(9, Ordering::Relaxed);
        let mut left = Vec::new();
        while let Some(value) = cache.take_oldest(u64::MAX) {
            left.push(value.used());
        }
        assert_eq!(left, [2, 4, 5, 9]);
        assert!(cache.entries.is_empty() && cache.order.is_empty());
    }

    #[test]
    fn what_is_held_or_was_used_by_this_query_stays() {
        let mut cache = cache(&[1, 2, 3]);
        let held = cache.get(&0).unwrap();
        assert_eq!(cache.take_oldest(3).unwrap().used(), 2);
        assert!(cache.take_oldest(3).is_none());
        drop(held);
        assert_eq!(cache.take_oldest(3).unwrap().used(), 1);
        assert!(cache.take_oldest(3).is_none() && cache.get(&2).is_some());
    }

    #[test]
    fn a_value_put_again_is_there_once() {
        let mut cache = cache(&[1]);
        assert_eq!(cache.insert(0, Arc::new(Stamp(AtomicU64::new(7)))).unwrap().used(), 1);
        assert_eq!(cache.take_oldest(u64::MAX).unwrap().used(), 7);
        assert!(cache.take_oldest(u64::MAX).is_none());
    }

    /// Each eviction once looked at all entries.
    #[test]
    fn many_evictions_take_no_time() {
        let count = 200_000;
        let mut cache = cache(&(0..count).collect::<Vec<_>>());
        let started = std::time::Instant::now();
        while cache.take_oldest(u64::MAX).is_some() {}
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    }
}
