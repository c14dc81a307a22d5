//! The interface of the engines: an extent goes in, a completion comes out.

use std::sync::Arc;

use crate::Result;

/// Memory that an engine may use: an address and a length, without a lifetime.
///
/// The engine works on it while the kernel does; see [`Engine::submit`] for the promise the
/// caller makes.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub(crate) start: *mut u8,
    pub(crate) bytes: usize,
}

// SAFETY: a window is only an address; whoever writes through it has the promise made at
// `Engine::submit` that nobody else uses the memory.
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

/// How bytes were moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes moved by O_DIRECT, including the widening to whole blocks.
    pub direct_bytes: u64,
    /// Bytes moved through the page cache. In [`ReadMode::Direct`](crate::ReadMode) that is an
    /// unaligned end, plus `direct_refused_bytes`.
    pub buffered_bytes: u64,
    /// Bytes that the file refused (EINVAL) to move by O_DIRECT and that went through the page
    /// cache instead.
    pub direct_refused_bytes: u64,
    /// Short transfers that were resumed.
    pub short: u64,
}

/// The end of a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// The outcome. After an error nothing is known about the bytes of the extent, neither in the
    /// window of a read nor in the file of a write.
    pub result: Result<Transferred>,
    /// From submission to completion.
    pub latency_ns: u64,
}

/// Receives completions on a thread of the engine: it must be quick and must not block. (An invalid
/// or empty request completes on the thread that submits it.)
///
/// It should not panic. If it panics on a thread of the engine, its owner loses that completion;
/// all others are delivered normally.
pub type CompletionSink = Arc<dyn Fn(Completion) + Send + Sync>;

/// Moves extents with many requests in flight: reads ([`ReadRequest`](crate::ReadRequest)) or writes
/// ([`WriteRequest`](crate::write::WriteRequest)).
///
/// Dropping an engine cancels queued requests, waits for those in the kernel, delivers all
/// completions and joins the threads. After the drop no memory is touched.
///
/// A sink may hold the last reference to its engine. If the engine is dropped on one of its own
/// threads, it does not wait for that thread: the remaining completions are delivered after the
/// drop, and all of them before the sink itself is dropped.
///
/// Requests in flight may run in any order: overlapping writes leave the bytes of either.
pub trait Engine<T>: Send + Sync {
    /// The access path in words ("io_uring, depth 64, registered buffers").
    fn describe(&self) -> String;

    /// Queues a request; never blocks. Exactly one completion is delivered for it.
    ///
    /// # Safety
    /// The window's memory must be initialised (for a read to anything, for a write up to
    /// [`Placement::window_bytes`](crate::Placement), the padding included) and stay valid until
    /// the request's completion was delivered or the engine was dropped (inside its own sink only
    /// the completion counts). Until then nobody may write it, nor look at it while it is read into.
    unsafe fn submit(&self, request: T);

    /// Completes everything that is queued but not begun as
    /// [`IoError::Cancelled`](crate::IoError::Cancelled), now and for later requests. Requests in
    /// the kernel finish normally.
    fn cancel_queued(&self);
}
