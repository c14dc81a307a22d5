//! The source of a race's chunks: a list, or a producer that makes them on demand.

use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use crossbeam_channel::Sender;
use headrace_io::{ChunkFeed, FedChunk, ReadSpec};
use parking_lot::Mutex;

use crate::race::check;
use crate::{ChunkSpec, Race, RaceError};

/// The chunks of one run of a race: numbered, checked, and with their files recorded.
#[derive(Debug)]
pub(crate) struct Chunks<P> {
    /// `None`: they are listed.
    feed: Option<Box<dyn ChunkFeed<P>>>,
    next: usize,
    /// Whether there are no more.
    pub has_ended: bool,
    /// Whether the last look found nothing yet.
    pub is_waiting: bool,
}

impl<P: Default> Chunks<P> {
    /// # Errors
    /// [`RaceError::Feed`] if an earlier run took the race's feed.
    pub fn of(race: &Race<P>) -> Result<Self, RaceError> {
        let taken = || RaceError::Feed { source: "a race over a feed runs once".into() };
        let feed = match &race.feed {
            None => None,
            Some(feed) => Some(feed.lock().take().ok_or_else(taken)?),
        };
        Ok(Chunks { feed, next: 0, has_ended: false, is_waiting: false })
    }

    /// Whether all chunks are known at once.
    pub fn is_list(&self) -> bool {
        self.feed.is_none()
    }

    /// The next chunk of the race, `None` after the last.
    pub fn poll_next(
        &mut self,
        race: &Race<P>,
        waker: &Waker,
    ) -> Poll<Option<Result<FedChunk<P>, RaceError>>> {
        self.is_waiting = false;
        if self.has_ended {
            return Poll::Ready(None);
        }
        let number = self.next;
        let fed = match &mut self.feed {
            None => race.chunks.get(number).map(|spec| Ok(listed(race, spec))),
            Some(feed) => match feed.poll_next(waker) {
                Poll::Pending => {
                    self.is_waiting = true;
                    return Poll::Pending;
                }
                Poll::Ready(fed) => fed,
            },
        };
        let Some(fed) = fed else {
            self.has_ended = true;
            return Poll::Ready(None);
        };
        self.next += 1;
        let taken = fed.map_err(|source| RaceError::Feed { source });
        let chunk = taken.and_then(|fed| {
            if !self.is_list() {
                check(number, &fed.reads, |buffer, _| fed.files.get(buffer))?;
                race.note_files(&fed);
            }
            Ok(FedChunk { number, ..fed })
        });
        self.has_ended = chunk.is_err();
        Poll::Ready(Some(chunk))
    }
}

fn listed<P: Default>(race: &Race<P>, spec: &ChunkSpec) -> FedChunk<P> {
    let file = |read: &ReadSpec| race.files[read.file].clone();
    let files = spec.reads.iter().map(file).collect();
    FedChunk { reads: spec.reads.clone(), files, ..FedChunk::default() }
}

/// Wakes all drivers of a race when its feed has a chunk.
pub(crate) struct Bell<E> {
    ears: Mutex<Vec<Sender<E>>>,
    ring: fn() -> E,
}

impl<E: Send + 'static> Bell<E> {
    pub fn new(ring: fn() -> E) -> Arc<Bell<E>> {
        Arc::new(Bell { ears: Mutex::default(), ring })
    }

    /// Adds a waker.
    pub fn add(&self, ear: Sender<E>) {
        self.ears.lock().push(ear);
    }
}

impl<E: Send + 'static> Wake for Bell<E> {
    fn wake(self: Arc<Self>) {
        for ear in self.ears.lock().iter() {
            // Nobody listens any more once the race is over.
            let _ = ear.send((self.ring)());
        }
    }
}
