//! Chunks are begun in order, at most a bounded number ahead of the summed ones. A thread that is done with one
//! never waits for another, and the waiting sums are bounded.

use std::sync::Arc;
use std::task::{Poll, Waker};

use headrace_flow::{ChunkFeed, FedChunk, FeedBounds, NextChunk};
use headrace_io::ReadAt;
use parking_lot::Mutex;

use super::plan::Plan;

/// The progress of the sums, for the thread that begins chunks.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Maximum of chunks begun and not summed.
    window: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The first chunk that is not summed.
    next: usize,
    waker: Option<Waker>,
}

impl Turns {
    pub fn new(window: usize) -> Arc<Turns> {
        Arc::new(Turns { window, state: Mutex::new(State { next: 0, waker: None }) })
    }

    /// Maximum of chunks begun and not summed.
    pub fn window(&self) -> usize {
        self.window
    }

    /// All chunks before this one are summed.
    pub fn advance(&self, next: usize) {
        let waker = {
            let mut state = self.state.lock();
            state.next = next;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether a chunk may be begun; if not, `waker` is woken when it may.
    fn may_begin(&self, chunk: usize, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        let may = chunk < state.next + self.window;
        if !may {
            state.waker = Some(waker.clone());
        }
        may
    }
}

/// The chunks of a matrix, released by turn.
#[derive(Debug)]
pub(crate) struct Feed {
    plan: Plan,
    file: Arc<dyn ReadAt>,
    turns: Arc<Turns>,
    given: usize,
}

impl Feed {
    pub fn new(plan: Plan, file: Arc<dyn ReadAt>, turns: Arc<Turns>) -> Feed {
        Feed { plan, file, turns, given: 0 }
    }

    pub fn bounds(&self, bytes: u64) -> FeedBounds {
        let (chunks, slot_bytes) = (Some(self.plan.chunks() as u64), self.plan.slot_bytes());
        FeedBounds { bytes: Some(bytes), chunks, slot_bytes }
    }
}

impl ChunkFeed for Feed {
    fn poll_next(&mut self, waker: &Waker) -> NextChunk {
        let chunk = self.given;
        if chunk == self.plan.chunks() {
            return Poll::Ready(None);
        }
        if !self.turns.may_begin(chunk, waker) {
            return Poll::Pending;
        }
        self.given += 1;
        let reads = self.plan.spec(chunk).reads;
        let files = vec![self.file.clone(); reads.len()];
        Poll::Ready(Some(Ok(FedChunk { reads, files, ..FedChunk::default() })))
    }
}
