//! Items processed in parallel and finished in order, as memory allows.
//!
//! ```text
//! items in their order ─► memory for one, or wait ─► work, by any thread ─► its turn ─► end
//! ```
//!
//! Memory is granted in item order, so the item whose turn it is always has its memory: there are no circular waits.

use std::sync::Arc;

use headrace_flow::CancelToken;
use headrace_io::{MemoryBudget, MemoryUse, Reservation};
use parking_lot::{Condvar, Mutex};

use crate::{OocError, Result};

/// The share of memory that items leave to others: one in this many.
pub(super) const SLACK_SHARE: u64 = 16;

/// The threads, their memory, and the cancellation token.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    pub threads: usize,
    pub memory: Arc<MemoryBudget>,
    pub token: CancelToken,
}

struct State {
    begun: usize,
    ended: usize,
    failed: bool,
}

struct Shared<'a, E> {
    turns: &'a Turns,
    count: usize,
    state: Mutex<State>,
    changed: Condvar,
    end: Mutex<E>,
}

impl Turns {
    /// Error if it was cancelled.
    pub fn check(&self) -> Result<()> {
        if self.token.is_cancelled() { Err(OocError::Cancelled) } else { Ok(()) }
    }

    /// Runs `work` on the items 0 to `count` in parallel, each with the memory that it needs, and `end` on one at a
    /// time, in order. Memory that `end` does not keep is returned.
    ///
    /// # Errors
    /// The first error of `work` or `end`; [`OocError::Memory`] if the limit does not even allow one
    /// item.
    pub fn run<T: Send>(
        &self,
        count: usize,
        needs_bytes: impl Fn(usize) -> u64 + Sync,
        work: impl Fn(usize, &mut Reservation) -> Result<T> + Sync,
        end: impl FnMut(T, Reservation) -> Result<()> + Send,
    ) -> Result<()> {
        let state = State { begun: 0, ended: 0, failed: false };
        let shared = Shared {
            turns: self,
            count,
            state: Mutex::new(state),
            changed: Condvar::new(),
            end: Mutex::new(end),
        };
        // One more than there are cores to work: one of them ends an item, mostly by writing.
        let threads = (self.threads + 1).min(count);
        let run = || shared.work(&needs_bytes, &work);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ended.fold(Ok(()), Result::and)
        })?;
        self.check()
    }
}

impl<E> Shared<'_, E> {
    fn work<T>(
        &self,
        needs_bytes: impl Fn(usize) -> u64,
        work: impl Fn(usize, &mut Reservation) -> Result<T>,
    ) -> Result<()>
    where
        E: FnMut(T, Reservation) -> Result<()>,
    {
        let mut guard = Failing { shared: self, is_over: false };
        while let Some((item, mut reserved)) = self.begin(&needs_bytes)? {
            self.turns.check()?;
            let done = work(item, &mut reserved)?;
            if !self.wait_for_turn(item) {
                break;
            }
            self.turns.check()?;
            (self.end.lock())(done, reserved)?;
            self.state.lock().ended += 1;
            self.changed.notify_all();
        }
        guard.is_over = true;
        Ok(())
    }

    /// The next item and its memory; `None`: there is none, or a thread failed.
    fn begin(&self, needs_bytes: impl Fn(usize) -> u64) -> Result<Option<(usize, Reservation)>> {
        let memory = &self.turns.memory;
        let mut state = self.state.lock();
        loop {
            if state.failed || state.begun == self.count {
                return Ok(None);
            }
            let bytes = needs_bytes(state.begun);
            // Some is left for lists that grow while they are made.
            let slack_bytes = memory.limit_bytes() / SLACK_SHARE;
            let reserved = match state.begun == state.ended {
                // Nobody is left to wait for: what is held stays held.
                true => Some(memory.reserve(MemoryUse::Operators, bytes)?),
                false
                    if memory.uses().total_bytes() + bytes + slack_bytes > memory.limit_bytes() =>
                {
                    None
                }
                false => memory.reserve_free(MemoryUse::Operators, bytes),
            };
            if let Some(reserved) = reserved {
                state.begun += 1;
                return Ok(Some((state.begun - 1, reserved)));
            }
            self.changed.wait(&mut state);
        }
    }

    /// `false` if a thread failed.
    fn wait_for_turn(&self, item: usize) -> bool {
        let mut state = self.state.lock();
        while state.ended != item && !state.failed {
            self.changed.wait(&mut state);
        }
        !state.failed
    }
}

/// Releases waiting threads when one has failed or panicked.
struct Failing<'a, 'b, E> {
    shared: &'a Shared<'b, E>,
    is_over: bool,
}

impl<E> Drop for Failing<'_, '_, E> {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.state.lock().failed = true;
            self.shared.changed.notify_all();
        }
    }
}
