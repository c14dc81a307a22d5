//! Pinned slots that are usable long before the last of them is ready.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::pinned::PinnedBuffer;
use crate::threads;

/// Threads that prepare slots: while one is in the driver, which registers one range at a
/// time, the others touch pages.
const PREPARERS_MAX: usize = 4;

/// A ring's worth of [`PinnedBuffer`]s, prepared in the background, first slot first.
///
/// ```text
/// slots:  |== ready ==|== ready ==|-- being touched --|.. not begun ..|
///         0           1           2                   ^ ready() = 2
/// ```
///
/// Mapping, touching and registering some hundreds of mebibytes takes longer than the first read
/// from storage; a race that starts with the first slots hides it. Slots become ready in the order
/// of their numbers. If one cannot be allocated, those before it stay usable, and waiters get the
/// reason.
pub struct PinnedSlots {
    preparation: Preparation<PinnedBuffer>,
}

impl std::fmt::Debug for PinnedSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PinnedSlots")
            .field("slots", &self.slots())
            .field("ready", &self.ready())
            .finish_non_exhaustive()
    }
}

impl PinnedSlots {
    /// Begins to prepare `slots` slots of at least `slot_bytes` bytes each (rounded up to
    /// whole pages) and returns at once.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for 0 slots or bytes, [`GpuError::HostMemory`] when no
    /// thread could be started. What goes wrong with a slot is told by
    /// [`PinnedSlots::wait`].
    pub fn start(device: &Arc<Device>, slots: usize, slot_bytes: usize) -> Result<Self> {
        if slots == 0 || slot_bytes == 0 {
            return Err(GpuError::invalid(
                "PinnedSlots::start",
                format!("{slots} slots of {slot_bytes} bytes"),
            ));
        }
        let device = Arc::clone(device);
        let make = move || PinnedBuffer::new(&device, slot_bytes);
        Ok(Self { preparation: Preparation::start(slots, make)? })
    }

    /// Slots asked for.
    pub fn slots(&self) -> usize {
        self.preparation.shared.slots.len()
    }

    /// Slots that are ready: those numbered below this.
    pub fn ready(&self) -> usize {
        self.preparation.shared.progress.lock().ready
    }

    /// As [`PinnedSlots::ready`], with the reason when no more will become ready.
    ///
    /// # Errors
    /// As [`PinnedSlots::wait`].
    pub fn poll_ready(&self) -> Result<usize> {
        self.preparation.poll_ready()
    }

    /// Waits until the first slot is ready.
    ///
    /// # Errors
    /// As [`PinnedSlots::wait`].
    pub fn wait_first(&self) -> Result<()> {
        self.wait(1)
    }

    /// Waits until the first `count` slots are ready (all of them, where `count` is more).
    ///
    /// # Errors
    /// As [`PinnedBuffer::new`], when one of these slots could not be had.
    pub fn wait(&self, count: usize) -> Result<()> {
        self.preparation.wait(count)
    }

    /// Slot `index`, once it is ready.
    pub fn slot(&self, index: usize) -> Option<&PinnedBuffer> {
        self.preparation.get(index)
    }
}

/// Items that are made in the background, in the order of their numbers.
struct Preparation<T> {
    shared: Arc<Shared<T>>,
    preparers: Vec<JoinHandle<()>>,
}

struct Shared<T> {
    /// Makes the next one.
    make: Box<dyn Fn() -> Result<T> + Send + Sync>,
    slots: Vec<OnceLock<T>>,
    next: AtomicUsize,
    stop: AtomicBool,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    /// Slots before this one are all ready.
    ready: usize,
    /// The first slot that could not be allocated, and why. Those before it are ready or under way;
    /// those behind it are unused.
    failure: Option<(usize, GpuError)>,
}

impl Progress {
    /// Why no more slots will become ready.
    fn end(&self) -> Option<&GpuError> {
        self.failure.as_ref().filter(|(index, _)| *index == self.ready).map(|(_, error)| error)
    }
}

impl<T: Send + Sync + 'static> Preparation<T> {
    fn start(count: usize, make: impl Fn() -> Result<T> + Send + Sync + 'static) -> Result<Self> {
        let shared = Arc::new(Shared {
            make: Box::new(make),
            slots: (0..count).map(|_| OnceLock::new()).collect(),
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            progress: Mutex::new(Progress::default()),
            changed: Condvar::new(),
        });
        let mut preparation = Self { shared, preparers: Vec::new() };
        for index in 0..preparers(count) {
            // When a later thread cannot be had, the first ones do the work.
            match preparation.spawn(index) {
                Ok(preparer) => preparation.preparers.push(preparer),
                Err(error) if index == 0 => return Err(threads::refused(error)),
                Err(error) => tracing::debug!(%error, "fewer threads prepare pinned slots"),
            }
        }
        Ok(preparation)
    }

    fn spawn(&self, index: usize) -> io::Result<JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        thread::Builder::new().name(format!("pin-{index}")).spawn(move || {
            block_signals();
            shared.prepare();
        })
    }
}

impl<T> Preparation<T> {
    fn poll_ready(&self) -> Result<usize> {
        let progress = self.shared.progress.lock();
        match progress.end() {
            Some(error) => Err(error.clone()),
            None => Ok(progress.ready),
        }
    }

    fn wait(&self, count: usize) -> Result<()> {
        let count = count.min(self.shared.slots.len());
        let mut progress = self.shared.progress.lock();
        while progress.ready < count {
            if let Some(error) = progress.end() {
                return Err(error.clone());
            }
            self.shared.changed.wait(&mut progress);
        }
        Ok(())
    }

    fn get(&self, index: usize) -> Option<&T> {
        if index < self.shared.progress.lock().ready {
            self.shared.slots[index].get()
        } else {
            None
        }
    }
}

impl<T> Drop for Preparation<T> {
    /// Waits for what is being made right now, one thing for each thread.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for preparer in self.preparers.drain(..) {
            if preparer.join().is_err() {
                tracing::warn!("a thread that prepared pinned slots panicked");
            }
        }
    }
}

impl<T> Shared<T> {
    /// One thread's work: slot after slot, until there are no more.
    fn prepare(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.slots.len() {
                return;
            }
            // A panic that nobody hears of would leave those who wait to wait for ever.
            let made = panic::catch_unwind(AssertUnwindSafe(|| (self.make)()));
            match made.unwrap_or_else(|_| Err(panicked())) {
                Ok(made) => {
                    // Each index is claimed once. Those who wait must hear of it if not.
                    if self.slots[index].set(made).is_err() {
                        return self.note_failure(index, panicked());
                    }
                    self.note_ready();
                }
                Err(error) => return self.note_failure(index, error),
            }
        }
    }

    fn note_ready(&self) {
        let mut progress = self.progress.lock();
        while self.slots.get(progress.ready).is_some_and(|slot| slot.get().is_some()) {
            progress.ready += 1;
        }
        self.changed.notify_all();
    }

    fn note_failure(&self, index: usize, error: GpuError) {
        self.stop.store(true, Ordering::Relaxed);
        let mut progress = self.progress.lock();
        if progress.failure.as_ref().is_none_or(|(first, _)| index < *first) {
            progress.failure = Some((index, error));
        }
        self.changed.notify_all();
    }
}

fn preparers(slots: usize) -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    slots.min(cores).min(PREPARERS_MAX)
}

fn panicked() -> GpuError {
    GpuError::HostMemory {
        call: "the preparation of a pinned slot",
        bytes: 0,
        source: Arc::new(io::Error::other("it panicked")),
        remedy: "this is an error of Headrace: report it with the panic's message",
    }
}

/// Signals that a thread's own instruction raises: blocked, they would kill the process instead of
/// reaching their handler.
const FAULTS: [libc::c_int; 5] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// The program's own threads handle signals; this thread only handles its own faults.
fn block_signals() {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set it is given; the mask of this thread alone
    // changes.
    unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(blocked.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    #[test]
    fn faults_reach_their_handlers() {
        let blocked = thread::spawn(|| {
            block_signals();
            let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: the call fills the set in, and the questions only look at it.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr());
                let asked = FAULTS.into_iter().chain([libc::SIGINT, libc::SIGTERM]);
                asked.map(|signal| libc::sigismember(mask.as_ptr(), signal)).collect::<Vec<_>>()
            }
        });
        assert_eq!(blocked.join().unwrap(), [0, 0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn no_more_threads_than_slots() {
        assert_eq!(preparers(1), 1);
        assert!((1..=PREPARERS_MAX).contains(&preparers(1000)));
    }

    #[test]
    fn the_first_is_usable_before_the_last_is_made() {
        const COUNT: usize = 1000;
        let gate = Arc::new((Mutex::new(0usize), Condvar::new()));
        let door = Arc::clone(&gate);
        let preparation = Preparation::start(COUNT, move || {
            let mut passes = door.0.lock();
            while *passes == 0 {
                door.1.wait(&mut passes);
            }
            *passes -= 1;
            Ok(7)
        })
        .unwrap();
        let open = |more| {
            *gate.0.lock() += more;
            gate.1.notify_all();
        };
        assert_eq!(preparation.poll_ready().unwrap(), 0);
        assert_eq!(preparation.get(0), None);
        // A pass lets some thread through, not surely the one that makes the first.
        while preparation.poll_ready().unwrap() == 0 {
            open(1);
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(preparation.get(0), Some(&7));
        assert!(preparation.poll_ready().unwrap() < COUNT);
        assert_eq!(preparation.get(COUNT - 1), None);
        open(COUNT);
        preparation.wait(usize::MAX).unwrap();
        assert_eq!(preparation.poll_ready().unwrap(), COUNT);
        assert_eq!(preparation.get(COUNT), None);
    }

    #[test]
    fn a_failure_is_told_and_what_was_ready_stays() {
        const COUNT: usize = 1_000_000;
        let exhausted = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&exhausted);
        let preparation = Preparation::start(COUNT, move || {
            thread::sleep(Duration::from_millis(1));
            match told.load(Ordering::Relaxed) {
                false => Ok(()),
                true => Err(GpuError::invalid("test", "no more")),
            }
        })
        .unwrap();
        preparation.wait(1).unwrap();
        exhausted.store(true, Ordering::Relaxed);
        let error = preparation.wait(COUNT).unwrap_err();
        assert!(error.to_string().contains("no more"), "{error}");
        assert!(preparation.poll_ready().is_err());
        assert!(preparation.wait(1).is_ok() && preparation.get(0).is_some());
    }

    #[test]
    fn a_failure_behind_does_not_hide_what_is_under_way() {
        let shared = Shared {
            make: Box::new(|| Ok(())),
            slots: (0..3).map(|_| OnceLock::new()).collect(),
            next: AtomicUsize::new(3),
            stop: AtomicBool::new(false),
            progress: Mutex::new(Progress::default()),
            changed: Condvar::new(),
        };
        let preparation = Preparation { shared: Arc::new(shared), preparers: Vec::new() };
        let shared = &preparation.shared;
        shared.note_failure(2, GpuError::invalid("test", "the last"));
        shared.note_failure(1, GpuError::invalid("test", "the second"));
        assert_eq!(preparation.poll_ready().unwrap(), 0);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| preparation.wait(1));
            shared.slots[0].set(()).unwrap();
            shared.note_ready();
            waiter.join().unwrap().unwrap();
        });
        let error = preparation.wait(3).unwrap_err();
        assert!(error.to_string().contains("the second"), "{error}");
        assert!(preparation.poll_ready().is_err());
    }

    #[test]
    fn a_panic_is_an_error_for_those_who_wait() {
        let preparation: Preparation<()> = Preparation::start(3, || panic!("by order")).unwrap();
        let error = preparation.wait(1).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }

    #[test]
    fn dropping_ends_the_work() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&made);
        let preparation = Preparation::start(1_000_000, move || {
            thread::sleep(Duration::from_millis(1));
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        preparation.wait(1).unwrap();
        drop(preparation);
        let after_drop = made.load(Ordering::Relaxed);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(made.load(Ordering::Relaxed), after_drop);
        assert!(after_drop < 1_000_000);
    }
}
