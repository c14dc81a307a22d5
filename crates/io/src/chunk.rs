//! What is read together: a chunk, from whoever makes it to whoever consumes it.
//!
//! A maker says which extents of which files are read, and adds what the consumer wants to know of them (the
//! payload). No code between maker and consumer reads the payload.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::{Placement, ReadAt};

/// An error of whoever makes or consumes chunks.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An extent of a file: one buffer of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReadSpec {
    /// Index into a list of files, or a feed's own number, the same for the same file; a file in memory may have any.
    pub file: usize,
    /// First byte.
    pub offset: u64,
    /// Length; 0 gives an empty buffer and reads nothing.
    pub bytes: u64,
}

impl ReadSpec {
    /// Bytes of a slot that can take all of these: extents are widened to blocks of
    /// [`EXTENT_ALIGN_BYTES`](crate::EXTENT_ALIGN_BYTES).
    pub fn slot_bytes_of(reads: &[ReadSpec]) -> usize {
        reads.iter().map(|read| Placement::of(read.offset, read.bytes).window_bytes).sum()
    }
}

/// Some of the lanes of a race, one for each of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lanes(u64);

impl Lanes {
    /// All, however many there are.
    pub const ALL: Self = Self(u64::MAX);

    /// None.
    pub const NONE: Self = Self(0);

    /// Whether a lane is one of them. Those beyond the first 64 are only among all.
    pub fn has(self, lane: usize) -> bool {
        self == Self::ALL || (lane < u64::BITS as usize && self.0 & (1 << lane) != 0)
    }

    /// Those that both have.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that any of both has.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The same of so many lanes: all, if all of these are among them.
    #[must_use]
    pub fn among(self, lanes: usize) -> Self {
        if self.of(lanes).count() == lanes { Self::ALL } else { self }
    }

    /// Of so many lanes those that are among them.
    pub fn of(self, lanes: usize) -> impl Iterator<Item = usize> {
        (0..lanes).filter(move |&lane| self.has(lane))
    }
}

impl Default for Lanes {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromIterator<usize> for Lanes {
    fn from_iter<T: IntoIterator<Item = usize>>(lanes: T) -> Self {
        let lanes = lanes.into_iter().filter(|&lane| lane < u64::BITS as usize);
        Self(lanes.fold(0, |all, lane| all | (1 << lane)))
    }
}

/// A chunk: the unit that a consumer gets.
#[derive(Debug, Clone, Default)]
pub struct FedChunk<P = ()> {
    /// Its place in the order of the feed, from 0 on. Whoever takes chunks counts them.
    pub number: usize,
    /// One extent per buffer, in the order in which the consumer gets them.
    pub reads: Vec<ReadSpec>,
    /// The file of each read. A file in memory ([`ReadAt::is_in_memory`]) is released when the
    /// chunk is done; the others are checked after the race.
    pub files: Vec<Arc<dyn ReadAt>>,
    /// The preferred device, if there are several; an idle one may steal the chunk. `None`: any.
    pub lane: Option<usize>,
    /// The devices that may take it when they are idle, beside the preferred one.
    pub takers: Lanes,
    /// What the consumer has to know.
    pub payload: P,
}

/// What a feed has now; `None` after the last chunk.
pub type NextChunk<P = ()> = Poll<Option<Result<FedChunk<P>, BoxError>>>;

/// Makes chunks one by one.
pub trait ChunkFeed<P = ()>: Send + fmt::Debug {
    /// The next chunk; `None` after the last. Never waits: if there is none yet, `waker` is woken
    /// when there is. Called by one thread at a time.
    ///
    /// # Errors
    /// Any failure; it ends the race. Nothing follows an error.
    fn poll_next(&mut self, waker: &Waker) -> NextChunk<P>;
}

/// Bounds of a feed before its first chunk. All are upper bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeedBounds {
    /// Wanted bytes of all chunks; `None`: unknown.
    pub bytes: Option<u64>,
    /// Number of chunks; `None`: unknown.
    pub chunks: Option<u64>,
    /// Bytes of a slot that takes the largest chunk ([`ReadSpec::slot_bytes_of`]); chunks in memory that are
    /// consumed in place do not count. A larger chunk is an error.
    pub slot_bytes: usize,
}
