//! Sources of batches: a stream that never waits, and a queue for producers that do.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use arrow_array::RecordBatch;

/// An error of a producer: any error that can be sent between threads.
pub type ProducerError = Box<dyn Error + Send + Sync>;

/// Delivers record batches of one schema, each once.
pub trait BatchStream: Send {
    /// The next batch; `None` after the last. Must not wait, because threads that drive reads call
    /// it. If there is none yet, `waker` (that of the last call) is woken when there is.
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<RecordBatch, ProducerError>>>;
}

impl<S: BatchStream + ?Sized> BatchStream for Box<S> {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<RecordBatch, ProducerError>>> {
        (**self).poll_next(waker)
    }
}

/// Batches that exist already, or are made without waiting.
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

/// A queue of at most `batches_max` (at least 1) batches between a producer on its own thread and a
/// run: the producer waits while it is full.
pub fn batch_channel(batches_max: usize) -> (BatchSender, BatchReceiver) {
    channel(batches_max)
}

/// Like [`batch_channel`], for any items.
pub fn channel<T>(items_max: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        items_max: items_max.max(1),
        state: Mutex::new(State {
            items: VecDeque::new(),
            end: None,
            is_abandoned: false,
            waker: None,
        }),
        taken: Condvar::new(),
    });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared })
}

struct Shared<T> {
    items_max: usize,
    state: Mutex<State<T>>,
    /// An item was taken, or the consumer is gone.
    taken: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    /// How the producer ended.
    end: Option<Result<(), ProducerError>>,
    is_abandoned: bool,
    waker: Option<Waker>,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, how: Result<(), ProducerError>) {
        let mut state = self.state();
        state.end.get_or_insert(how);
        wake(state);
    }
}

/// Wakes the waiters after a change.
fn wake<T>(mut state: MutexGuard<'_, State<T>>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The producer's end. Dropped without [`finish`](Self::finish), for example by a panic, it makes
/// the run fail: a part of the batches must never be taken for all of them.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Of batches.
pub type BatchSender = Sender<RecordBatch>;

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({} wait)", self.shared.state().items.len())
    }
}

impl<T> Sender<T> {
    /// Hands one over, waiting while the queue is full; `false` if the consumer is gone.
    pub fn send(&self, item: T) -> bool {
        let mut state = self.shared.state();
        while state.items.len() >= self.shared.items_max && !state.is_abandoned {
            state = self.shared.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_abandoned {
            return false;
        }
        state.items.push_back(item);
        wake(state);
        true
    }

    /// The end of the items.
    pub fn finish(self) {
        self.shared.end(Ok(()));
    }

    /// The end by an error: the run fails with it.
    pub fn fail(self, error: impl Into<ProducerError>) {
        self.shared.end(Err(error.into()));
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.end(Err("the producer went away before the end of its batches".into()));
    }
}

/// The run's end. When dropped, it tells a waiting producer that no more items are wanted.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

/// Of batches.
pub type BatchReceiver = Receiver<RecordBatch>;

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({} wait)", self.shared.state().items.len())
    }
}

impl<T> Receiver<T> {
    /// The next one; see [`BatchStream::poll_next`].
    pub fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<T, ProducerError>>> {
        let mut state = self.shared.state();
        if let Some(item) = state.items.pop_front() {
            self.shared.taken.notify_one();
            return Poll::Ready(Some(Ok(item)));
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

impl BatchStream for BatchReceiver {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<RecordBatch, ProducerError>>> {
        Receiver::poll_next(self, waker)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_abandoned = true;
        state.items.clear();
        drop(state);
        self.shared.taken.notify_all();
    }
}
