//! Registered pieces of files, kept from race to race under a budget.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use headrace_gpu::page_bytes;
use headrace_io::{FileIdentity, IoError, Kept, LastUsed, ReadAt};
use parking_lot::{Condvar, Mutex, MutexGuard};
use serde::Serialize;

use super::PIECE_BYTES;
use super::mapping::SharedMapping;
use crate::{HostRegistrar, Registration};

/// Extents that were requested before: all are forgotten when there are more.
const WANTED_MAX: usize = 1 << 20;

/// State and counters of a [`RegisteredPool`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RegisteredStats {
    /// Bytes that may be registered at once.
    pub budget_bytes: u64,
    /// Bytes that are registered.
    pub held_bytes: u64,
    /// Pieces that are registered.
    pub pieces: u64,
    /// Pieces that were found registered.
    pub hits: u64,
    /// Pieces that were registered.
    pub registrations: u64,
    /// Pieces that were evicted for others.
    pub evictions: u64,
    /// Pieces without room.
    pub refusals: u64,
    /// Time spent registering, summed over threads, nanoseconds.
    pub registering_ns: u64,
}

/// A piece of one version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PieceKey {
    pub identity: FileIdentity,
    pub piece: u64,
}

/// A piece that the device copies from directly as long as this lives.
pub(crate) struct RegisteredPiece {
    // First, so that it is dropped first: unregistered, then unmapped.
    _registration: Registration,
    mapping: Arc<SharedMapping>,
    bytes: u64,
}

impl RegisteredPiece {
    pub fn mapping(&self) -> &SharedMapping {
        &self.mapping
    }
}

impl std::fmt::Debug for RegisteredPiece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegisteredPiece").field("mapping", &self.mapping).finish_non_exhaustive()
    }
}

/// Pieces of files that are registered with a device's driver, shared by races, so that hot races
/// do not pay for pinning. One pool for the devices of one driver.
///
/// The budget is never exceeded. When it is used up, pieces last used in earlier races are evicted,
/// least recently used first. So a file larger than the budget keeps the part that was registered
/// first, and the rest goes through slots: pinning it in each race would be slower. Only if the
/// path is forced, idle pieces of the same race are evicted too, most recently used first.
///
/// Pinning may cost ten times as much as copying once. In a pool [for repeats](Self::for_repeats) the
/// automatic choice registers only extents that an earlier race also wanted.
///
/// Registered memory is pinned: the pages of a deleted or changed file are freed only when its
/// pieces are evicted or the pool is cleared.
#[derive(Debug)]
pub struct RegisteredPool {
    budget_bytes: u64,
    piece_bytes: usize,
    /// By extent: the race that wanted it first. `None`: not recorded.
    wanted: Option<Mutex<HashMap<(FileIdentity, u64), u64>>>,
    inner: Mutex<Inner>,
    settled: Condvar,
    hits: AtomicU64,
    registrations: AtomicU64,
    evictions: AtomicU64,
    refusals: AtomicU64,
    registering_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// Used in races.
    pieces: LastUsed<PieceKey, RegisteredPiece>,
    /// A thread is registering it.
    pending: HashSet<PieceKey>,
    /// Bytes of pieces that are being registered, and of those being released.
    held_bytes: u64,
    /// Pieces that are being released: their room still counts as taken.
    leaving: usize,
    mappings: HashMap<FileIdentity, std::sync::Weak<SharedMapping>>,
}

/// Why a piece is not registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No piece within the budget can be evicted.
    Full { budget_bytes: u64 },
    /// The driver refused.
    Driver(String),
    /// The race ends.
    Cancelled,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Full { budget_bytes } => write!(
                f,
                "all of the {budget_bytes} bytes that may be registered are taken; raise the \
                 budget or use fewer slots"
            ),
            Refusal::Driver(reason) => write!(f, "the mapping cannot be registered: {reason}"),
            Refusal::Cancelled => write!(f, "cancelled"),
        }
    }
}

impl RegisteredPool {
    /// A pool that registers at most `budget_bytes` at once, in pieces of 64 MiB; nothing is
    /// registered yet.
    pub fn new(budget_bytes: u64) -> Arc<RegisteredPool> {
        Self::with_pieces(budget_bytes, PIECE_BYTES)
    }

    /// Like [`new`](Self::new), for extents that are wanted again.
    pub fn for_repeats(budget_bytes: u64) -> Arc<RegisteredPool> {
        Arc::new(RegisteredPool {
            wanted: Some(Mutex::default()),
            ..Self::empty(budget_bytes, PIECE_BYTES)
        })
    }

    /// Like [`new`](Self::new), with pieces of `piece_bytes` (rounded up to whole pages).
    pub fn with_pieces(budget_bytes: u64, piece_bytes: usize) -> Arc<RegisteredPool> {
        Arc::new(Self::empty(budget_bytes, piece_bytes))
    }

    fn empty(budget_bytes: u64, piece_bytes: usize) -> RegisteredPool {
        RegisteredPool {
            budget_bytes,
            piece_bytes: piece_bytes.max(1).next_multiple_of(page_bytes()),
            wanted: None,
            inner: Mutex::new(Inner::default()),
            settled: Condvar::new(),
            hits: AtomicU64::new(0),
            registrations: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            registering_ns: AtomicU64::new(0),
        }
    }

    /// Whether the automatic choice should register an extent: in a pool for repeats, if an earlier
    /// race wanted it.
    pub(crate) fn is_worth(&self, identity: FileIdentity, offset: u64, race: u64) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        let mut wanted = wanted.lock();
        if wanted.len() >= WANTED_MAX {
            wanted.clear();
        }
        *wanted.entry((identity, offset)).or_insert(race) < race
    }

    /// State and counters of the pool.
    pub fn stats(&self) -> RegisteredStats {
        let inner = self.inner.lock();
        RegisteredStats {
            budget_bytes: self.budget_bytes,
            held_bytes: inner.held_bytes,
            pieces: inner.pieces.len() as u64,
            hits: self.hits.load(Ordering::Relaxed),
            registrations: self.registrations.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            refusals: self.refusals.load(Ordering::Relaxed),
            registering_ns: self.registering_ns.load(Ordering::Relaxed),
        }
    }

    /// Releases everything that no race is copying from now. Pieces registered meanwhile stay.
    pub fn clear(&self) {
        let idle: Vec<_> = {
            let mut inner = self.inner.lock();
            std::iter::from_fn(|| inner.victim(u64::MAX, false)).collect()
        };
        for piece in idle {
            self.let_go(piece);
        }
    }

    pub(crate) fn piece_bytes(&self) -> usize {
        self.piece_bytes
    }

    pub(crate) fn begin_race(&self) -> u64 {
        self.inner.lock().pieces.next_round()
    }

    /// The mapping of this version of the file, while it is in use.
    pub(crate) fn mapping(&self, file: &Arc<dyn ReadAt>) -> Result<Arc<SharedMapping>, IoError> {
        let mut inner = self.inner.lock();
        if let Some(mapping) = inner.mappings.get(&file.identity()).and_then(|m| m.upgrade()) {
            return Ok(mapping);
        }
        let mapping = Arc::new(SharedMapping::map(file, self.piece_bytes)?);
        inner.mappings.retain(|_, mapping| mapping.strong_count() > 0);
        inner.mappings.insert(file.identity(), Arc::downgrade(&mapping));
        Ok(mapping)
    }

    /// A piece that is registered already.
    pub(crate) fn find(&self, key: &PieceKey, race: u64) -> Option<Arc<Kept<RegisteredPiece>>> {
        let piece = self.inner.lock().pieces.get(key, race)?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(piece)
    }

    /// A piece, registered now if necessary; waits for another thread that is registering it.
    /// Called on helper threads.
    pub(crate) fn obtain(
        &self,
        mapping: &Arc<SharedMapping>,
        piece: u64,
        registrar: &dyn HostRegistrar,
        race: u64,
        forced: bool,
    ) -> Result<Arc<Kept<RegisteredPiece>>, Refusal> {
        let key = PieceKey { identity: mapping.file().identity(), piece };
        let bytes = mapping.piece(piece).1 as u64;
        let mut inner = self.inner.lock();
        loop {
            if let Some(piece) = inner.pieces.get(&key, race) {
                self.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(piece);
            }
            if !inner.pending.contains(&key) {
                break;
            }
            self.settled.wait(&mut inner);
        }
        inner.pending.insert(key);
        if !self.make_room(&mut inner, bytes, race, forced) {
            inner.pending.remove(&key);
            self.refusals.fetch_add(1, Ordering::Relaxed);
            self.settled.notify_all();
            return Err(Refusal::Full { budget_bytes: self.budget_bytes });
        }
        inner.held_bytes += bytes;
        let outcome = MutexGuard::unlocked(&mut inner, || self.register(mapping, piece, registrar));
        inner.pending.remove(&key);
        let outcome = match outcome {
            Ok(piece) => {
                let piece = Kept::new(piece);
                inner.pieces.insert(key, Arc::clone(&piece), bytes, race);
                Ok(piece)
            }
            Err(reason) => {
                inner.held_bytes -= bytes;
                Err(Refusal::Driver(reason))
            }
        };
        self.settled.notify_all();
        outcome
    }

    fn register(
        &self,
        mapping: &Arc<SharedMapping>,
        piece: u64,
        registrar: &dyn HostRegistrar,
    ) -> Result<RegisteredPiece, String> {
        let started = Instant::now();
        mapping.populate(piece);
        let (start, bytes) = mapping.piece(piece);
        // A panic of the driver's wrapper must not leave the piece pending for ever.
        let registered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: whole pages of the mapping, which the piece holds until its registration is
            // gone; the races hold the piece while they copy from it.
            unsafe { registrar.register(start, bytes) }
        }));
        self.registering_ns.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let registration = registered
            .map_err(|payload| crate::stop::panic_message(&*payload))?
            .map_err(|error| error.to_string())?;
        self.registrations.fetch_add(1, Ordering::Relaxed);
        Ok(RegisteredPiece {
            _registration: registration,
            mapping: mapping.clone(),
            bytes: bytes as u64,
        })
    }

    /// Evicts pieces until `bytes` more can be registered; `false` if that is impossible.
    fn make_room(
        &self,
        inner: &mut MutexGuard<'_, Inner>,
        bytes: u64,
        race: u64,
        forced: bool,
    ) -> bool {
        if bytes > self.budget_bytes {
            return false;
        }
        while inner.held_bytes + bytes > self.budget_bytes {
            let Some(victim) = inner.victim(race, forced) else {
                if inner.leaving == 0 {
                    return false;
                }
                // The room of what somebody is letting go may be enough.
                self.settled.wait(inner);
                continue;
            };
            self.evictions.fetch_add(1, Ordering::Relaxed);
            MutexGuard::unlocked(inner, || self.let_go(victim));
        }
        true
    }

    /// Unregisters, which takes time, and only then counts the room as free.
    fn let_go(&self, piece: Arc<Kept<RegisteredPiece>>) {
        let bytes = piece.bytes;
        // A panic of the driver's wrapper, of which the panic hook tells, must not leave others
        // waiting for the room for ever.
        let dropped = std::panic::AssertUnwindSafe(|| drop(piece));
        let _ = std::panic::catch_unwind(dropped);
        let mut inner = self.inner.lock();
        inner.held_bytes -= bytes;
        inner.leaving -= 1;
        drop(inner);
        self.settled.notify_all();
    }
}

impl Inner {
    /// Removes an idle piece, for [`RegisteredPool::let_go`].
    fn victim(&mut self, race: u64, forced: bool) -> Option<Arc<Kept<RegisteredPiece>>> {
        let earlier = self.pieces.take_idle(race);
        let piece = earlier.or_else(|| forced.then(|| self.pieces.take_newest_idle())?)?;
        self.leaving += 1;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::BoxError;
    use headrace_io::SourceFile;
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicUsize;

    /// Counts what is registered.
    #[derive(Debug, Default)]
    struct Counting {
        live: Arc<AtomicUsize>,
        fail: bool,
    }

    struct Live(Arc<AtomicUsize>, usize);

    impl Drop for Live {
        fn drop(&mut self) {
            self.0.fetch_sub(self.1, Ordering::SeqCst);
        }
    }

    impl HostRegistrar for Counting {
        unsafe fn register(&self, _: NonNull<u8>, bytes: usize) -> Result<Registration, BoxError> {
            if self.fail {
                return Err("refused by order".into());
            }
            self.live.fetch_add(bytes, Ordering::SeqCst);
            Ok(Box::new(Live(self.live.clone(), bytes)))
        }
    }

    /// A sparse file of so many pieces, the last one short.
    fn file(pieces: u64) -> (tempfile::TempDir, Arc<dyn ReadAt>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let size = pieces * PIECE_BYTES as u64 - 5000;
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        (dir, SourceFile::open(path).unwrap())
    }

    #[test]
    fn the_budget_holds_and_the_first_part_of_a_large_file_stays() {
        let (_dir, file) = file(5);
        let registrar = Counting::default();
        let pool = RegisteredPool::new(3 * PIECE_BYTES as u64);
        let mapping = pool.mapping(&file).unwrap();
        assert!(Arc::ptr_eq(&mapping, &pool.mapping(&file).unwrap()));
        let race = pool.begin_race();
        for piece in 0..5 {
            pool.obtain(&mapping, piece, &registrar, race, true).unwrap();
            assert!(registrar.live.load(Ordering::SeqCst) <= 3 * PIECE_BYTES);
        }
        let key = |piece| PieceKey { identity: file.identity(), piece };
        let kept: Vec<u64> = (0..5).filter(|p| pool.find(&key(*p), race).is_some()).collect();
        assert_eq!(kept, [0, 1, 4]);
        let stats = pool.stats();
        assert_eq!((stats.registrations, stats.evictions, stats.pieces), (5, 2, 3));
        // Another race displaces what this one left; what is in use stays.
        let race = pool.begin_race();
        let used = pool.obtain(&mapping, 0, &registrar, race, true).unwrap();
        let others: Vec<_> =
            (2..4).map(|p| pool.obtain(&mapping, p, &registrar, race, true).unwrap()).collect();
        assert_eq!(
            pool.obtain(&mapping, 1, &registrar, race, true).unwrap_err(),
            Refusal::Full { budget_bytes: 3 * PIECE_BYTES as u64 }
        );
        pool.clear();
        assert_eq!(pool.stats().pieces, 3);
        drop((used, others));
        pool.clear();
        assert_eq!((pool.stats().held_bytes, registrar.live.load(Ordering::SeqCst)), (0, 0));
    }

    #[test]
    fn unforced_only_pieces_of_earlier_races_leave() {
        let (_dir, file) = file(4);
        let registrar = Counting::default();
        let pool = RegisteredPool::new(2 * PIECE_BYTES as u64);
        let mapping = pool.mapping(&file).unwrap();
        for first_free in [0, 2] {
            let race = pool.begin_race();
            let got = [0, 1, 2, 3].map(|round| {
                let piece = (first_free + round) % 4;
                pool.obtain(&mapping, piece, &registrar, race, false).is_ok()
            });
            assert_eq!(got, [true, true, false, false]);
        }
        assert_eq!((pool.stats().evictions, pool.stats().refusals), (2, 4));
    }

    #[test]
    fn only_what_an_earlier_race_wanted_is_worth_registering() {
        let (_dir, file) = file(1);
        let pool = RegisteredPool::for_repeats(1 << 30);
        let (first, second) = (pool.begin_race(), pool.begin_race());
        let is_worth = |offset, race| pool.is_worth(file.identity(), offset, race);
        assert!(!is_worth(0, first) && !is_worth(0, first), "once in a race is once");
        assert!(is_worth(0, second) && !is_worth(4096, second));
        assert!(RegisteredPool::new(1 << 30).is_worth(file.identity(), 0, first));
    }

    #[test]
    fn a_refusal_of_the_driver_leaves_nothing_behind() {
        let (_dir, file) = file(1);
        let pool = RegisteredPool::new(1 << 30);
        let mapping = pool.mapping(&file).unwrap();
        let refusing = Counting { fail: true, ..Counting::default() };
        let error = pool.obtain(&mapping, 0, &refusing, 1, true).unwrap_err();
        assert!(error.to_string().contains("refused by order"), "{error}");
        assert_eq!((pool.stats().held_bytes, pool.stats().pieces), (0, 0));
        pool.obtain(&mapping, 0, &Counting::default(), 1, true).unwrap();
        assert_eq!(pool.stats().held_bytes, mapping.piece(0).1 as u64);
    }

    /// Its registrations take long to end, and end in a panic.
    #[derive(Debug)]
    struct Slow(std::sync::mpsc::Sender<()>);

    struct SlowLive(std::sync::mpsc::Sender<()>);

    impl Drop for SlowLive {
        fn drop(&mut self) {
            let _ = self.0.send(());
            std::thread::sleep(std::time::Duration::from_millis(100));
            panic!("unregistering panics by order");
        }
    }

    impl HostRegistrar for Slow {
        unsafe fn register(&self, _: NonNull<u8>, _: usize) -> Result<Registration, BoxError> {
            Ok(Box::new(SlowLive(self.0.clone())))
        }
    }

    #[test]
    fn room_that_is_being_made_is_waited_for() {
        let (_dir, file) = file(2);
        let pool = RegisteredPool::new(PIECE_BYTES as u64);
        let mapping = pool.mapping(&file).unwrap();
        let (began, begin) = std::sync::mpsc::channel();
        drop(pool.obtain(&mapping, 0, &Slow(began), 1, true).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| pool.clear());
            begin.recv().unwrap();
            pool.obtain(&mapping, 1, &Counting::default(), 1, true).unwrap();
        });
        let stats = pool.stats();
        assert_eq!((stats.refusals, stats.pieces), (0, 1));
        assert_eq!(stats.held_bytes, mapping.piece(1).1 as u64);
    }

    /// Its registrations take until they are told to end.
    #[derive(Debug)]
    struct Held(std::sync::mpsc::Sender<()>, Arc<Mutex<()>>);

    struct HeldLive(std::sync::mpsc::Sender<()>, Arc<Mutex<()>>);

    impl Drop for HeldLive {
        fn drop(&mut self) {
            let _ = self.0.send(());
            drop(self.1.lock());
        }
    }

    impl HostRegistrar for Held {
        unsafe fn register(&self, _: NonNull<u8>, _: usize) -> Result<Registration, BoxError> {
            Ok(Box::new(HeldLive(self.0.clone(), Arc::clone(&self.1))))
        }
    }

    #[test]
    fn what_is_registered_while_a_pool_is_cleared_stays() {
        let (_dir, file) = file(2);
        let pool = RegisteredPool::new(1 << 30);
        let mapping = pool.mapping(&file).unwrap();
        let (began, begin) = std::sync::mpsc::channel();
        let gate = Arc::new(Mutex::new(()));
        drop(pool.obtain(&mapping, 0, &Held(began, Arc::clone(&gate)), 1, true).unwrap());
        let closed = gate.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| pool.clear());
            begin.recv().unwrap();
            drop(pool.obtain(&mapping, 1, &Counting::default(), 1, true).unwrap());
            drop(closed);
        });
        assert_eq!(pool.stats().pieces, 1);
    }

    #[test]
    fn a_piece_wanted_by_many_is_registered_once() {
        let (_dir, file) = file(2);
        let pool = RegisteredPool::new(1 << 30);
        let mapping = pool.mapping(&file).unwrap();
        let registrar = Counting::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| pool.obtain(&mapping, 1, &registrar, 1, true).unwrap());
            }
        });
        assert_eq!((pool.stats().registrations, pool.stats().hits), (1, 7));
    }
}
