//! The source of a race's chunks: a list, or a producer that makes them on demand.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use crossbeam_channel::Sender;
use headrace_io::ReadAt;
use parking_lot::Mutex;

use crate::{BoxError, ChunkSpec, Race, RaceError, ReadSpec};

/// Makes the chunks of a race one by one, numbered from 0.
pub trait ChunkFeed: Send + fmt::Debug {
    /// The next chunk; `None` after the last. Never waits: if there is none yet, `waker` is woken
    /// when there is. Called by the threads that drive reads, one at a time.
    ///
    /// # Errors
    /// Any failure; it ends the race with [`RaceError::Feed`].
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<FedChunk, BoxError>>>;
}

/// A chunk from a feed.
#[derive(Debug, Clone, Default)]
pub struct FedChunk {
    /// The reads. [`ReadSpec::file`] is the feed's own number, the same for the same file; a file
    /// in memory may have any.
    pub spec: ChunkSpec,
    /// The file of each read. A file in memory ([`ReadAt::is_in_memory`]) is released when the
    /// chunk is done; the others are checked after the race.
    pub files: Vec<Arc<dyn ReadAt>>,
    /// The preferred lane; an idle lane may steal the chunk. `None`: [`Affinity`] decides.
    ///
    /// [`Affinity`]: crate::Affinity
    pub lane: Option<usize>,
    /// Whether no other lane may take it, even when idle: it leaves data on that lane's device that
    /// later races look for there.
    pub is_bound: bool,
}

/// Bounds of a feed before its first chunk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeedBounds {
    /// Upper bound of the wanted bytes of all chunks, if known.
    pub bytes: Option<u64>,
    /// Upper bound of the number of chunks, if known.
    pub chunks: Option<u64>,
    /// Upper bound of [`ChunkSpec::slot_bytes`]; chunks in memory that are consumed in place do not
    /// count. A larger chunk is an error.
    pub slot_bytes: usize,
}

impl FeedBounds {
    /// Of a list of chunks.
    pub(crate) fn of(chunks: &[ChunkSpec]) -> FeedBounds {
        FeedBounds {
            bytes: Some(chunks.iter().map(ChunkSpec::bytes).sum()),
            chunks: Some(chunks.len() as u64),
            slot_bytes: chunks.iter().map(ChunkSpec::slot_bytes).max().unwrap_or(0),
        }
    }
}

/// A chunk in process.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub number: usize,
    pub reads: Vec<ReadSpec>,
    /// By read.
    pub files: Vec<Arc<dyn ReadAt>>,
    pub lane: Option<usize>,
    pub is_bound: bool,
}

/// The chunks of one run of a race: numbered, checked, and with their files recorded.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// `None`: they are listed.
    feed: Option<Box<dyn ChunkFeed>>,
    next: usize,
    /// Whether there are no more.
    pub has_ended: bool,
    /// Whether the last look found nothing yet.
    pub is_waiting: bool,
}

impl Chunks {
    /// # Errors
    /// [`RaceError::Feed`] if an earlier run took the race's feed.
    pub fn of(race: &Race) -> Result<Chunks, RaceError> {
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
        race: &Race,
        waker: &Waker,
    ) -> Poll<Option<Result<Chunk, RaceError>>> {
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
        let chunk = taken.and_then(|fed| self.taken(race, number, fed));
        self.has_ended = chunk.is_err();
        Poll::Ready(Some(chunk))
    }

    fn taken(&self, race: &Race, number: usize, fed: FedChunk) -> Result<Chunk, RaceError> {
        let FedChunk { spec, files, lane, is_bound } = fed;
        if !self.is_list() {
            check(number, &spec, |buffer, _| files.get(buffer))?;
            race.note_files(&spec, &files);
        }
        Ok(Chunk { number, reads: spec.reads, files, lane, is_bound })
    }
}

fn listed(race: &Race, spec: &ChunkSpec) -> FedChunk {
    let file = |read: &ReadSpec| race.files[read.file].clone();
    let files = spec.reads.iter().map(file).collect();
    FedChunk { spec: spec.clone(), files, ..FedChunk::default() }
}

/// Error unless every read lies inside of its file.
pub(crate) fn check<'f>(
    chunk: usize,
    spec: &ChunkSpec,
    file_of: impl Fn(usize, &ReadSpec) -> Option<&'f Arc<dyn ReadAt>>,
) -> Result<(), RaceError> {
    for (buffer, read) in spec.reads.iter().enumerate() {
        let bad = |what| Err(RaceError::BadChunk { chunk, buffer, what });
        let Some(file) = file_of(buffer, read) else {
            return bad(format!("there is no file {}", read.file));
        };
        let end = read.offset.checked_add(read.bytes);
        let inside = match file.is_in_memory() {
            true => read.bytes == 0 || file.bytes_in_memory(read.offset, read.bytes).is_some(),
            false => end.is_some_and(|end| end <= file.size_bytes()),
        };
        if !inside {
            let (path, size_bytes) = (file.path().display(), file.size_bytes());
            return bad(format!(
                "{} bytes at offset {} do not lie inside {path} of {size_bytes} bytes",
                read.bytes, read.offset,
            ));
        }
    }
    Ok(())
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
