//! Values cached by key, with eviction by last use: the basis of every cache.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A shared cached value, and the round in which it was last used.
#[derive(Debug)]
pub struct Kept<V> {
    used: AtomicU64,
    has_left: AtomicBool,
    value: V,
}

impl<V> Kept<V> {
    /// A value that was never used.
    pub fn new(value: V) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), has_left: AtomicBool::new(false), value })
    }

    /// Records its use in a round, without a lock.
    pub fn touch(&self, round: u64) {
        self.used.fetch_max(round, Ordering::Relaxed);
    }

    /// Whether it was taken out of its cache, so that only its holders keep it.
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// The value, if it has no other holder.
    pub fn into_value(self: Arc<Self>) -> Option<V> {
        Arc::into_inner(self).map(|kept| kept.value)
    }
}

impl<V> Deref for Kept<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

#[derive(Debug)]
struct Entry<V> {
    kept: Arc<Kept<V>>,
    bytes: u64,
    place: Place,
}

/// An entry's position in the order: its last use as of the last look, which may be outdated, and
/// when that was.
type Place = (u64, u64);

/// Values by key and by last use. Uses are counted in rounds: a query, a race, or each use by
/// itself. A use is recorded in the value alone; the order is updated when it is examined.
#[derive(Debug)]
pub struct LastUsed<K, V> {
    entries: HashMap<K, Entry<V>>,
    order: BTreeMap<Place, K>,
    clock: u64,
    bytes: u64,
}

impl<K, V> Default for LastUsed<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), clock: 0, bytes: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> LastUsed<K, V> {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of a round that begins now: larger than any before.
    pub fn next_round(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Whether a key has a value; does not count as a use.
    pub fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// The value of a key, used in this round.
    pub fn get(&self, key: &K, round: u64) -> Option<Arc<Kept<V>>> {
        let kept = &self.entries.get(key)?.kept;
        kept.touch(round);
        Some(Arc::clone(kept))
    }

    /// Caches a value of this many bytes, used in this round; returns the one that it replaces.
    pub fn insert(
        &mut self,
        key: K,
        kept: Arc<Kept<V>>,
        bytes: u64,
        round: u64,
    ) -> Option<Arc<Kept<V>>> {
        let replaced = self.remove(&key);
        kept.touch(round);
        let place = (round, self.next_round());
        self.order.insert(place, key.clone());
        self.entries.insert(key, Entry { kept, bytes, place });
        self.bytes += bytes;
        replaced
    }

    /// Forgets all values but keeps the round counter.
    pub fn clear(&mut self) {
        let left = std::mem::replace(self, Self { clock: self.clock, ..Self::default() });
        left.entries.values().for_each(|entry| entry.kept.has_left.store(true, Ordering::Release));
    }

    fn remove(&mut self, key: &K) -> Option<Arc<Kept<V>>> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&entry.place);
        self.bytes -= entry.bytes;
        entry.kept.has_left.store(true, Ordering::Release);
        Some(entry.kept)
    }

    /// Removes the least recently used value without another holder, among those last used before
    /// this round.
    pub fn take_idle(&mut self, before: u64) -> Option<Arc<Kept<V>>> {
        self.take(before, true)
    }

    /// Removes the least recently used value, held or not.
    pub fn take_oldest(&mut self) -> Option<Arc<Kept<V>>> {
        self.take(u64::MAX, false)
    }

    /// Removes the most recently used value without another holder; examines all of them.
    pub fn take_newest_idle(&mut self) -> Option<Arc<Kept<V>>> {
        let idle = self.entries.iter().filter(|(_, entry)| Arc::strong_count(&entry.kept) == 1);
        let last = |entry: &Entry<V>| (entry.kept.used.load(Ordering::Relaxed), entry.place);
        let key = idle.max_by_key(|(_, entry)| last(entry))?.0.clone();
        self.remove(&key)
    }

    fn take(&mut self, before: u64, idle: bool) -> Option<Arc<Kept<V>>> {
        let mut held = Vec::new();
        let mut taken = None;
        while let Some(first) = self.order.first_entry() {
            if first.key().0 >= before {
                break;
            }
            let (place, key) = first.remove_entry();
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let used = entry.kept.used.load(Ordering::Relaxed);
            if used > place.0 {
                self.clock += 1;
                entry.place = (used, self.clock);
                self.order.insert(entry.place, key);
            } else if idle && Arc::strong_count(&entry.kept) > 1 {
                held.push((place, key));
            } else {
                taken = self.remove(&key);
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

    /// Values by number, each of one byte, last used in these rounds.
    fn kept(uses: &[u64]) -> LastUsed<usize, u64> {
        let mut kept = LastUsed::default();
        for (key, used) in uses.iter().enumerate() {
            assert!(kept.insert(key, Kept::new(*used), 1, *used).is_none());
        }
        kept
    }

    #[test]
    fn what_left_its_cache_knows_it() {
        let mut kept = kept(&[1, 2, 3]);
        let [first, second, third] = [0, 1, 2].map(|key| kept.get(&key, 4).unwrap());
        assert!(kept.take_idle(u64::MAX).is_none() && !first.has_left());
        assert!(kept.take_oldest().is_some() && first.has_left() && !second.has_left());
        let replaced = kept.insert(1, Kept::new(7), 1, 5).unwrap();
        assert!(replaced.has_left() && second.has_left());
        let again = kept.get(&1, 6).unwrap();
        kept.clear();
        assert!(third.has_left() && again.has_left());
    }

    #[test]
    fn what_was_used_longest_ago_leaves_first() {
        let mut kept = kept(&[5, 1, 4, 2]);
        // A use that the order does not know of yet.
        kept.get(&1, 9).unwrap();
        let left: Vec<u64> = std::iter::from_fn(|| kept.take_idle(u64::MAX)).map(|v| **v).collect();
        assert_eq!(left, [2, 4, 5, 1]);
        assert!(kept.is_empty() && kept.order.is_empty() && kept.bytes() == 0);
    }

    #[test]
    fn what_is_held_or_was_used_in_this_round_stays() {
        let mut kept = kept(&[1, 2, 3]);
        let held = kept.get(&0, 1).unwrap();
        assert_eq!(**kept.take_idle(3).unwrap(), 2);
        assert!(kept.take_idle(3).is_none() && held.clone().into_value().is_none());
        assert_eq!(**kept.take_newest_idle().unwrap(), 3);
        assert!(kept.take_newest_idle().is_none());
        drop(held);
        assert_eq!(kept.take_idle(3).unwrap().into_value(), Some(1));
        assert!(kept.take_idle(3).is_none());
    }

    #[test]
    fn the_oldest_leaves_even_if_it_is_held_and_the_newest_counts_its_last_use() {
        let mut kept = kept(&[1, 2, 3]);
        let held = kept.get(&0, 1).unwrap();
        kept.get(&1, 7).unwrap();
        assert_eq!(**kept.take_newest_idle().unwrap(), 2);
        assert!(Arc::ptr_eq(&kept.take_oldest().unwrap(), &held));
        assert_eq!((kept.len(), kept.bytes()), (1, 1));
    }

    #[test]
    fn a_value_put_again_is_there_once() {
        let mut kept = kept(&[1]);
        assert_eq!(**kept.insert(0, Kept::new(7), 5, 7).unwrap(), 1);
        assert_eq!((kept.bytes(), kept.order.len()), (5, 1));
        assert_eq!(**kept.take_idle(u64::MAX).unwrap(), 7);
        assert!(kept.take_idle(u64::MAX).is_none());
    }

    /// Regression: each eviction examined all entries.
    #[test]
    fn many_evictions_take_no_time() {
        let mut kept = kept(&(0..200_000).collect::<Vec<_>>());
        let started = std::time::Instant::now();
        while kept.take_idle(u64::MAX).is_some() {}
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    }
}
