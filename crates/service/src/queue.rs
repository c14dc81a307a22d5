//! The queue of runs: first come, first served.
//!
//! Runs of a session that has a turn do not wait: it may read one of them only after another, as the sides of a join, and
//! would wait for itself.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a waiting thread checks whether its run is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Turns for this many runs at a time.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// The runs of each session that have a turn, by its number, or that of a run that is alone.
    running: HashMap<(Option<u32>, u64), usize>,
    waiting: VecDeque<u64>,
    next: u64,
}

/// A turn, which ends when this is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    queue: &'a Queue,
    session: (Option<u32>, u64),
}

impl Queue {
    pub fn new(runs_max: usize) -> Self {
        let state = State {
            free: runs_max.max(1),
            running: HashMap::new(),
            waiting: VecDeque::new(),
            next: 0,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs that have a turn or wait for one.
    pub fn open(&self) -> usize {
        let state = self.state();
        state.running.values().sum::<usize>() + state.waiting.len()
    }

    /// Waits for a turn; `None` if it is no longer wanted.
    pub fn turn(&self, session: Option<u32>, is_wanted: impl Fn() -> bool) -> Option<Turn<'_>> {
        let mut state = self.state();
        let own = state.next;
        state.next += 1;
        state.waiting.push_back(own);
        let session = (session, if session.is_some() { 0 } else { own });
        loop {
            if !is_wanted() {
                state.waiting.retain(|other| *other != own);
                drop(state);
                self.changed.notify_all();
                return None;
            }
            let is_next = state.free > 0 && state.waiting.front() == Some(&own);
            if is_next || state.running.contains_key(&session) {
                let runs = state.running.entry(session).or_default();
                *runs += 1;
                if *runs == 1 {
                    state.free -= 1;
                }
                state.waiting.retain(|other| *other != own);
                drop(state);
                self.changed.notify_all();
                return Some(Turn { queue: self, session });
            }
            let waited = self.changed.wait_timeout(state, LOOK_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        let runs = state.running.entry(self.session).or_default();
        *runs = runs.saturating_sub(1);
        if *runs == 0 {
            state.running.remove(&self.session);
            state.free += 1;
        }
        drop(state);
        self.queue.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    /// Eight threads queue, and the fourth leaves: returns who had a turn, and how many at a time.
    fn turns(runs_max: usize) -> (Vec<usize>, usize) {
        let (queue, at_once, most) =
            (Queue::new(runs_max), AtomicUsize::new(0), AtomicUsize::new(0));
        let (order, leaves) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        let first: Vec<_> = (0..runs_max).map(|_| queue.turn(None, || true)).collect();
        let wait_for = |waiting| {
            while queue.state().waiting.len() != waiting {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            for number in 0..8 {
                wait_for(number);
                let (queue, at_once, most) = (&queue, &at_once, &most);
                let (order, leaves) = (&order, &leaves);
                scope.spawn(move || {
                    let turn = queue.turn(None, || number != 3 || !leaves.load(Ordering::SeqCst));
                    if turn.is_some() {
                        order.lock().unwrap_or_else(PoisonError::into_inner).push(number);
                        most.fetch_max(
                            at_once.fetch_add(1, Ordering::SeqCst) + 1,
                            Ordering::SeqCst,
                        );
                        std::thread::sleep(Duration::from_millis(5));
                        at_once.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            wait_for(8);
            leaves.store(true, Ordering::SeqCst);
            wait_for(7);
            drop(first);
        });
        assert_eq!(queue.state().free, runs_max);
        (order.into_inner().unwrap_or_else(PoisonError::into_inner), most.into_inner())
    }

    #[test]
    fn turns_come_in_order_and_one_may_leave() {
        assert_eq!(turns(1), (vec![0, 1, 2, 4, 5, 6, 7], 1));
    }

    #[test]
    fn a_session_that_has_a_turn_does_not_wait_for_itself() {
        let queue = Queue::new(1);
        let first = queue.turn(Some(7), || true);
        let others: Vec<_> = (0..3).map(|_| queue.turn(Some(7), || true)).collect();
        assert!(first.is_some() && others.iter().all(Option::is_some));
        assert_eq!(queue.open(), 4);
        drop(first);
        assert!(queue.turn(Some(8), || false).is_none(), "another one waits as long as any runs");
        drop(others);
        assert!(queue.turn(Some(8), || true).is_some());
        assert_eq!((queue.open(), queue.state().free), (0, 1));
    }

    #[test]
    fn no_more_run_at_a_time_than_may() {
        let (mut order, most) = turns(3);
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2, 4, 5, 6, 7]);
        assert!((1..=3).contains(&most), "{most}");
    }
}
