//! The host chunk cache: extents from direct reads, kept for the next race.
//!
//! A cold extent is read straight into cache memory and consumed there, so admission costs no copy.
//! The budget covers all memory of the cache, including memory that is being filled or still in use
//! after its eviction. The cache takes only free memory of the shared [`MemoryBudget`] and gives
//! way to other users ([`Reclaim`]).
//!
//! Eviction is by least recent use and resists scans: a race never evicts an entry that it used
//! itself. So a table larger than the budget keeps the part that was admitted first, instead of
//! losing every extent shortly before its next use; another table displaces it in its first race.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use headrace_io::{
    AlignedBuffer, FileIdentity, Kept, LastUsed, MemoryBudget, MemoryUse, Placement, Reclaim,
    Regions, Window,
};
use parking_lot::Mutex;
use serde::Serialize;

/// A byte range of one version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    pub identity: FileIdentity,
    pub offset: u64,
    pub bytes: u64,
}

/// Counters of a [`HostCache`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HostCacheStats {
    /// Memory that the cache may hold.
    pub budget_bytes: u64,
    /// Memory that it holds.
    pub held_bytes: u64,
    /// Extents that can be hit.
    pub entries: u64,
    /// Extents that were found.
    pub hits: u64,
    /// Extents that were not found.
    pub misses: u64,
    /// Extents that were evicted.
    pub evictions: u64,
    /// Extents that were not admitted because nothing could be evicted.
    pub refusals: u64,
}

/// Extents in memory under a budget, shared by races.
#[derive(Debug)]
pub struct HostCache {
    budget_bytes: u64,
    memory: Arc<MemoryBudget>,
    regions: Regions,
    inner: Mutex<Inner>,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    refusals: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// Used in races.
    ranges: LastUsed<CacheKey, CachedRange>,
    /// Buffers of evicted entries, kept because the kernel must zero fresh memory.
    spare: Vec<Reserved>,
}

/// A buffer that is reserved from the budget while it lives.
#[derive(Debug)]
struct Reserved {
    buffer: AlignedBuffer,
    _memory: headrace_io::Reservation,
}

/// An extent in memory of the cache.
#[derive(Debug)]
pub(crate) struct CachedRange {
    memory: Reserved,
    head_bytes: usize,
    bytes: usize,
}

/// An extent in use, which is not moved.
pub(crate) type Cached = Arc<Kept<CachedRange>>;

impl CachedRange {
    pub fn bytes(&self) -> &[u8] {
        &self.memory.buffer.as_slice()[self.head_bytes..self.head_bytes + self.bytes]
    }
}

impl HostCache {
    /// A cache that holds at most `budget_bytes`; nothing is allocated yet.
    pub fn new(budget_bytes: u64) -> Arc<HostCache> {
        Self::within(&MemoryBudget::new(budget_bytes), budget_bytes)
    }

    /// A cache that holds at most `budget_bytes` of the free part of a budget.
    pub fn within(memory: &Arc<MemoryBudget>, budget_bytes: u64) -> Arc<HostCache> {
        let cache = Arc::new(HostCache {
            budget_bytes,
            memory: memory.clone(),
            regions: Regions::default(),
            inner: Mutex::new(Inner::default()),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        });
        let weak: Weak<HostCache> = Arc::downgrade(&cache);
        memory.add_cache(weak);
        cache
    }

    /// State and counters of the cache.
    pub fn stats(&self) -> HostCacheStats {
        HostCacheStats {
            budget_bytes: self.budget_bytes,
            held_bytes: self.held_bytes(),
            entries: self.inner.lock().ranges.len() as u64,
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            refusals: self.refusals.load(Ordering::Relaxed),
        }
    }

    /// Forgets everything; extents in use are freed when their use ends.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.ranges.clear();
        inner.spare.clear();
    }

    /// The reservations of all buffers, including those of other caches of the same budget.
    fn held_bytes(&self) -> u64 {
        self.memory.uses().of(MemoryUse::HostCache)
    }

    /// The number of a race that begins now, for [`get`](Self::get) and [`reserve`](Self::reserve).
    pub(crate) fn begin_race(&self) -> u64 {
        self.inner.lock().ranges.next_round()
    }

    pub(crate) fn get(&self, key: &CacheKey, race: u64) -> Option<Cached> {
        let found = self.inner.lock().ranges.get(key, race);
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Memory to read an extent into, if the budget allows.
    pub(crate) fn reserve(self: &Arc<Self>, key: CacheKey, race: u64) -> Option<Reservation> {
        let placement = Placement::of(key.offset, key.bytes);
        let memory = self.find_memory(placement.window_bytes, race);
        if memory.is_none() {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
        Some(Reservation {
            cache: self.clone(),
            key,
            race,
            head_bytes: placement.head_bytes,
            memory: Some(memory?),
        })
    }

    fn find_memory(&self, bytes: usize, race: u64) -> Option<Reserved> {
        if bytes as u64 > self.budget_bytes {
            return None;
        }
        let mut inner = self.inner.lock();
        loop {
            if let Some(spare) = inner.take_spare(bytes) {
                return Some(spare);
            }
            if self.held_bytes() + bytes as u64 <= self.budget_bytes
                && let Some(memory) = self.allocate(bytes)
            {
                return Some(memory);
            }
            // A spare of the wrong size makes room before anything useful does.
            if inner.spare.pop().is_none() {
                let evicted = inner.evict(race)?;
                self.evictions.fetch_add(1, Ordering::Relaxed);
                inner.spare.push(evicted);
            }
        }
    }

    fn allocate(&self, bytes: usize) -> Option<Reserved> {
        let memory = self.memory.reserve_free(MemoryUse::HostCache, bytes as u64)?;
        let buffer = self.regions.allocate(bytes).ok()?;
        Some(Reserved { buffer, _memory: memory })
    }
}

impl Reclaim for HostCache {
    fn reclaim(&self, bytes: u64) -> bool {
        let (mut dropped, mut dropped_bytes) = (Vec::new(), 0);
        let mut inner = self.inner.lock();
        while dropped_bytes < bytes {
            let Some(next) = inner.spare.pop().or_else(|| inner.evict(u64::MAX)) else { break };
            dropped_bytes += next.buffer.len() as u64;
            dropped.push(next);
        }
        drop(inner);
        self.evictions.fetch_add(dropped.len() as u64, Ordering::Relaxed);
        !dropped.is_empty()
    }
}

impl Inner {
    /// A spare buffer that fits without wasting more than an eighth of it.
    fn take_spare(&mut self, bytes: usize) -> Option<Reserved> {
        let fits = |spare: &Reserved| {
            let len = spare.buffer.len();
            len >= bytes && len - bytes <= len / 8
        };
        let index = self.spare.iter().position(fits)?;
        Some(self.spare.swap_remove(index))
    }

    /// The memory of the least recently used entry that is not in use and that this race did not
    /// use.
    fn evict(&mut self, race: u64) -> Option<Reserved> {
        self.ranges.take_idle(race)?.into_value().map(|range| range.memory)
    }
}

/// Cache memory that is being filled. Dropped without a commit, it is returned.
#[derive(Debug)]
pub(crate) struct Reservation {
    cache: Arc<HostCache>,
    key: CacheKey,
    race: u64,
    head_bytes: usize,
    /// `None` only after the commit.
    memory: Option<Reserved>,
}

impl Reservation {
    /// Where to read to.
    pub fn window(&self) -> Window {
        let buffer = self.memory.as_ref().map(|memory| &memory.buffer);
        buffer.map_or(Window::new(std::ptr::null_mut(), 0), |buffer| {
            Window::new(buffer.as_ptr(), buffer.len())
        })
    }

    /// The extent was read: it can be used and hit from now on.
    pub fn commit(mut self) -> Cached {
        let memory = self.memory.take().expect("a reservation is committed once");
        let range = Kept::new(CachedRange {
            memory,
            head_bytes: self.head_bytes,
            bytes: self.key.bytes as usize,
        });
        let (bytes, key) = (range.memory.buffer.len() as u64, self.key);
        // Another race may have been faster; both copies are right, the newer one stays.
        let replaced = self.cache.inner.lock().ranges.insert(key, range.clone(), bytes, self.race);
        drop(replaced);
        range
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.cache.inner.lock().spare.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PAGE: u64 = 4096;

    fn key(number: u64) -> CacheKey {
        let identity =
            FileIdentity { device: 1, inode: 1, size_bytes: 1 << 30, mtime_ns: 0, ctime_ns: 0 };
        CacheKey { identity, offset: number * PAGE, bytes: PAGE }
    }

    /// Looks up an extent and admits it if it is missing; returns whether it was there.
    fn touch(cache: &Arc<HostCache>, number: u64, race: u64) -> bool {
        if cache.get(&key(number), race).is_some() {
            return true;
        }
        if let Some(reservation) = cache.reserve(key(number), race) {
            reservation.commit();
        }
        false
    }

    #[test]
    fn the_budget_holds_and_the_oldest_leaves() {
        let cache = HostCache::new(3 * PAGE);
        for number in 0..3 {
            let race = cache.begin_race();
            assert!(!touch(&cache, number, race));
        }
        let race = cache.begin_race();
        assert!(touch(&cache, 0, race));
        assert!(!touch(&cache, 3, race));
        let stats = cache.stats();
        assert_eq!((stats.held_bytes, stats.entries, stats.evictions), (3 * PAGE, 3, 1));
        let race = cache.begin_race();
        assert!(touch(&cache, 0, race) && touch(&cache, 2, race) && touch(&cache, 3, race));
        assert!(cache.get(&key(1), race).is_none());
    }

    #[test]
    fn a_scan_larger_than_the_budget_keeps_hitting_its_first_part() {
        let cache = HostCache::new(4 * PAGE);
        for repetition in 0..3 {
            let race = cache.begin_race();
            let hits = (0..10).filter(|number| touch(&cache, *number, race)).count();
            assert_eq!(hits, if repetition == 0 { 0 } else { 4 });
        }
        // Another table takes its place at once.
        let race = cache.begin_race();
        for number in 20..24 {
            touch(&cache, number, race);
        }
        let race = cache.begin_race();
        assert!((20..24).all(|number| touch(&cache, number, race)));
        assert!(cache.stats().held_bytes <= 4 * PAGE);
    }

    #[test]
    fn the_cache_takes_what_is_free_and_gives_way() {
        let memory = MemoryBudget::new(4 * PAGE);
        let cache = HostCache::within(&memory, 3 * PAGE);
        let race = cache.begin_race();
        for number in 0..5 {
            touch(&cache, number, race);
        }
        assert_eq!(cache.stats().held_bytes, 3 * PAGE, "its own bound");
        let used = cache.get(&key(2), race).unwrap();
        let needed = memory.reserve(MemoryUse::Pipelines, 3 * PAGE).unwrap();
        assert_eq!(cache.stats().held_bytes, PAGE, "what nobody used went");
        assert!(memory.reserve(MemoryUse::Pipelines, 1).is_err(), "what is used stays");
        assert_eq!(used.bytes().len() as u64, PAGE);
        assert!(!touch(&cache, 7, cache.begin_race()), "no room to admit another");
        drop((used, needed));
        let race = cache.begin_race();
        assert!(!touch(&cache, 7, race) && touch(&cache, 7, race));
    }

    #[test]
    fn what_is_in_use_stays_and_counts() {
        let cache = HostCache::new(2 * PAGE);
        let first = cache.reserve(key(0), cache.begin_race()).unwrap().commit();
        let second = cache.reserve(key(1), cache.begin_race()).unwrap();
        assert!(cache.reserve(key(2), cache.begin_race()).is_none(), "both are in use");
        drop(second);
        assert!(cache.reserve(key(2), cache.begin_race()).is_some(), "a dropped reservation");
        cache.clear();
        assert_eq!(cache.stats().held_bytes, PAGE, "one extent is still in use");
        assert_eq!(first.bytes().len() as u64, PAGE);
        drop(first);
        assert_eq!(cache.stats().held_bytes, 0);
    }

    #[test]
    fn too_large_for_the_budget_is_refused() {
        let cache = HostCache::new(PAGE);
        let mut large = key(0);
        large.bytes = 2 * PAGE;
        assert!(cache.reserve(large, cache.begin_race()).is_none());
        assert_eq!(cache.stats().refusals, 1);
    }
}
