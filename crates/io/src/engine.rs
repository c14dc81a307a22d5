//! The interface of the engines: an extent goes in, a completion comes out.

use std::io;
use std::path::Path;
use std::sync::Arc;

use io_uring::{opcode, squeue, types};

use crate::segment::{Cut, Fault, Segment, Tally};
use crate::transfer::{Completed, Descriptor, Transfer, check_extent, check_range};
use crate::{EXTENT_ALIGN_BYTES, IoError, ReadAt, ReadMode, Result};

/// Memory that an engine may use: an address and a length, without a lifetime.
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

/// The end of a [`ReadRequest`].
pub type Completion = Completed<ReadDone>;

/// Receives completions, on a thread of the engine: it must be quick and must not block. (A request
/// for which there is nothing to do, a wrong one or an empty one, completes on the thread that
/// submits it.)
///
/// It should not panic either. If it does on a thread of the engine, that completion is lost to its
/// owner; all others are delivered as if nothing had happened.
pub type CompletionSink = Arc<dyn Fn(Completion) + Send + Sync>;

/// A reader of extents with many requests in flight.
///
/// Dropping an engine cancels what is queued, waits for what the kernel is working on, delivers
/// all completions and joins the threads: after the drop no memory is touched any more.
///
/// A sink may hold the last reference to its engine. Dropped there, on a thread of its own, the
/// engine does not wait for that thread: what it still owes is delivered after the drop, and all of
/// it before the sink itself is dropped.
pub trait ReadEngine: Send + Sync {
    /// The way of reading, in words ("io_uring, depth 64, registered buffers").
    fn describe(&self) -> String;

    /// Queues a request; never blocks. Exactly one completion is delivered for it.
    ///
    /// # Safety
    /// The window's memory must be initialised (to anything) and stay valid, and must not be used
    /// by anybody else, until the request's completion was delivered or the engine was dropped
    /// (inside its own sink only the completion counts).
    unsafe fn submit(&self, request: ReadRequest);

    /// Lets everything that is queued but not yet begun complete as [`IoError::Cancelled`], now
    /// and for requests submitted later. What the kernel is working on completes as it will.
    fn cancel_queued(&self);
}

impl From<Tally> for ReadDone {
    fn from(tally: Tally) -> ReadDone {
        ReadDone {
            direct_bytes: tally.direct_bytes,
            buffered_bytes: tally.buffered_bytes,
            direct_refused_bytes: tally.direct_refused_bytes,
            short_reads: tally.short,
        }
    }
}

impl Transfer for ReadRequest {
    type Done = ReadDone;
    const VERB: &'static str = "read";
    const CALL: &'static str = "pread";

    fn tag(&self) -> u64 {
        self.tag
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn extent(&self) -> (u64, u64) {
        (self.offset, self.bytes)
    }

    fn check(&self) -> Result<()> {
        check_extent(self.file.path(), self.file.size_bytes(), self.extent(), &self.window)
    }

    fn cut(&self) -> Cut {
        let align = EXTENT_ALIGN_BYTES as u64;
        let (offset, end) = (self.offset, self.offset + self.bytes);
        let base = offset - offset % align;
        let whole_blocks_end = self.file.size_bytes() / align * align;
        let direct_end = match self.mode {
            ReadMode::Direct if end > offset => end.next_multiple_of(align).min(whole_blocks_end),
            _ => base,
        }
        .max(base);
        Cut {
            base,
            direct: base..direct_end,
            buffered: direct_end.max(offset)..end,
            window: self.window.start,
        }
    }

    fn descriptor(&self, mode: ReadMode) -> io::Result<Descriptor> {
        self.file.source().descriptor(mode).map(Descriptor::Held)
    }

    fn entry(fd: types::Fd, segment: &Segment, registered: Option<u16>) -> squeue::Entry {
        let (into, bytes) = (segment.memory, segment.bytes as u32);
        match registered {
            Some(index) => {
                opcode::ReadFixed::new(fd, into, bytes, index).offset(segment.offset).build()
            }
            None => opcode::Read::new(fd, into, bytes).offset(segment.offset).build(),
        }
    }

    unsafe fn attempt(&self, segment: &Segment) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        let into = unsafe { std::slice::from_raw_parts_mut(segment.memory, segment.bytes) };
        self.file.read_at(segment.mode, segment.offset, into)
    }

    unsafe fn intercept(&self, segment: &Segment, outcome: io::Result<usize>) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        let into = unsafe { std::slice::from_raw_parts_mut(segment.memory, segment.bytes) };
        self.file.intercept(segment.mode, segment.offset, into, outcome)
    }

    fn error(&self, segment: &Segment, fault: Fault) -> IoError {
        read_error(self.file.path(), segment, fault)
    }
}

fn read_error(path: &Path, segment: &Segment, fault: Fault) -> IoError {
    let (path, offset, bytes) = (path.to_path_buf(), segment.offset, segment.bytes as u64);
    match fault {
        Fault::NothingMoved => IoError::UnexpectedEnd { path, offset, missing_bytes: bytes },
        Fault::Refused(cause) => {
            IoError::within(cause, |cause| IoError::Read { path, offset, bytes, cause })
        }
    }
}

/// See [`ReadAt::read_exact_at`].
pub(crate) fn read_exact(
    file: &(impl ReadAt + ?Sized),
    offset: u64,
    into: &mut [u8],
) -> Result<()> {
    check_range(file.path(), file.size_bytes(), (offset, into.len() as u64))?;
    if into.is_empty() {
        return Ok(());
    }
    let mut segment = Segment::new(ReadMode::Buffered, offset, into.as_mut_ptr(), into.len());
    let outcome = segment.carry_out(|part| {
        let done = (part.offset - offset) as usize;
        file.read_at(part.mode, part.offset, &mut into[done..])
    });
    outcome.map(|_| ()).map_err(|fault| read_error(file.path(), &segment, fault))
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
