//! The queue between the reader and the consumers.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// Two lanes: items that occupy a slot come first, so that the storage is never idle while
/// consumers work on chunks that need no reading.
#[derive(Debug)]
pub(crate) struct WorkQueue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    /// More consumers may work.
    admitted: Condvar,
}

#[derive(Debug)]
struct State<T> {
    urgent: VecDeque<T>,
    patient: VecDeque<T>,
    /// Consumers that may work: those with lower numbers.
    consumers: usize,
    closed: bool,
}

impl<T> WorkQueue<T> {
    pub fn with_capacity(urgent: usize, patient: usize) -> Self {
        WorkQueue {
            state: Mutex::new(State {
                urgent: VecDeque::with_capacity(urgent),
                patient: VecDeque::with_capacity(patient),
                consumers: 0,
                closed: false,
            }),
            changed: Condvar::new(),
            admitted: Condvar::new(),
        }
    }

    pub fn push_urgent(&self, item: T) {
        self.state.lock().urgent.push_back(item);
        self.changed.notify_one();
    }

    pub fn push_patient(&self, item: T) {
        self.state.lock().patient.push_back(item);
        self.changed.notify_one();
    }

    /// Lets this many consumers work from now on.
    pub fn admit(&self, consumers: usize) {
        let mut state = self.state.lock();
        let more = consumers > state.consumers;
        state.consumers = consumers;
        if more {
            self.admitted.notify_all();
        }
    }

    /// Waits until this consumer may work or is no longer needed.
    pub fn wait_for_turn(&self, consumer: usize) {
        let mut state = self.state.lock();
        while consumer >= state.consumers && !state.closed {
            self.admitted.wait(&mut state);
        }
    }

    /// The next item; waits for one. `None` once the queue is closed and empty.
    pub fn pop(&self) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(item) = state.urgent.pop_front() {
                return Some(item);
            }
            if let Some(item) = state.patient.pop_front() {
                return Some(item);
            }
            if state.closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Closes the queue when dropped, also by a panic, so that consumers do not wait for ever.
    pub fn close_on_drop(&self) -> CloseOnDrop<'_, T> {
        CloseOnDrop(self)
    }
}

pub(crate) struct CloseOnDrop<'q, T>(&'q WorkQueue<T>);

impl<T> Drop for CloseOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_all();
        self.0.admitted.notify_all();
    }
}
