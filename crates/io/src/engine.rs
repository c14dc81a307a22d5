//! The interface of the engines: an extent goes in, a completion comes out.

use std::sync::Arc;

use crate::{IoError, ReadAt, ReadMode, Result};

/// Memory that an engine may write to: an address and a length, without a lifetime.
///
/// The engine works on it while the kernel does; see [`ReadEngine::submit`] for the promise the
/// caller makes.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub(crate) start: *mut u8,
    pub(crate) bytes: usize,
}

// SAFETY: a window is only an address; whoever writes through it has the promise made at
// `ReadEngine::submit` that nobody else uses the memory.
unsafe impl Send for Window {}
// SAFETY: as above; a shared `Window` gives no access to the memory.
unsafe impl Sync for Window {}

impl Window {
    /// The `bytes` bytes from `start` on.
    pub fn new(start: *mut u8, bytes: usize) -> Window {
        Window { start, bytes }
    }

    /// First byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// An extent to read.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// The file.
    pub file: Arc<dyn ReadAt>,
    /// Through the page cache or past it.
    pub mode: ReadMode,
    /// First wanted byte.
    pub offset: u64,
    /// Wanted bytes; 0 is allowed and completes at once.
    pub bytes: u64,
    /// Where to: starts on a multiple of [`EXTENT_ALIGN_BYTES`](crate::EXTENT_ALIGN_BYTES) and is
    /// at least [`Placement::window_bytes`](crate::Placement) long. The wanted bytes will lie at
    /// [`Placement::head_bytes`](crate::Placement), in both modes; what lies around them in the
    /// window is overwritten with anything.
    pub window: Window,
    /// Returned with the completion.
    pub tag: u64,
}

/// How a request was carried out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadDone {
    /// Bytes transferred by O_DIRECT, the widening included.
    pub direct_bytes: u64,
    /// Bytes transferred through the page cache. In [`ReadMode::Direct`] that is the file's
    /// unaligned tail, and whatever `direct_refused_bytes` counts.
    pub buffered_bytes: u64,
    /// Bytes asked for by O_DIRECT that the file refused (EINVAL) at the time of reading, and
    /// that were read through the page cache instead.
    pub direct_refused_bytes: u64,
    /// Reads that brought fewer bytes than asked for, and were resumed.
    pub short_reads: u64,
}

/// The end of a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// How it went. On an error nothing is promised about the window's contents.
    pub result: Result<ReadDone>,
    /// From submission to completion.
    pub latency_ns: u64,
}

/// Receives completions, on a thread of the engine: it must be quick and must not block.
pub type CompletionSink = Arc<dyn Fn(Completion) + Send + Sync>;

/// A reader of extents with many requests in flight.
///
/// Dropping an engine cancels what is queued, waits for what the kernel is working on, delivers
/// all completions and joins the threads: after the drop no memory is touched any more.
pub trait ReadEngine: Send + Sync {
    /// The way of reading, in words ("io_uring, depth 64, registered buffers").
    fn describe(&self) -> String;

    /// Queues a request; never blocks. Exactly one completion is delivered for it.
    ///
    /// # Safety
    /// The window's memory must stay valid, and must not be used by anybody else, until the
    /// request's completion was delivered or the engine was dropped.
    unsafe fn submit(&self, request: ReadRequest);

    /// Lets everything that is queued but not yet begun complete as [`IoError::Cancelled`], now
    /// and for requests submitted later. What the kernel is working on completes as it will.
    fn cancel_queued(&self);
}

impl ReadRequest {
    /// Error unless the extent lies inside the file and the window can take it.
    pub(crate) fn check(&self) -> Result<()> {
        let size_bytes = self.file.size_bytes();
        if self.offset.checked_add(self.bytes).is_none_or(|end| end > size_bytes) {
            return Err(IoError::OutOfRange {
                path: self.file.path().to_path_buf(),
                offset: self.offset,
                bytes: self.bytes,
                size_bytes,
            });
        }
        let placement = crate::Placement::of(self.offset, self.bytes);
        let what = if self.bytes == 0 {
            return Ok(());
        } else if self.window.bytes < placement.window_bytes {
            "it is too small"
        } else if !self.window.start.addr().is_multiple_of(crate::EXTENT_ALIGN_BYTES) {
            "it is not aligned"
        } else {
            return Ok(());
        };
        Err(IoError::Window {
            path: self.file.path().to_path_buf(),
            offset: self.offset,
            bytes: self.bytes,
            window_bytes: self.window.bytes,
            what,
        })
    }
}

/// Blocks all signals that can be blocked without harm in the calling thread, so that the
/// signals of a host process are handled by its own threads. Faults stay deliverable: a blocked
/// SIGBUS would kill the process instead of reaching its handler.
pub fn block_signals() {
    // SAFETY: `sigset_t` is plain data that `sigfillset` initialises; the calls change only the
    // calling thread's mask.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut set);
        for fault in [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            libc::sigdelset(&mut set, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}
