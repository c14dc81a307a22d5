//! One budget of host memory for everything that can grow.
//!
//! ```text
//!                    ┌── Reservation (slots of a race)
//!  MemoryBudget ◄────┼── Reservation (groups of a run)      grow, shrink, drop
//!   limit, uses      ├── Reservation (a build)
//!        │           └── Reservation (an extent in the host cache)
//!        └──► Reclaim: caches give up what nobody uses before anybody is refused
//! ```
//!
//! Large memory is held through a [`Reservation`]. Caches take what is free and never displace
//! anything. A query's memory makes caches give way first ([`Reclaim`]) and is otherwise refused
//! with an error that names the holders.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// What memory is reserved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryUse {
    /// Extents kept for later races.
    HostCache,
    /// Builds of joins, running and kept.
    Builds,
    /// Groups, rows and unfinished builds of running pipelines.
    Pipelines,
    /// Slots that races read into, pinned memory included.
    Slots,
    /// The planner's own operators.
    Planner,
    /// Everything else that an out-of-core operator holds.
    Operators,
    /// Rows of tables that a session holds in memory.
    Tables,
    /// Bytes that were read from files and are not decoded yet.
    Readers,
}

crate::named!(
    MemoryUse,
    HostCache => "host cache",
    Builds => "builds",
    Pipelines => "pipelines",
    Slots => "slots",
    Planner => "planner",
    Operators => "operators",
    Tables => "tables in memory",
    Readers => "readers",
);

/// Bytes by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUses([u64; MemoryUse::ALL.len()]);

impl MemoryUses {
    /// Bytes for one use.
    pub fn of(&self, kind: MemoryUse) -> u64 {
        self.0[kind as usize]
    }

    /// Bytes for all uses.
    pub fn total_bytes(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl fmt::Display for MemoryUses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, kind) in MemoryUse::ALL.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{kind} {:.1} MB", self.of(kind) as f64 / 1e6)?;
        }
        Ok(())
    }
}

/// A reservation that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "out of host memory: {wanted_bytes} bytes more are needed for {kind}, {} of {} bytes are in use \
     ({uses}); raise the memory limit, or run fewer queries at a time",
    uses.total_bytes(),
    match share_bytes {
        None => format!("the limit of {limit_bytes}"),
        Some(share) => format!("its share of {share} bytes of the limit of {limit_bytes}"),
    }
)]
pub struct OutOfBudget {
    /// The use that it was for.
    pub kind: MemoryUse,
    /// Bytes that were requested.
    pub wanted_bytes: u64,
    /// The configured limit.
    pub limit_bytes: u64,
    /// The share of the limit that is exceeded, if it is not the limit itself.
    pub share_bytes: Option<u64>,
    /// The holders of the share, or of all memory.
    pub uses: MemoryUses,
}

/// A cache that can give memory back.
pub trait Reclaim: Send + Sync {
    /// Drops about `bytes` of unused memory. It is called without locks of the budget and may drop
    /// reservations. Returns whether anything was dropped.
    fn reclaim(&self, bytes: u64) -> bool;
}

#[derive(Default)]
struct State {
    uses: MemoryUses,
    peak_bytes: u64,
}

/// A limit that all reservations share.
pub struct MemoryBudget {
    limit_bytes: u64,
    state: Mutex<State>,
    /// The reservation of another budget that covers all use of this one.
    of_other: Option<Mutex<Reservation>>,
    caches: Mutex<Vec<Weak<dyn Reclaim>>>,
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryBudget({} of {} bytes)", self.uses().total_bytes(), self.limit_bytes)
    }
}

impl MemoryBudget {
    /// An empty budget.
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self::over(limit_bytes, None))
    }

    /// A budget whose reservations also count in another budget under `kind`: a share for one user.
    pub fn within(other: &Arc<Self>, kind: MemoryUse, limit_bytes: u64) -> Arc<Self> {
        let of_other = Mutex::new(other.reserve_nothing(kind));
        Arc::new(Self::over(limit_bytes.min(other.limit_bytes), Some(of_other)))
    }

    fn over(limit_bytes: u64, of_other: Option<Mutex<Reservation>>) -> Self {
        Self { limit_bytes, state: Mutex::default(), of_other, caches: Mutex::default() }
    }

    /// Bytes that all reservations together may have.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Bytes that they hold now.
    pub fn uses(&self) -> MemoryUses {
        self.state.lock().uses
    }

    /// The peak of all reservations together.
    pub fn peak_bytes(&self) -> u64 {
        self.state.lock().peak_bytes
    }

    /// Registers a cache that gives way to other users.
    pub fn add_cache(&self, cache: Weak<dyn Reclaim>) {
        self.caches.lock().push(cache);
    }

    /// An empty reservation, to be resized.
    pub fn reserve_nothing(self: &Arc<Self>, kind: MemoryUse) -> Reservation {
        Reservation { budget: Arc::clone(self), kind, bytes: 0 }
    }

    /// Takes free memory only; displaces nothing.
    pub fn reserve_free(self: &Arc<Self>, kind: MemoryUse, bytes: u64) -> Option<Reservation> {
        let taken = self.take(kind, bytes);
        taken.then(|| Reservation { budget: Arc::clone(self), kind, bytes })
    }

    /// Takes memory, from caches if necessary.
    ///
    /// # Errors
    /// [`OutOfBudget`] when too little is free and caches have nothing more to give.
    pub fn reserve(
        self: &Arc<Self>,
        kind: MemoryUse,
        bytes: u64,
    ) -> Result<Reservation, OutOfBudget> {
        self.take_reclaiming(kind, bytes)?;
        Ok(Reservation { budget: Arc::clone(self), kind, bytes })
    }

    fn take_reclaiming(&self, kind: MemoryUse, bytes: u64) -> Result<(), OutOfBudget> {
        while !self.take(kind, bytes) {
            if bytes > self.limit_bytes || !self.reclaim(bytes) {
                return Err(self.refusal(kind, bytes));
            }
        }
        Ok(())
    }

    fn take(&self, kind: MemoryUse, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let total = state.uses.total_bytes().saturating_add(bytes);
        if total > self.limit_bytes || !self.has_of_other(total) {
            return false;
        }
        state.uses.0[kind as usize] += bytes;
        state.peak_bytes = state.peak_bytes.max(total);
        true
    }

    fn give_back(&self, kind: MemoryUse, bytes: u64) {
        let mut state = self.state.lock();
        let used = &mut state.uses.0[kind as usize];
        assert!(*used >= bytes, "{bytes} bytes for {kind} given back of {used}");
        *used -= bytes;
        let total = state.uses.total_bytes();
        // To give back is never refused.
        self.has_of_other(total);
    }

    /// Whether the parent budget, if any, has reserved this many bytes for this one.
    fn has_of_other(&self, bytes: u64) -> bool {
        self.of_other.as_ref().is_none_or(|held| held.lock().resize(bytes).is_ok())
    }

    fn reclaim(&self, bytes: u64) -> bool {
        let caches: Vec<_> = self.caches.lock().iter().filter_map(Weak::upgrade).collect();
        caches.iter().any(|cache| cache.reclaim(bytes))
    }

    fn refusal(&self, kind: MemoryUse, wanted_bytes: u64) -> OutOfBudget {
        let is_within = self.uses().total_bytes().saturating_add(wanted_bytes) <= self.limit_bytes;
        if let (Some(held), true) = (&self.of_other, is_within) {
            let held = held.lock();
            return held.budget.refusal(held.kind, wanted_bytes);
        }
        let limit_bytes = self.whole_limit_bytes();
        let share_bytes = (self.limit_bytes < limit_bytes).then_some(self.limit_bytes);
        OutOfBudget { kind, wanted_bytes, limit_bytes, share_bytes, uses: self.uses() }
    }

    /// The limit of the parent budget, or of this one if it has no parent.
    fn whole_limit_bytes(&self) -> u64 {
        let of_other = self.of_other.as_ref();
        of_other.map_or(self.limit_bytes, |held| held.lock().budget.whole_limit_bytes())
    }
}

/// Bytes of a budget, given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    kind: MemoryUse,
    bytes: u64,
}

impl Reservation {
    /// Bytes that are reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves more or fewer bytes.
    ///
    /// # Errors
    /// [`OutOfBudget`] when more is not available; the reservation stays unchanged.
    pub fn resize(&mut self, bytes: u64) -> Result<(), OutOfBudget> {
        match bytes.checked_sub(self.bytes) {
            // Workers ask after each batch; most change nothing.
            Some(0) => {}
            Some(more) => self.budget.take_reclaiming(self.kind, more)?,
            None => self.budget.give_back(self.kind, self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Hands over `bytes` of its own, or all where it has fewer.
    pub fn split(&mut self, bytes: u64) -> Reservation {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: Arc::clone(&self.budget), kind: self.kind, bytes }
    }

    /// Takes over the bytes of another reservation of the same budget and use.
    pub fn absorb(&mut self, mut other: Reservation) {
        assert!(
            Arc::ptr_eq(&self.budget, &other.budget) && self.kind == other.kind,
            "reservations of two budgets or uses"
        );
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.kind, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A cache of reservations.
    #[derive(Default)]
    struct Kept(Mutex<Vec<Reservation>>);

    impl Reclaim for Kept {
        fn reclaim(&self, _bytes: u64) -> bool {
            let oldest = self.0.lock().pop();
            oldest.is_some()
        }
    }

    #[test]
    fn reservations_share_one_limit_and_give_back() {
        let budget = MemoryBudget::new(100);
        let mut builds = budget.reserve(MemoryUse::Builds, 60).unwrap();
        let refused = budget.reserve(MemoryUse::Pipelines, 41).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("41 bytes") && text.contains("limit of 100"), "{text}");
        assert_eq!(refused.uses.of(MemoryUse::Builds), 60);
        builds.resize(10).unwrap();
        let groups = budget.reserve(MemoryUse::Pipelines, 90).unwrap();
        assert!(builds.resize(11).is_err(), "nothing is left");
        assert_eq!(builds.bytes(), 10, "a refusal changes nothing");
        drop((builds, groups));
        assert_eq!((budget.uses().total_bytes(), budget.peak_bytes()), (0, 100));
    }

    #[test]
    fn what_one_takes_over_is_given_back_once() {
        let budget = MemoryBudget::new(100);
        let mut table = budget.reserve(MemoryUse::Tables, 30).unwrap();
        table.absorb(budget.reserve(MemoryUse::Tables, 40).unwrap());
        assert_eq!((table.bytes(), budget.uses().of(MemoryUse::Tables)), (70, 70));
        drop(table);
        assert_eq!(budget.uses().total_bytes(), 0);
    }

    #[test]
    fn caches_give_way_to_queries_but_not_to_each_other() {
        let budget = MemoryBudget::new(100);
        let kept = Arc::new(Kept::default());
        let weak: Weak<dyn Reclaim> = Arc::<Kept>::downgrade(&kept);
        budget.add_cache(weak);
        for _ in 0..4 {
            kept.0.lock().push(budget.reserve_free(MemoryUse::HostCache, 25).unwrap());
        }
        assert!(budget.reserve_free(MemoryUse::HostCache, 1).is_none());
        let needed = budget.reserve(MemoryUse::Pipelines, 50).unwrap();
        assert_eq!(kept.0.lock().len(), 2);
        assert!(budget.reserve(MemoryUse::Slots, 51).is_err(), "the query's own stays");
        drop(needed);
    }

    #[test]
    fn a_share_is_bounded_by_itself_and_by_the_whole() {
        let whole = MemoryBudget::new(100);
        let share = MemoryBudget::within(&whole, MemoryUse::Operators, 60);
        let mut held = share.reserve(MemoryUse::Operators, 50).unwrap();
        assert_eq!(whole.uses().of(MemoryUse::Operators), 50);
        assert!(share.reserve(MemoryUse::Operators, 11).is_err(), "more than the share");
        let other = whole.reserve(MemoryUse::Pipelines, 45).unwrap();
        let refused = share.reserve(MemoryUse::Operators, 6).unwrap_err();
        assert_eq!((refused.limit_bytes, refused.uses.total_bytes()), (100, 95), "the whole's");
        assert_eq!(share.uses().total_bytes(), 50, "a refusal changes nothing");
        held.resize(20).unwrap();
        assert_eq!(whole.uses().of(MemoryUse::Operators), 20);
        drop((held, other));
        assert_eq!(whole.uses().total_bytes(), 0);
        drop(share);
        // A cache of the whole gives way to a share.
        let kept = Arc::new(Kept::default());
        let weak: Weak<dyn Reclaim> = Arc::<Kept>::downgrade(&kept);
        whole.add_cache(weak);
        kept.0.lock().push(whole.reserve_free(MemoryUse::HostCache, 90).unwrap());
        let share = MemoryBudget::within(&whole, MemoryUse::Operators, 60);
        drop(share.reserve(MemoryUse::Operators, 60).unwrap());
        assert!(kept.0.lock().is_empty());
    }

    #[test]
    fn who_asks_for_more_than_all_is_told() {
        let budget = MemoryBudget::new(100);
        assert!(budget.reserve(MemoryUse::Pipelines, 101).is_err());
        assert_eq!(budget.uses().total_bytes(), 0);
    }
}
