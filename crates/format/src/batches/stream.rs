//! Where batches come from: a stream that never waits, and a queue for producers that do.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use arrow_array::RecordBatch;

/// An error of a producer: any error that can be sent between threads.
pub type ProducerError = Box<dyn Error + Send + Sync>;

/// Gives record batches, of one schema, each once.
pub trait BatchStream: Send {
    /// The next batch; `None` after the last. Must not wait: it is called by threads that drive
    /// reads. Where there is nothing yet, `waker` (that of the last call) is woken when there is.
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<RecordBatch, ProducerError>>>;
}

impl<S: BatchStream + ?Sized> BatchStream for Box<S> {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<RecordBatch, ProducerError>>> {
        (**self).poll_next(waker)
    }
}

/// Batches that are there already, or are made without waiting.
#[derive(Debug)]
pub struct Ready<I>(pub I);

impl<I> BatchStream for Ready<I>
where
    I: Iterator<Item = Result<RecordBatch, ProducerError>> + Send,
{
    fn poll_next(&mut self, _waker: &Waker) -> Poll<Option<Result<RecordBatch, ProducerError>>> {
        Poll::Ready(self.0.next())
    }
}

/// A queue of at most `batches_max` (at least 1) batches between a producer with a thread of its own
/// and a run: the producer waits while it is full.
pub fn batch_channel(batches_max: usize) -> (BatchSender, BatchReceiver) {
    let shared = Arc::new(Shared {
        batches_max: batches_max.max(1),
        state: Mutex::default(),
        taken: Condvar::new(),
    });
    (BatchSender { shared: Arc::clone(&shared) }, BatchReceiver { shared })
}

struct Shared {
    batches_max: usize,
    state: Mutex<State>,
    /// A batch was taken, or nobody takes any more.
    taken: Condvar,
}

#[derive(Default)]
struct State {
    batches: VecDeque<RecordBatch>,
    /// How the producer ended.
    end: Option<Result<(), ProducerError>>,
    is_abandoned: bool,
    waker: Option<Waker>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, how: Result<(), ProducerError>) {
        let mut state = self.state();
        state.end.get_or_insert(how);
        wake(state);
    }
}

/// Wakes who waits for what was changed.
fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The producer's end. Dropped without [`finish`](Self::finish), by a panic say, it makes the run
/// fail: part of the batches must never be taken for all of them.
pub struct BatchSender {
    shared: Arc<Shared>,
}

impl fmt::Debug for BatchSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchSender({} batches wait)", self.shared.state().batches.len())
    }
}

impl BatchSender {
    /// Hands a batch over, waiting while the queue is full; `false` if nobody wants any more.
    pub fn send(&self, batch: RecordBatch) -> bool {
        let mut state = self.shared.state();
        while state.batches.len() >= self.shared.batches_max && !state.is_abandoned {
            state = self.shared.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_abandoned {
            return false;
        }
        state.batches.push_back(batch);
        wake(state);
        true
    }

    /// There are no more.
    pub fn finish(self) {
        self.shared.end(Ok(()));
    }

    /// There are no more because of an error: the run fails with it.
    pub fn fail(self, error: impl Into<ProducerError>) {
        self.shared.end(Err(error.into()));
    }
}

impl Drop for BatchSender {
    fn drop(&mut self) {
        self.shared.end(Err("the producer went away before the end of its batches".into()));
    }
}

/// The run's end. Dropped, it lets a producer that waits know that nobody wants any more.
pub struct BatchReceiver {
    shared: Arc<Shared>,
}

impl fmt::Debug for BatchReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchReceiver({} batches wait)", self.shared.state().batches.len())
    }
}

impl BatchStream for BatchReceiver {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<RecordBatch, ProducerError>>> {
        let mut state = self.shared.state();
        if let Some(batch) = state.batches.pop_front() {
            self.shared.taken.notify_one();
            return Poll::Ready(Some(Ok(batch)));
        }
        match &mut state.end {
            None => {
                state.waker = Some(waker.clone());
                Poll::Pending
            }
            // An error is told once.
            Some(end) => match std::mem::replace(end, Ok(())) {
                Ok(()) => Poll::Ready(None),
                Err(error) => Poll::Ready(Some(Err(error))),
            },
        }
    }
}

impl Drop for BatchReceiver {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_abandoned = true;
        state.batches.clear();
        drop(state);
        self.shared.taken.notify_all();
    }
}
