//! Programs that wait to be rehearsed: see `rehearse`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headrace_flow::CancelToken;
use headrace_ir::{Program, Scalar};
use parking_lot::Mutex;

use crate::settings::Settings;
use crate::table::StreamTable;

/// Programs that wait, at most; the one that has waited longest is dropped.
const WAITING_MAX: usize = 64;

/// A run on the cores that takes less is not worth another on a GPU.
pub(crate) const CORES_MS_MIN: f64 = 1.0;

/// What a GPU refuses of a program runs on the cores if it takes them no more, so that the rest can be rehearsed.
pub(crate) const CORES_MS_MAX: f64 = 100.0;

/// What a runner has yet to rehearse.
#[derive(Debug, Default)]
pub(crate) struct Rehearsals {
    are_on: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Rehearsal>,
    is_at_work: bool,
}

#[derive(Debug)]
pub(crate) struct Rehearsal {
    pub program: Program,
    pub parameters: Vec<Scalar>,
    pub tables: Vec<Arc<StreamTable>>,
    pub settings: Settings,
}

impl Rehearsals {
    /// Whether programs are rehearsed.
    pub(crate) fn are_on(&self) -> bool {
        self.are_on.load(Ordering::Relaxed)
    }

    /// Has programs rehearsed from now on, or none.
    pub(crate) fn turn(&self, on: bool) {
        self.are_on.store(on, Ordering::Relaxed);
    }

    /// Adds a program to the queue; whether the caller is to begin a thread, as none is at work.
    pub(crate) fn push(&self, rehearsal: Rehearsal) -> bool {
        let mut queue = self.queue.lock();
        if queue.waiting.len() == WAITING_MAX {
            queue.waiting.pop_front();
        }
        queue.waiting.push_back(rehearsal);
        !std::mem::replace(&mut queue.is_at_work, true)
    }

    /// The next one; `None`: the thread ends.
    pub(crate) fn next(&self, token: &CancelToken) -> Option<Rehearsal> {
        let mut queue = self.queue.lock();
        let next = queue.waiting.pop_front().filter(|_| !token.is_cancelled());
        queue.is_at_work = next.is_some();
        next
    }

    /// Drops the queue of a thread that did not come to its end.
    pub(crate) fn give_up(&self) {
        *self.queue.lock() = Queue::default();
    }
}
