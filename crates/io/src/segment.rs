//! An extent cut into reads of bounded size, and what each outcome of such a read means.
//!
//! All engines share this code, so that short reads, interruptions, truncation and the unaligned
//! tail of a file mean the same whoever reads.
//!
//! ```text
//! file       |....4096....|....4096....|....4096....|..tail|
//! extent              [============================)
//! O_DIRECT   [=====================================)             widened, up to the last whole block
//! buffered                                         [==)          only the file's last, partial block
//! window     ^start   ^start + head_bytes
//! ```

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::{Completion, IoError, ReadAt, ReadDone, ReadMode, ReadRequest, Result};

/// Alignment of extents in files and in memory under O_DIRECT: a multiple of every logical block
/// size in use. Files that ask for more are read through the page cache, with that reason.
pub const EXTENT_ALIGN_BYTES: usize = 4096;

/// EINTR and EAGAIN without a byte of progress are retried this often before they are an error.
const ATTEMPTS_MAX: u32 = 10_000;

/// Where the bytes of an extent lie in the window it is read into.
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
    /// If the extent is within 8 KiB of the address space's size; no window could take it.
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

/// One read: at most the engine's segment size.
#[derive(Debug)]
pub(crate) struct Segment {
    pub mode: ReadMode,
    pub offset: u64,
    pub into: *mut u8,
    pub bytes: usize,
    attempts: u32,
}

// SAFETY: the address comes from a `Window`, with the promise made at `ReadEngine::submit`.
unsafe impl Send for Segment {}

/// What to do after an outcome.
#[derive(Debug)]
pub(crate) enum Step {
    /// All bytes of the segment are there.
    Done,
    /// Read on: the segment now names what is missing.
    Again,
    /// The request failed.
    Failed(IoError),
}

impl Segment {
    fn new(mode: ReadMode, offset: u64, into: *mut u8, bytes: usize) -> Segment {
        Segment { mode, offset, into, bytes, attempts: 0 }
    }

    /// Takes the outcome of one read of this segment into account.
    pub fn advance(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        outcome: io::Result<usize>,
        done: &mut ReadDone,
    ) -> Step {
        match outcome {
            Ok(0) => Step::Failed(IoError::UnexpectedEnd {
                path: file.path().to_path_buf(),
                offset: self.offset,
                missing_bytes: self.bytes as u64,
            }),
            Ok(count) => self.take(count.min(self.bytes), done),
            Err(cause) => self.fail(file, cause, done),
        }
    }

    fn take(&mut self, count: usize, done: &mut ReadDone) -> Step {
        match self.mode {
            ReadMode::Direct => done.direct_bytes += count as u64,
            ReadMode::Buffered => done.buffered_bytes += count as u64,
        }
        if count == self.bytes {
            return Step::Done;
        }
        done.short_reads += 1;
        self.attempts = 0;
        self.offset += count as u64;
        // Stays inside the window: `count` is below the segment's length.
        self.into = self.into.wrapping_add(count);
        self.bytes -= count;
        if !count.is_multiple_of(EXTENT_ALIGN_BYTES) {
            // No longer aligned, so O_DIRECT cannot resume here. That happens where the file
            // ends, and the page cache then says exactly where.
            self.mode = ReadMode::Buffered;
        }
        Step::Again
    }

    fn fail(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        cause: io::Error,
        done: &mut ReadDone,
    ) -> Step {
        let transient =
            matches!(cause.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock);
        if transient && self.attempts < ATTEMPTS_MAX {
            self.attempts += 1;
            return Step::Again;
        }
        if self.mode == ReadMode::Direct && cause.raw_os_error() == Some(libc::EINVAL) {
            done.direct_refused_bytes += self.bytes as u64;
            self.mode = ReadMode::Buffered;
            return Step::Again;
        }
        Step::Failed(IoError::Read {
            path: file.path().to_path_buf(),
            offset: self.offset,
            bytes: self.bytes as u64,
            cause,
        })
    }
}

/// Cuts a checked request into segments of at most `segment_bytes` (a multiple of
/// [`EXTENT_ALIGN_BYTES`]).
pub(crate) fn segments(
    request: &ReadRequest,
    segment_bytes: usize,
) -> impl Iterator<Item = Segment> + use<> {
    let align = EXTENT_ALIGN_BYTES as u64;
    let (offset, end) = (request.offset, request.offset + request.bytes);
    let base = offset - offset % align;
    let window = request.window.start;
    let whole_blocks_end = request.file.size_bytes() / align * align;
    let direct_end = match request.mode {
        ReadMode::Direct if end > offset => end.next_multiple_of(align).min(whole_blocks_end),
        _ => base,
    }
    .max(base);
    let direct =
        cut(base, direct_end, segment_bytes).map(|(at, bytes)| (ReadMode::Direct, at, bytes));
    let buffered = cut(direct_end.max(offset), end, segment_bytes)
        .map(|(at, bytes)| (ReadMode::Buffered, at, bytes));
    direct.chain(buffered).map(move |(mode, at, bytes)| {
        // Inside the window: `at - base` is below its length, which `ReadRequest::check` saw.
        Segment::new(mode, at, window.wrapping_add((at - base) as usize), bytes)
    })
}

fn cut(start: u64, end: u64, piece_bytes: usize) -> impl Iterator<Item = (u64, usize)> {
    (start..end.max(start))
        .step_by(piece_bytes)
        .map(move |at| (at, (end - at).min(piece_bytes as u64) as usize))
}

/// A request under way: shared by its segments.
#[derive(Debug)]
pub(crate) struct Pending {
    pub request: ReadRequest,
    submitted: Instant,
    segments_left: AtomicUsize,
    failed: AtomicBool,
    first_error: Mutex<Option<IoError>>,
    direct_bytes: AtomicU64,
    buffered_bytes: AtomicU64,
    direct_refused_bytes: AtomicU64,
    short_reads: AtomicU64,
}

impl Pending {
    /// A request of `segments` segments (at least 1).
    pub fn new(request: ReadRequest, segments: usize) -> Pending {
        Pending {
            request,
            submitted: Instant::now(),
            segments_left: AtomicUsize::new(segments),
            failed: AtomicBool::new(false),
            first_error: Mutex::new(None),
            direct_bytes: AtomicU64::new(0),
            buffered_bytes: AtomicU64::new(0),
            direct_refused_bytes: AtomicU64::new(0),
            short_reads: AtomicU64::new(0),
        }
    }

    /// Whether a segment failed already: the others need not be read any more.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Records the end of a segment; the completion, if it was the last one.
    pub fn segment_ended(&self, result: Result<ReadDone>) -> Option<Completion> {
        match result {
            Ok(done) => {
                self.direct_bytes.fetch_add(done.direct_bytes, Ordering::Relaxed);
                self.buffered_bytes.fetch_add(done.buffered_bytes, Ordering::Relaxed);
                self.direct_refused_bytes.fetch_add(done.direct_refused_bytes, Ordering::Relaxed);
                self.short_reads.fetch_add(done.short_reads, Ordering::Relaxed);
            }
            Err(error) => {
                self.first_error.lock().get_or_insert(error);
                self.failed.store(true, Ordering::Release);
            }
        }
        // AcqRel: whoever takes the last one sees what all others wrote.
        (self.segments_left.fetch_sub(1, Ordering::AcqRel) == 1).then(|| self.completion())
    }

    /// The error that ends segments which are not begun any more.
    pub fn cancelled(&self, segment: &Segment) -> IoError {
        IoError::Cancelled { path: self.request.file.path().to_path_buf(), offset: segment.offset }
    }

    fn completion(&self) -> Completion {
        let result = match self.first_error.lock().take() {
            Some(error) => Err(error),
            None => Ok(ReadDone {
                direct_bytes: self.direct_bytes.load(Ordering::Relaxed),
                buffered_bytes: self.buffered_bytes.load(Ordering::Relaxed),
                direct_refused_bytes: self.direct_refused_bytes.load(Ordering::Relaxed),
                short_reads: self.short_reads.load(Ordering::Relaxed),
            }),
        };
        Completion {
            tag: self.request.tag,
            result,
            latency_ns: self.submitted.elapsed().as_nanos() as u64,
        }
    }
}

/// A completion for a request that never became segments.
pub(crate) fn immediate(request: &ReadRequest, result: Result<ReadDone>) -> Completion {
    Completion { tag: request.tag, result, latency_ns: 0 }
}

/// See [`ReadAt::read_exact_at`].
pub(crate) fn read_exact(
    file: &(impl ReadAt + ?Sized),
    offset: u64,
    into: &mut [u8],
) -> Result<()> {
    let bytes = into.len() as u64;
    let size_bytes = file.size_bytes();
    if offset.checked_add(bytes).is_none_or(|end| end > size_bytes) {
        return Err(IoError::OutOfRange {
            path: file.path().to_path_buf(),
            offset,
            bytes,
            size_bytes,
        });
    }
    if into.is_empty() {
        return Ok(());
    }
    let mut segment = Segment::new(ReadMode::Buffered, offset, into.as_mut_ptr(), into.len());
    // SAFETY: the segment is exactly `into`, which is borrowed exclusively.
    unsafe { read_segment(file, &mut segment) }.map(|_| ())
}

/// Reads a segment by calls of [`ReadAt::read_at`] until it is complete.
///
/// # Safety
/// The segment's memory must be valid for writes and used by nobody else.
pub(crate) unsafe fn read_segment(
    file: &(impl ReadAt + ?Sized),
    segment: &mut Segment,
) -> Result<ReadDone> {
    let mut done = ReadDone::default();
    loop {
        // SAFETY: the caller's promise; `advance` only ever shrinks the segment. The memory is
        // initialised: it is anonymous memory or a slice.
        let into = unsafe { std::slice::from_raw_parts_mut(segment.into, segment.bytes) };
        let outcome = file.read_at(segment.mode, segment.offset, into);
        match segment.advance(file, outcome, &mut done) {
            Step::Done => return Ok(done),
            Step::Again => {}
            Step::Failed(error) => return Err(error),
        }
    }
}
