//! Several readers read parts in parallel, and a writer writes them in order, within a bound of
//! memory.
//!
//! A reader claims the next part and delivers its batches; the writer takes the batches of the first
//! unfinished part. Batches of later parts wait, and so do their readers once the bound is reached. The
//! reader of the writer's own part is only limited by the writer, so there is always progress.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use parking_lot::{Condvar, Mutex};

use crate::error::PgError;

/// How soon a waiting thread notices cancellation.
const CANCEL_POLL: Duration = Duration::from_millis(20);

/// Batches of the writer's own part that may wait for it.
const AHEAD: usize = 2;

/// The shared state of readers and writer.
pub(super) struct Order<'a> {
    parts: usize,
    limit_bytes: usize,
    /// Cancellation.
    cancel: &'a AtomicBool,
    /// Also true after a failure.
    stopped: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The part that the next claim gets.
    unclaimed: usize,
    /// The part whose batches the writer takes.
    writing: usize,
    waiting: BTreeMap<usize, Part>,
    waiting_bytes: usize,
    failure: Option<PgError>,
}

#[derive(Default)]
struct Part {
    batches: VecDeque<(RecordBatch, usize)>,
    is_read: bool,
}

/// The writer's input.
pub(super) enum Taken {
    /// Rows, in order.
    Batch(RecordBatch),
    /// All rows of the next part have been taken.
    PartEnded,
}

impl<'a> Order<'a> {
    /// For this many parts, and this many waiting bytes.
    pub fn new(parts: usize, limit_bytes: usize, cancel: &'a AtomicBool) -> Order<'a> {
        Order {
            parts,
            limit_bytes,
            cancel,
            stopped: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The next part to read.
    pub fn claim(&self) -> Option<usize> {
        let mut state = self.state.lock();
        let part = state.unclaimed;
        if part == self.parts || self.is_stopped() {
            return None;
        }
        state.unclaimed += 1;
        Some(part)
    }

    /// Delivers a batch of a part, once there is room.
    pub fn put(&self, part: usize, batch: RecordBatch) -> Result<(), PgError> {
        let bytes = batch.get_array_memory_size();
        let mut state = self.state.lock();
        while !self.has_room(&state, part, bytes) {
            if self.is_stopped() {
                return Err(PgError::cancelled());
            }
            self.changed.wait_for(&mut state, CANCEL_POLL);
        }
        state.waiting_bytes += bytes;
        state.waiting.entry(part).or_default().batches.push_back((batch, bytes));
        self.changed.notify_all();
        Ok(())
    }

    /// All batches of a part were delivered.
    pub fn end(&self, part: usize) {
        self.state.lock().waiting.entry(part).or_default().is_read = true;
        self.changed.notify_all();
    }

    /// The next batch in order; `None` after the last, or if everything is stopped.
    pub fn take(&self) -> Option<Taken> {
        let mut state = self.state.lock();
        loop {
            if state.writing == self.parts || self.is_stopped() {
                return None;
            }
            let writing = state.writing;
            let part = state.waiting.entry(writing).or_default();
            if let Some((batch, bytes)) = part.batches.pop_front() {
                state.waiting_bytes -= bytes;
                self.changed.notify_all();
                return Some(Taken::Batch(batch));
            }
            if part.is_read {
                state.waiting.remove(&writing);
                state.writing += 1;
                self.changed.notify_all();
                return Some(Taken::PartEnded);
            }
            self.changed.wait_for(&mut state, CANCEL_POLL);
        }
    }

    /// Stops everything; the first failure is reported.
    pub fn fail(&self, error: PgError) {
        self.state.lock().failure.get_or_insert(error);
        self.stopped.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Why everything was stopped, if it was.
    pub fn failure(&self) -> Option<PgError> {
        let failure = self.state.lock().failure.clone();
        failure.or_else(|| self.is_stopped().then(PgError::cancelled))
    }

    /// Becomes true when readers must end; for threads that wait elsewhere.
    pub fn stop_flag(&self) -> &AtomicBool {
        // Somebody's wish becomes everybody's here, so that one flag is enough.
        self.is_stopped();
        &self.stopped
    }

    fn is_stopped(&self) -> bool {
        if self.cancel.load(Ordering::Relaxed) {
            self.stopped.store(true, Ordering::Relaxed);
        }
        self.stopped.load(Ordering::Relaxed)
    }

    fn has_room(&self, state: &State, part: usize, bytes: usize) -> bool {
        if part == state.writing {
            return state.waiting.get(&part).is_none_or(|part| part.batches.len() < AHEAD);
        }
        state.waiting_bytes + bytes <= self.limit_bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, Int32Array};

    use super::*;

    fn batch(number: i32) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![number]));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    #[test]
    fn batches_come_in_the_order_of_parts_with_no_room_at_all_and_with_much() {
        for limit in [0, 100, 1 << 20] {
            let cancel = AtomicBool::new(false);
            let order = Order::new(9, limit, &cancel);
            let mut taken = Vec::new();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        while let Some(part) = order.claim() {
                            for i in 0..part as i32 {
                                order.put(part, batch(part as i32 * 100 + i)).unwrap();
                            }
                            order.end(part);
                        }
                    });
                }
                while let Some(next) = order.take() {
                    if let Taken::Batch(batch) = next {
                        taken.push(batch.column(0).as_primitive::<Int32Type>().value(0));
                    }
                }
            });
            let wanted: Vec<i32> =
                (0..9).flat_map(|part| (0..part).map(move |i| part * 100 + i)).collect();
            assert_eq!(taken, wanted, "limit {limit}");
            assert_eq!(order.failure(), None);
        }
    }

    #[test]
    fn a_failure_or_a_wish_to_stop_ends_all_who_wait() {
        let cancel = AtomicBool::new(false);
        let order = Order::new(3, 0, &cancel);
        assert_eq!(order.claim(), Some(0));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| order.put(1, batch(1)));
            order.fail(PgError::new("broken"));
            order.fail(PgError::new("and so on"));
            assert!(waiting.join().unwrap().is_err());
        });
        assert_eq!(order.failure().unwrap().cause, "broken");
        assert!(order.claim().is_none() && order.take().is_none());
        let stopped = Order::new(1, 0, &cancel);
        cancel.store(true, Ordering::Relaxed);
        assert!(stopped.take().is_none());
        assert_eq!(stopped.failure(), Some(PgError::cancelled()));
    }
}
