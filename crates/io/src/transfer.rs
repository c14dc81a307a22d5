//! The part of reading and writing that engines share.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use io_uring::{squeue, types};
use parking_lot::Mutex;

use crate::engine::{Completion, CompletionSink, Transferred, Window};
use crate::segment::{Cut, Fault, Segment};
use crate::{IoError, Placement, ReadMode, Result};

/// Delivers completions to a sink.
pub(crate) struct Outlet(CompletionSink);

impl Outlet {
    pub fn new(sink: CompletionSink) -> Self {
        Outlet(sink)
    }

    /// Delivers on a thread of the engine. A panic ends here; otherwise the thread would end and
    /// lose all completions still to come. The panic hook has printed its message.
    pub fn deliver(&self, completion: Completion) {
        // Nothing of ours is behind the sink; what it leaves broken is its owner's.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.0)(completion)));
    }

    /// Delivers on the submitting thread: a panic is the submitter's.
    pub fn deliver_to_submitter(&self, completion: Completion) {
        (self.0)(completion);
    }
}

/// Waits for the end of an engine's thread, unless called on that thread, where it would deadlock.
pub(crate) fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != std::thread::current().id() {
        // A panic was already reported by the thread; there is nothing to add to it here.
        let _ = thread.join();
    }
}

/// An open descriptor.
#[derive(Debug)]
pub enum Descriptor {
    /// Open as long as this lives.
    Held(Arc<File>),
    /// Open as long as the request holds its file.
    OfRequest(RawFd),
}

impl Descriptor {
    pub fn raw_fd(&self) -> RawFd {
        match self {
            Self::Held(file) => file.as_raw_fd(),
            Self::OfRequest(fd) => *fd,
        }
    }
}

/// A request to move an extent between a file and memory. The engines work on this trait and do not
/// know the direction.
pub trait Transfer: Debug + Send + Sync + 'static {
    /// The direction, as used in thread names: "read".
    const VERB: &'static str;
    /// The system call of one attempt: "pread".
    const CALL: &'static str;

    /// The caller's mark.
    fn tag(&self) -> u64;
    /// The file's path.
    fn path(&self) -> &Path;
    /// First byte and length of the extent.
    fn extent(&self) -> (u64, u64);
    /// Error unless the request can run as given.
    fn check(&self) -> Result<()>;
    /// The O_DIRECT part and the page-cache part of a checked request.
    fn cut(&self) -> Cut;
    /// The descriptor for a mode.
    fn descriptor(&self, mode: ReadMode) -> io::Result<Descriptor>;
    /// The ring's entry for a segment whose memory lies in a registered buffer, or not.
    fn entry(fd: types::Fd, segment: &Segment, registered: Option<u16>) -> squeue::Entry;
    /// One attempt.
    ///
    /// # Safety
    /// The segment's memory must be valid, initialised and used by nobody else.
    unsafe fn attempt(&self, segment: &Segment) -> io::Result<usize>;
    /// The file's view of the outcome of an attempt that the kernel made by descriptor.
    ///
    /// # Safety
    /// As [`attempt`](Transfer::attempt).
    unsafe fn intercept(&self, segment: &Segment, outcome: io::Result<usize>) -> io::Result<usize>;
    /// The error for a segment that failed.
    fn error(&self, segment: &Segment, fault: Fault) -> IoError;

    /// The completion of an invalid or empty request.
    fn settled(&self) -> Option<Completion> {
        match self.check() {
            Err(error) => Some(self.immediately(Err(error))),
            Ok(()) => (self.extent().1 == 0).then(|| self.immediately(Ok(Transferred::default()))),
        }
    }

    /// The completion of a request that never became segments.
    fn immediately(&self, result: Result<Transferred>) -> Completion {
        Completion { tag: self.tag(), result, latency_ns: 0 }
    }

    /// The error of work that is not begun any more.
    fn cancelled(&self, offset: u64) -> IoError {
        IoError::Cancelled { path: self.path().to_path_buf(), offset }
    }
}

/// Error unless the extent lies inside a file of `size_bytes` and the window fits it.
pub(crate) fn check_extent(
    path: &Path,
    size_bytes: u64,
    (offset, bytes): (u64, u64),
    window: &Window,
) -> Result<()> {
    check_range(path, size_bytes, (offset, bytes))?;
    let what = if bytes == 0 {
        return Ok(());
    } else if window.bytes < Placement::of(offset, bytes).window_bytes {
        "it is too small"
    } else if !window.start.addr().is_multiple_of(crate::EXTENT_ALIGN_BYTES) {
        "it is not aligned"
    } else {
        return Ok(());
    };
    Err(IoError::Window {
        path: path.to_path_buf(),
        offset,
        bytes,
        window_bytes: window.bytes,
        what,
    })
}

/// Error unless the extent lies inside a file of `size_bytes`.
pub(crate) fn check_range(path: &Path, size_bytes: u64, (offset, bytes): (u64, u64)) -> Result<()> {
    if offset.checked_add(bytes).is_some_and(|end| end <= size_bytes) {
        return Ok(());
    }
    Err(IoError::OutOfRange { path: path.to_path_buf(), offset, bytes, size_bytes })
}

/// A request under way: shared by its segments.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    pub request: T,
    submitted: Instant,
    segments_left: AtomicUsize,
    failed: AtomicBool,
    first_error: Mutex<Option<IoError>>,
    direct_bytes: AtomicU64,
    buffered_bytes: AtomicU64,
    direct_refused_bytes: AtomicU64,
    short: AtomicU64,
}

impl<T: Transfer> Pending<T> {
    /// A checked request and its segments.
    pub fn start(
        request: T,
        segment_bytes: usize,
    ) -> (Arc<Pending<T>>, impl Iterator<Item = Segment>) {
        let cut = request.cut();
        let pending = Pending {
            request,
            submitted: Instant::now(),
            segments_left: AtomicUsize::new(cut.clone().segments(segment_bytes).count()),
            failed: AtomicBool::new(false),
            first_error: Mutex::new(None),
            direct_bytes: AtomicU64::new(0),
            buffered_bytes: AtomicU64::new(0),
            direct_refused_bytes: AtomicU64::new(0),
            short: AtomicU64::new(0),
        };
        (Arc::new(pending), cut.segments(segment_bytes))
    }

    /// Whether a segment has failed: the others need not begin.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Records the end of a segment; returns the completion if it was the last one.
    pub fn segment_ended(&self, result: Result<Transferred>) -> Option<Completion> {
        match result {
            Ok(tally) => {
                self.direct_bytes.fetch_add(tally.direct_bytes, Ordering::Relaxed);
                self.buffered_bytes.fetch_add(tally.buffered_bytes, Ordering::Relaxed);
                self.direct_refused_bytes.fetch_add(tally.direct_refused_bytes, Ordering::Relaxed);
                self.short.fetch_add(tally.short, Ordering::Relaxed);
            }
            Err(error) => {
                self.first_error.lock().get_or_insert(error);
                self.failed.store(true, Ordering::Release);
            }
        }
        // AcqRel: whoever takes the last one sees what all others wrote.
        (self.segments_left.fetch_sub(1, Ordering::AcqRel) == 1).then(|| self.completion())
    }

    fn completion(&self) -> Completion {
        let result = match self.first_error.lock().take() {
            Some(error) => Err(error),
            None => Ok(Transferred {
                direct_bytes: self.direct_bytes.load(Ordering::Relaxed),
                buffered_bytes: self.buffered_bytes.load(Ordering::Relaxed),
                direct_refused_bytes: self.direct_refused_bytes.load(Ordering::Relaxed),
                short: self.short.load(Ordering::Relaxed),
            }),
        };
        Completion {
            tag: self.request.tag(),
            result,
            latency_ns: self.submitted.elapsed().as_nanos() as u64,
        }
    }
}
