//! Work that borrows from whoever waits for it, on threads that wait for work: as [`std::thread::scope`].

use std::any::Any;
use std::io;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::threads::{Stack, Work, hand_over};

/// What work returned, or its panic.
type Outcome<T> = Result<T, Box<dyn Any + Send>>;

/// Has work done that borrows, and ends when all of it is done. What panicked and was not joined panics here.
pub fn scope<'env, T>(f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    let scope = Scope { running: Arc::default(), scope: PhantomData, env: PhantomData };
    let made = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    let has_panicked = scope.running.wait();
    match made {
        Ok(_) if has_panicked => panic!("work on a thread panicked"),
        Ok(made) => made,
        Err(panic) => resume_unwind(panic),
    }
}

/// Where [`scope`]'s work is started.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    running: Arc<Running>,
    /// Neither lifetime may be made shorter or longer.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// What is not done yet, and whether any of the rest panicked unseen.
#[derive(Debug, Default)]
struct Running {
    state: Mutex<(usize, bool)>,
    ended: Condvar,
}

impl Running {
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        self.ended.wait_while(&mut state, |(running, _)| *running > 0);
        state.1
    }
}

/// Work that is under way, until this is dropped.
struct UnderWay(Arc<Running>);

impl UnderWay {
    fn begin(running: &Arc<Running>) -> Self {
        running.state.lock().0 += 1;
        Self(Arc::clone(running))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.0 -= 1;
        if state.0 == 0 {
            self.0.ended.notify_all();
        }
    }
}

/// A closure that may borrow what ends before the value that has the closure does: as a union, it promises nothing of its
/// references.
struct Borrowing<F>(MaybeUninit<F>);

impl<F> Borrowing<F> {
    fn take(self) -> F {
        let own = ManuallyDrop::new(self);
        // SAFETY: it is there until it is taken, and nobody drops it then.
        unsafe { own.0.assume_init_read() }
    }
}

impl<F> Drop for Borrowing<F> {
    fn drop(&mut self) {
        // SAFETY: it was not taken.
        unsafe { self.0.assume_init_drop() }
    }
}

/// Work of a scope, as a thread gets it. Its parts go in this order.
struct Job<F, T> {
    work: Borrowing<F>,
    done: Arc<Done<T>>,
    under_way: UnderWay,
}

impl<F: FnOnce() -> T, T> Job<F, T> {
    fn run(self) {
        let Self { work, done, under_way } = self;
        // What the work has is dropped in there.
        let outcome = catch_unwind(AssertUnwindSafe(move || work.take()()));
        *done.outcome.lock() = Some(outcome);
        done.told.notify_all();
        // Where nobody holds the handle, the outcome goes now: it may borrow, too.
        drop(done);
        drop(under_way);
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Has a thread do `work`.
    ///
    /// # Errors
    /// No thread can be had; the work is dropped.
    pub fn spawn<T: Send + 'scope>(
        &'scope self,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<Handle<'scope, T>> {
        self.spawn_on(Stack::Usual, work)
    }

    /// The same with a deep stack, for what may run within itself.
    ///
    /// # Errors
    /// As there.
    pub fn spawn_deep<T: Send + 'scope>(
        &'scope self,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<Handle<'scope, T>> {
        self.spawn_on(Stack::Deep, work)
    }

    fn spawn_on<T: Send + 'scope>(
        &'scope self,
        stack: Stack,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<Handle<'scope, T>> {
        let done = Arc::new(Done {
            outcome: Mutex::new(None),
            told: Condvar::new(),
            running: Arc::clone(&self.running),
        });
        let handle = Handle { done: Arc::clone(&done), scope: PhantomData };
        let work = Borrowing(MaybeUninit::new(work));
        let job = Job { work, done, under_way: UnderWay::begin(&self.running) };
        let work: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || {
            // As a whole, so that its parts go in their order where it is never run.
            let job = job;
            job.run();
        });
        // SAFETY: only the lifetime is another. What lives as long as 'scope is gone before `under_way` is, whether the
        // work is run or dropped, and `scope` waits for that, whatever happens in it.
        let work: Work =
            unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Work>(work) };
        hand_over(work, stack).map(|()| handle)
    }
}

/// What comes of work.
struct Done<T> {
    outcome: Mutex<Option<Outcome<T>>>,
    told: Condvar,
    running: Arc<Running>,
}

impl<T> Drop for Done<T> {
    fn drop(&mut self) {
        if let Some(Err(_)) = self.outcome.get_mut() {
            self.running.state.lock().1 = true;
        }
    }
}

/// Work that was given to a thread.
pub struct Handle<'scope, T> {
    done: Arc<Done<T>>,
    scope: PhantomData<&'scope ()>,
}

impl<T> Handle<'_, T> {
    /// Waits for what it returns.
    ///
    /// # Errors
    /// Its panic.
    pub fn join(self) -> Outcome<T> {
        let mut outcome = self.done.outcome.lock();
        loop {
            if let Some(outcome) = outcome.take() {
                return outcome;
            }
            self.done.told.wait(&mut outcome);
        }
    }
}

impl<T> std::fmt::Debug for Handle<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// Work in work, more at a time than there are cores, all of which waits for each other.
    #[test]
    fn a_scope_ends_with_all_of_its_work() {
        let (done, all) = (AtomicUsize::new(0), std::sync::Barrier::new(64));
        let texts: Vec<String> = (0..64).map(|number| number.to_string()).collect();
        let lengths: Vec<usize> = scope(|outer| {
            let one = |text: &'static str| text.len();
            let of = |text| {
                let (done, all) = (&done, &all);
                move || {
                    all.wait();
                    let inner = scope(|inner| {
                        inner.spawn(|| done.fetch_add(1, Ordering::Relaxed)).unwrap();
                        inner.spawn(|| String::len(text)).unwrap().join().unwrap()
                    });
                    inner + one("")
                }
            };
            let handles: Vec<_> = texts.iter().map(|text| outer.spawn(of(text)).unwrap()).collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).collect()
        });
        assert_eq!(done.into_inner(), 64);
        assert!(lengths.iter().zip(&texts).all(|(length, text)| *length == text.len()));
    }

    #[test]
    fn a_scope_waits_for_what_nobody_joins_and_tells_of_its_panic() {
        let mut late = 0;
        scope(|scope| {
            let late = &mut late;
            scope
                .spawn(move || {
                    std::thread::sleep(Duration::from_millis(30));
                    *late = 7;
                })
                .unwrap();
        });
        assert_eq!(late, 7);
        let seen = scope(|scope| scope.spawn(|| panic!("as a test wants it")).unwrap().join());
        assert!(seen.is_err());
        let unseen = catch_unwind(|| {
            scope(|scope| drop(scope.spawn(|| panic!("as a test wants it")).unwrap()));
        });
        assert!(unseen.is_err());
        // The work is waited for where the scope itself panics, too.
        let mut late = 0;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            scope(|scope| {
                let late = &mut late;
                let work = move || {
                    std::thread::sleep(Duration::from_millis(30));
                    *late = 7;
                };
                scope.spawn(work).unwrap();
                panic!("as a test wants it");
            });
        }));
        assert!(panicked.is_err() && late == 7);
    }
}
