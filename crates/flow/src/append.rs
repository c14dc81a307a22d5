//! Output that chunks append to sinks, in chunk order.
//!
//! ```text
//! pieces of chunks, as they become known ──► InOrder ──► Ends: places ──► whole blocks to write
//!                                                          └── the rest of a block is carried
//! ```
//!
//! A piece's position follows from the sizes of all earlier pieces, so it waits until the earlier chunks
//! are done, not until they are written. Writes are whole blocks, so they can bypass the page cache
//! whatever the sizes of the pieces: the partial last block of a piece is carried over and precedes the
//! next piece.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use headrace_io::EXTENT_ALIGN_BYTES;
use headrace_io::write::WriteAt;

use crate::{OutputSpec, RaceError};

/// Bytes before a piece in its window that suffice for the carried bytes.
pub(crate) const HEADROOM_BYTES: usize = EXTENT_ALIGN_BYTES;

/// Results of chunks, released in chunk order.
#[derive(Debug)]
pub(crate) struct InOrder<T> {
    /// The first chunk that is not done.
    oldest: usize,
    /// By chunk, oldest first.
    chunks: BTreeMap<usize, Made<T>>,
    /// The results of this chunk and later ones are discarded.
    end: usize,
}

#[derive(Debug)]
struct Made<T> {
    waiting: VecDeque<T>,
    is_done: bool,
}

impl<T> Default for Made<T> {
    fn default() -> Self {
        Made { waiting: VecDeque::new(), is_done: false }
    }
}

impl<T> InOrder<T> {
    pub fn new() -> Self {
        InOrder { oldest: 0, chunks: BTreeMap::new(), end: usize::MAX }
    }

    /// Another result of a chunk.
    pub fn add(&mut self, chunk: usize, made: T) {
        self.chunks.entry(chunk).or_default().waiting.push_back(made);
    }

    /// A chunk has no more results. Must be called once for each chunk, also for one without
    /// results.
    pub fn done(&mut self, chunk: usize) {
        self.chunks.entry(chunk).or_default().is_done = true;
    }

    /// A chunk was not processed: its results, and those of later chunks, past and future, are not
    /// released.
    pub fn end_before(&mut self, chunk: usize) {
        self.end = self.end.min(chunk);
    }

    /// Whether all chunks before such an end are done, so nothing is pending.
    pub fn is_over(&self) -> bool {
        self.oldest >= self.end
    }

    /// The discarded results.
    pub fn take_rest(&mut self) -> Vec<T> {
        let rest = self.chunks.range_mut(self.end..);
        rest.flat_map(|(_, made)| made.waiting.drain(..)).collect()
    }

    /// The next result whose predecessors are known.
    pub fn next(&mut self) -> Option<T> {
        while self.oldest < self.end {
            let made = self.chunks.get_mut(&self.oldest)?;
            if let Some(next) = made.waiting.pop_front() {
                return Some(next);
            }
            if !made.is_done {
                return None;
            }
            self.chunks.remove(&self.oldest);
            self.oldest += 1;
        }
        None
    }

    /// The first chunk that is not done: its results are released at once.
    pub fn oldest(&self) -> usize {
        self.oldest
    }
}

/// The ends of the sinks.
#[derive(Debug)]
pub(crate) struct Ends(Vec<End>);

#[derive(Debug)]
struct End {
    sink: Arc<dyn WriteAt>,
    bytes: u64,
    /// The unwritten part of the last block, once it is known.
    carried: Vec<u8>,
}

/// The position of a piece, from the previous end of its sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    pub sink: usize,
    offset: u64,
    pub bytes: usize,
}

impl Placed {
    /// Bytes of the sink's block before the piece: its offset in its window.
    pub fn head_bytes(&self) -> usize {
        (self.offset % EXTENT_ALIGN_BYTES as u64) as usize
    }

    /// Bytes of the window that it takes, in whole blocks of the sink.
    pub fn window_bytes(&self) -> usize {
        match self.bytes {
            0 => 0,
            bytes => (self.head_bytes() + bytes).next_multiple_of(EXTENT_ALIGN_BYTES),
        }
    }
}

impl Ends {
    pub fn new(sinks: &[Arc<dyn WriteAt>]) -> Self {
        let end = |sink: &Arc<dyn WriteAt>| {
            sink.sink().grow();
            let carried = Vec::with_capacity(EXTENT_ALIGN_BYTES);
            End { sink: Arc::clone(sink), bytes: 0, carried }
        };
        Ends(sinks.iter().map(end).collect())
    }

    /// Places a chunk's next piece at the end of its sink.
    ///
    /// # Errors
    /// [`RaceError::BadOutput`] if there is no such sink, or it has a fixed size and no room.
    pub fn extend(&mut self, chunk: usize, sink: usize, bytes: usize) -> Result<Placed, RaceError> {
        let sinks = self.0.len();
        let bad = |what| RaceError::BadOutput { chunk, what };
        let end = self.0.get_mut(sink).ok_or_else(|| bad(format!("sink {sink} of {sinks}")))?;
        let (offset, size_bytes) = (end.bytes, end.sink.size_bytes());
        let over_bytes = (offset + bytes as u64).saturating_sub(size_bytes);
        if over_bytes > 0 {
            let path = end.sink.path().display();
            return Err(bad(format!("{over_bytes} bytes more than the {size_bytes} of {path}")));
        }
        end.bytes += bytes as u64;
        Ok(Placed { sink, offset, bytes })
    }

    /// Prepends the carried bytes to a piece, which lies at its place in the window, and carries its partial last
    /// block. Pieces must come in the order in which they were placed. Returns the bytes to write, from the
    /// window's start; empty if all of it is carried.
    pub fn complete(&mut self, piece: &Placed, window: &mut [u8]) -> Option<OutputSpec> {
        let End { carried, .. } = &mut self.0[piece.sink];
        let head = piece.head_bytes();
        assert_eq!(head, carried.len(), "pieces come in the order of their places");
        window[..head].copy_from_slice(carried);
        let all = head + piece.bytes;
        let whole = all / EXTENT_ALIGN_BYTES * EXTENT_ALIGN_BYTES;
        carried.clear();
        carried.extend_from_slice(&window[whole..all]);
        let offset = piece.offset - head as u64;
        (whole > 0).then_some(OutputSpec { sink: piece.sink, offset, bytes: whole as u64 })
    }

    /// Fixes the end of a sink; the carried bytes are to be written, from the window's start.
    pub fn finish(&mut self, sink: usize, window: &mut [u8]) -> Option<OutputSpec> {
        let End { sink: file, bytes, carried } = &mut self.0[sink];
        file.sink().end_at(*bytes);
        let left = carried.len();
        window[..left].copy_from_slice(carried);
        carried.clear();
        let offset = *bytes - left as u64;
        (left > 0).then_some(OutputSpec { sink, offset, bytes: left as u64 })
    }

    /// Bytes of each sink.
    pub fn bytes(&self) -> Vec<u64> {
        self.0.iter().map(|end| end.bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_come_in_the_order_of_their_chunks_up_to_the_first_that_was_not_worked_on() {
        let mut order = InOrder::new();
        order.add(1, "1a");
        order.done(1);
        assert_eq!((order.next(), order.oldest()), (None, 0));
        order.add(0, "0a");
        assert_eq!((order.next(), order.next()), (Some("0a"), None));
        order.done(0);
        order.add(3, "3a");
        order.done(3);
        assert_eq!((order.next(), order.next(), order.oldest()), (Some("1a"), None, 2));
        order.end_before(2);
        order.add(2, "2a");
        assert!(order.is_over() && order.next().is_none());
        assert_eq!(order.take_rest(), ["2a", "3a"]);
    }
}
