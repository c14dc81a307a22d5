//! What chunks append to sinks, in the order of the chunks.
//!
//! ```text
//! pieces of chunks, as consumers fill them ──► waiting, by chunk ──► in order ──► whole blocks to write
//!                                                                       └── the rest of a block is carried
//! ```
//!
//! A piece's place follows from the sizes of all before it, so it waits until those are known: until the
//! chunks before its own are done, not until they are written. Writes are of whole blocks, so that they
//! may go past the page cache whatever the sizes of the pieces: what a piece leaves of its last block is
//! carried, and stands before the next piece.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use headrace_io::EXTENT_ALIGN_BYTES;
use headrace_io::write::WriteAt;

use crate::{OutputSpec, RaceError};

/// Bytes before a piece in its window: what is carried is less than a block.
pub(crate) const HEADROOM_BYTES: usize = EXTENT_ALIGN_BYTES;

/// A window of the output ring whose bytes from [`HEADROOM_BYTES`] on are to be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub chunk: usize,
    pub window: usize,
    pub sink: usize,
    pub bytes: usize,
}

/// Puts pieces in order.
#[derive(Debug)]
pub(crate) struct Appender {
    /// The first chunk that is not done.
    oldest: usize,
    /// By chunk, from the oldest on.
    chunks: BTreeMap<usize, Pieces>,
    ends: Vec<End>,
}

#[derive(Debug, Default)]
struct Pieces {
    waiting: VecDeque<Piece>,
    is_done: bool,
}

/// Where a sink ends so far, and what of its last block is not written.
#[derive(Debug)]
struct End {
    sink: Arc<dyn WriteAt>,
    bytes: u64,
    carried: Vec<u8>,
}

impl Appender {
    pub fn new(sinks: &[Arc<dyn WriteAt>]) -> Self {
        let end = |sink: &Arc<dyn WriteAt>| End {
            sink: Arc::clone(sink),
            bytes: 0,
            carried: Vec::with_capacity(EXTENT_ALIGN_BYTES),
        };
        Appender { oldest: 0, chunks: BTreeMap::new(), ends: sinks.iter().map(end).collect() }
    }

    /// A chunk's next piece.
    pub fn add(&mut self, piece: Piece) {
        self.chunks.entry(piece.chunk).or_default().waiting.push_back(piece);
    }

    /// A chunk has no more pieces. Must be said once of each, also of one without any.
    pub fn done(&mut self, chunk: usize) {
        self.chunks.entry(chunk).or_default().is_done = true;
    }

    /// The next piece whose place is known; to be [placed](Appender::place) before the next is asked for.
    pub fn next(&mut self) -> Option<Piece> {
        loop {
            let pieces = self.chunks.get_mut(&self.oldest)?;
            if let Some(piece) = pieces.waiting.pop_front() {
                return Some(piece);
            }
            if !pieces.is_done {
                return None;
            }
            self.chunks.remove(&self.oldest);
            self.oldest += 1;
        }
    }

    /// The first chunk that is not done: what it appends can be written at once.
    pub fn oldest(&self) -> usize {
        self.oldest
    }

    /// Moves a piece to where the blocks of its sink begin in the window, behind what was carried, and
    /// carries what does not fill a block. What is to be written from the window's start on; nothing if
    /// all of it is carried.
    ///
    /// # Errors
    /// [`RaceError::BadOutput`] for a piece that ends behind the end of a sink of a known size.
    pub fn place(
        &mut self,
        piece: &Piece,
        window: &mut [u8],
    ) -> Result<Option<OutputSpec>, RaceError> {
        let End { sink, bytes: end, carried } = &mut self.ends[piece.sink];
        let all = carried.len() + piece.bytes;
        let offset = *end - carried.len() as u64;
        if offset + all as u64 > sink.size_bytes() {
            let (path, size_bytes) = (sink.path().display(), sink.size_bytes());
            let what = format!(
                "{} bytes more than the {size_bytes} of {path}",
                offset + all as u64 - size_bytes
            );
            return Err(RaceError::BadOutput { chunk: piece.chunk, what });
        }
        window.copy_within(HEADROOM_BYTES..HEADROOM_BYTES + piece.bytes, carried.len());
        window[..carried.len()].copy_from_slice(carried);
        *end += piece.bytes as u64;
        let whole = all / EXTENT_ALIGN_BYTES * EXTENT_ALIGN_BYTES;
        carried.clear();
        carried.extend_from_slice(&window[whole..all]);
        let to = OutputSpec { sink: piece.sink, offset, bytes: whole as u64 };
        Ok((whole > 0).then_some(to))
    }

    /// What is still carried for a sink, of which nothing more comes, is to be written from the window's
    /// start on. Says where the sink ends.
    pub fn finish(&mut self, sink: usize, window: &mut [u8]) -> Option<OutputSpec> {
        let End { sink: to, bytes, carried } = &mut self.ends[sink];
        to.sink().end_at(*bytes);
        let left = carried.len();
        window[..left].copy_from_slice(carried);
        carried.clear();
        (left > 0).then(|| OutputSpec { sink, offset: *bytes - left as u64, bytes: left as u64 })
    }

    /// Where each sink ends.
    pub fn ends(&self) -> Vec<u64> {
        self.ends.iter().map(|end| end.bytes).collect()
    }
}
