//! Outgoing messages, and the thread that writes them.

use std::collections::VecDeque;
use std::io::{BufWriter, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use serde::Serialize;

use crate::protocol::{self, ProtocolError};

/// Bytes per write.
const WRITE_BYTES: usize = 256 << 10;

/// A body, encoded by the writing thread.
#[derive(Debug)]
pub enum Body {
    /// As it is.
    Bytes(Vec<u8>),
    /// A batch.
    Rows(RecordBatch),
}

impl Body {
    /// No body.
    pub const NONE: Self = Self::Bytes(Vec::new());
}

/// Messages in two queues: short ones, for which the other side waits, go first.
#[derive(Debug)]
pub struct Outbox<M> {
    state: Mutex<State<M>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<M> {
    urgent: VecDeque<(M, Body)>,
    bulk: VecDeque<(M, Body)>,
    /// No more messages follow: the writer ends when all are written.
    is_last: bool,
    /// The other side no longer reads.
    is_abandoned: bool,
    /// The writer has a message that is not yet on its way.
    is_writing: bool,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        let (urgent, bulk) = (VecDeque::new(), VecDeque::new());
        let state = State { urgent, bulk, is_last: false, is_abandoned: false, is_writing: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<M> Outbox<M> {
    fn state(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message that overtakes bulk. Never waits; messages without a reader are dropped.
    pub fn push(&self, message: M, body: Body) {
        let mut state = self.state();
        if !state.is_abandoned {
            state.urgent.push_back((message, body));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Adds a message behind all others.
    pub fn push_bulk(&self, message: M, body: Body) {
        let mut state = self.state();
        if !state.is_abandoned {
            state.bulk.push_back((message, body));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Adds the last message, behind all others; the writer ends after it.
    pub fn push_last(&self, message: M) {
        self.push_bulk(message, Body::NONE);
        self.state().is_last = true;
        self.changed.notify_all();
    }

    /// Whether fewer than this many bulk messages wait, now or within this time. There is no room if
    /// the other side no longer reads.
    pub fn has_room(&self, bulk_max: usize, wait: Duration) -> bool {
        let state = self.state();
        let is_full = |state: &mut State<M>| !state.is_abandoned && state.bulk.len() >= bulk_max;
        let (state, waited) = self
            .changed
            .wait_timeout_while(state, wait, is_full)
            .unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out() && !state.is_abandoned
    }

    /// Waits until no message waits and none is being written, or for this time.
    pub fn wait_until_written(&self, wait: Duration) {
        let waits = |state: &mut State<M>| {
            state.is_writing || !(state.urgent.is_empty() && state.bulk.is_empty())
        };
        let waited = self.changed.wait_timeout_while(self.state(), wait, waits);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The other side no longer reads: waiting and future messages are dropped.
    pub fn abandon(&self) {
        let mut state = self.state();
        state.is_abandoned = true;
        state.urgent.clear();
        state.bulk.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Whether [`abandon`](Self::abandon) was called.
    pub fn is_abandoned(&self) -> bool {
        self.state().is_abandoned
    }
}

impl<M: Serialize> Outbox<M> {
    /// Writes messages until the last one, or until the other side no longer reads.
    ///
    /// # Errors
    /// The connection is lost, or a message cannot be written. The outbox is abandoned then.
    pub fn write_to(&self, writer: impl Write) -> Result<(), ProtocolError> {
        let mut writer = BufWriter::with_capacity(WRITE_BYTES, writer);
        let written = self.write_all(&mut writer);
        self.state().is_writing = false;
        self.changed.notify_all();
        if written.is_err() {
            self.abandon();
        }
        written
    }

    fn write_all(&self, writer: &mut BufWriter<impl Write>) -> Result<(), ProtocolError> {
        loop {
            let mut state = self.state();
            let next = state.urgent.pop_front().or_else(|| state.bulk.pop_front());
            let Some((message, body)) = next else {
                if state.is_last || state.is_abandoned {
                    drop(state);
                    return Ok(writer.flush()?);
                }
                if writer.buffer().is_empty() {
                    state.is_writing = false;
                    self.changed.notify_all();
                    drop(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
                } else {
                    drop(state);
                    writer.flush()?;
                }
                continue;
            };
            state.is_writing = true;
            drop(state);
            // There may be room now.
            self.changed.notify_all();
            match body {
                Body::Bytes(bytes) => protocol::write(writer, &message, &bytes)?,
                Body::Rows(batch) => {
                    protocol::write(writer, &message, &protocol::encode_batch(&batch)?)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn numbers(bytes: &[u8]) -> Vec<u32> {
        let mut rest = bytes;
        std::iter::from_fn(|| protocol::read::<u32>(&mut rest).unwrap().map(|f| f.head)).collect()
    }

    #[test]
    fn what_is_urgent_overtakes_bulk_and_the_last_is_the_last() {
        let outbox = Outbox::default();
        outbox.push_bulk(3, Body::NONE);
        outbox.push_bulk(4, Body::NONE);
        outbox.push(1, Body::NONE);
        outbox.push(2, Body::Bytes(vec![7; 100]));
        outbox.push_last(5);
        let mut bytes = Vec::new();
        outbox.write_to(&mut bytes).unwrap();
        outbox.wait_until_written(Duration::MAX);
        assert_eq!(numbers(&bytes), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn an_abandoned_outbox_takes_nothing_and_nobody_waits_for_room_in_it() {
        let outbox = Outbox::default();
        outbox.push_bulk(1_u32, Body::NONE);
        assert!(
            outbox.has_room(2, Duration::ZERO) && !outbox.has_room(1, Duration::from_millis(1))
        );
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| outbox.has_room(1, Duration::from_secs(60)));
            outbox.abandon();
            assert!(!waits.join().unwrap());
        });
        outbox.push(2, Body::NONE);
        let mut bytes = Vec::new();
        outbox.write_to(&mut bytes).unwrap();
        assert!(numbers(&bytes).is_empty());
    }
}
