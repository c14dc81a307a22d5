//! An extent cut into bounded transfers, and the meaning of each outcome.
//!
//! All engines, readers and writers, share this code, so short transfers, interruptions, truncation
//! and the unaligned tail of a file mean the same everywhere.
//!
//! ```text
//! file       |....4096....|....4096....|....4096....|..tail|
//! read           [======================================)
//!   O_DIRECT [=====================================)             widened, up to the last whole block
//!   buffered                                         [==)        only the file's last, partial block
//! write                   [=============================)
//!   O_DIRECT              [===============================|      padded, if the file ends here
//!   buffered                                                     else the partial last block
//! window     ^start   ^start + head_bytes
//! ```

use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::engine::Transferred;

/// Alignment of extents in files and in memory under O_DIRECT: a multiple of every logical block
/// size in use. Files that need more are read through the page cache, with that reason.
pub const EXTENT_ALIGN_BYTES: usize = 4096;

/// The longest transfer: the ring has 32 bits for a length and takes at most this much in one
/// registered buffer.
pub(crate) const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// The actual segment size for a requested `segment_bytes`.
pub(crate) fn whole_blocks(segment_bytes: usize) -> usize {
    segment_bytes.clamp(1, TRANSFER_BYTES_MAX).next_multiple_of(EXTENT_ALIGN_BYTES)
}

/// EINTR and EAGAIN without progress are errors after this many retries.
const ATTEMPTS_MAX: u32 = 10_000;

/// Pause after EAGAIN, so that the system can recover: with [`ATTEMPTS_MAX`] retries a second or
/// more in all.
const PAUSE: Duration = Duration::from_micros(100);

/// The position of an extent's bytes in its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Offset of the first wanted byte in the window.
    pub head_bytes: usize,
    /// Length of the window: a multiple of [`EXTENT_ALIGN_BYTES`]; 0 for an empty extent.
    pub window_bytes: usize,
}

impl Placement {
    /// Placement of `bytes` bytes from `offset` of a file.
    ///
    /// # Panics
    /// If the extent ends within 8 KiB of the end of the address space; no window could hold it.
    pub fn of(offset: u64, bytes: u64) -> Placement {
        let head_bytes = (offset % EXTENT_ALIGN_BYTES as u64) as usize;
        if bytes == 0 {
            return Placement { head_bytes, window_bytes: 0 };
        }
        let window_bytes = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| bytes.checked_add(head_bytes))
            .and_then(|bytes| bytes.checked_next_multiple_of(EXTENT_ALIGN_BYTES))
            .expect("an extent is smaller than the address space");
        Placement { head_bytes, window_bytes }
    }
}

/// Through the page cache or past it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadMode {
    /// Through the page cache.
    Buffered,
    /// O_DIRECT: storage writes straight into the destination.
    Direct,
}

/// How an extent is divided between O_DIRECT and the page cache. The direct part comes first.
#[derive(Debug, Clone)]
pub struct Cut {
    /// Offset in the file of the window's first byte.
    pub base: u64,
    /// The O_DIRECT part: aligned at both ends.
    pub direct: Range<u64>,
    /// The page-cache part.
    pub buffered: Range<u64>,
    /// The window's first byte.
    pub window: *mut u8,
}

impl Cut {
    /// An extent whose part before `direct_end` uses O_DIRECT, in whole blocks starting with the
    /// block of its first byte.
    pub fn at(direct_end: u64, (offset, bytes): (u64, u64), window: *mut u8) -> Cut {
        let base = offset - offset % EXTENT_ALIGN_BYTES as u64;
        let direct_end = direct_end.max(base);
        let buffered = direct_end.max(offset)..offset + bytes;
        Cut { base, direct: base..direct_end, buffered, window }
    }

    /// The transfers, each of at most `segment_bytes` (a multiple of [`EXTENT_ALIGN_BYTES`]).
    pub fn segments(self, segment_bytes: usize) -> impl Iterator<Item = Segment> {
        let Cut { base, direct, buffered, window } = self;
        let piece = move |mode, range: Range<u64>| {
            let end = range.end;
            range.step_by(segment_bytes).map(move |at| {
                let bytes = (end - at).min(segment_bytes as u64) as usize;
                // Inside the window, whose length was compared with the extent's.
                Segment::new(mode, at, window.wrapping_add((at - base) as usize), bytes)
            })
        };
        piece(ReadMode::Direct, direct).chain(piece(ReadMode::Buffered, buffered))
    }
}

/// One transfer: at most the engine's segment size.
#[derive(Debug)]
pub struct Segment {
    pub mode: ReadMode,
    pub offset: u64,
    pub memory: *mut u8,
    pub bytes: usize,
    attempts: u32,
}

// SAFETY: the address comes from a `Window`, with the promise made at `submit` of the engine.
unsafe impl Send for Segment {}

/// The next action after an outcome.
#[derive(Debug)]
pub enum Step {
    /// All bytes of the segment were moved.
    Done,
    /// Continue: the segment now names the missing part.
    Again,
    /// The request failed.
    Failed(Fault),
}

/// Why a segment failed.
#[derive(Debug)]
pub enum Fault {
    /// No byte was moved, and the operating system reported no error.
    NothingMoved,
    /// The error of the operating system.
    Refused(io::Error),
}

impl Segment {
    pub fn new(mode: ReadMode, offset: u64, memory: *mut u8, bytes: usize) -> Segment {
        Segment { mode, offset, memory, bytes, attempts: 0 }
    }

    /// Runs attempts until the segment is complete.
    pub fn carry_out(
        &mut self,
        mut attempt: impl FnMut(&Segment) -> io::Result<usize>,
    ) -> std::result::Result<Transferred, Fault> {
        let mut tally = Transferred::default();
        loop {
            let outcome = attempt(self);
            match self.advance(outcome, &mut tally) {
                Step::Done => return Ok(tally),
                Step::Again => {}
                Step::Failed(fault) => return Err(fault),
            }
        }
    }

    /// Applies the outcome of one attempt.
    pub fn advance(&mut self, outcome: io::Result<usize>, tally: &mut Transferred) -> Step {
        match outcome {
            Ok(0) => Step::Failed(Fault::NothingMoved),
            Ok(count) => self.take(count.min(self.bytes), tally),
            Err(cause) => self.fail(cause, tally),
        }
    }

    fn take(&mut self, count: usize, tally: &mut Transferred) -> Step {
        match self.mode {
            ReadMode::Direct => tally.direct_bytes += count as u64,
            ReadMode::Buffered => tally.buffered_bytes += count as u64,
        }
        if count == self.bytes {
            return Step::Done;
        }
        tally.short += 1;
        self.attempts = 0;
        self.offset += count as u64;
        // Stays inside the window: `count` is below the segment's length.
        self.memory = self.memory.wrapping_add(count);
        self.bytes -= count;
        if !count.is_multiple_of(EXTENT_ALIGN_BYTES) {
            // No longer aligned, so O_DIRECT cannot resume here. That happens where the file (or
            // the room for it) ends, and the page cache then says exactly where.
            self.mode = ReadMode::Buffered;
        }
        Step::Again
    }

    fn fail(&mut self, cause: io::Error, tally: &mut Transferred) -> Step {
        let transient =
            matches!(cause.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock);
        if transient && self.attempts < ATTEMPTS_MAX {
            self.attempts += 1;
            if cause.kind() == io::ErrorKind::WouldBlock {
                std::thread::sleep(PAUSE);
            }
            return Step::Again;
        }
        if self.mode == ReadMode::Direct && cause.raw_os_error() == Some(libc::EINVAL) {
            tally.direct_refused_bytes += self.bytes as u64;
            self.mode = ReadMode::Buffered;
            return Step::Again;
        }
        Step::Failed(Fault::Refused(cause))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Instant;

    use super::*;

    fn refused_for(
        errno: i32,
        times: usize,
    ) -> (Duration, std::result::Result<Transferred, Fault>) {
        let mut segment = Segment::new(ReadMode::Buffered, 0, std::ptr::null_mut(), 10);
        let mut left = times;
        let begun = Instant::now();
        let outcome = segment.carry_out(|part| {
            if left == 0 {
                return Ok(part.bytes);
            }
            left -= 1;
            Err(io::Error::from_raw_os_error(errno))
        });
        (begun.elapsed(), outcome)
    }

    #[test]
    fn a_system_that_lacks_something_is_given_time() {
        let (waited, outcome) = refused_for(libc::EAGAIN, 20);
        assert_eq!(outcome.unwrap().buffered_bytes, 10);
        assert!(waited >= 20 * PAUSE, "{waited:?}");
    }

    #[test]
    fn interruptions_without_end_are_an_error() {
        let (_, outcome) = refused_for(libc::EINTR, ATTEMPTS_MAX as usize);
        assert_eq!(outcome.unwrap().buffered_bytes, 10);
        let (_, outcome) = refused_for(libc::EINTR, usize::MAX);
        assert!(matches!(outcome, Err(Fault::Refused(_))), "{outcome:?}");
    }
}
