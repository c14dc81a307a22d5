//! The engines that write: the readers' pool and ring, turned round.

use std::sync::Arc;

use super::{WriteCompletion, WriteRequest};
use crate::pool::Pool;
use crate::ring::Ring;
use crate::{Result, UringOptions, UringUnavailable, Window};

/// Receives completions: see [`CompletionSink`](crate::CompletionSink), which is the readers'.
pub type WriteCompletionSink = Arc<dyn Fn(WriteCompletion) + Send + Sync>;

/// A writer of extents with many requests in flight.
///
/// Dropping an engine cancels what is queued, waits for what the kernel is working on, delivers
/// all completions and joins the threads: after the drop no memory is looked at any more. Dropped
/// inside its own sink it does not wait, just as a [`ReadEngine`](crate::ReadEngine).
///
/// Requests in flight may be carried out in any order: extents that overlap leave either's bytes.
pub trait WriteEngine: Send + Sync {
    /// The way of writing, in words ("io_uring, depth 64, registered buffers").
    fn describe(&self) -> String;

    /// Queues a request; never blocks. Exactly one completion is delivered for it.
    ///
    /// # Safety
    /// The window's memory must stay valid, and must not be written by anybody, until the
    /// request's completion was delivered or the engine was dropped (inside its own sink only the
    /// completion counts). It must be initialised up to
    /// [`Placement::window_bytes`](crate::Placement), the padding included.
    unsafe fn submit(&self, request: WriteRequest);

    /// Lets everything that is queued but not yet begun complete as
    /// [`IoError::Cancelled`](crate::IoError::Cancelled), now and for requests submitted later.
    /// What the kernel is working on completes as it will.
    fn cancel_queued(&self);
}

/// A pool of writer threads, for buffered and for O_DIRECT writes.
pub struct PwritePool(Pool<WriteRequest>);

impl PwritePool {
    /// As [`PreadPool::start`](crate::PreadPool::start).
    ///
    /// # Errors
    /// [`IoError::Thread`](crate::IoError::Thread) where a thread cannot be started.
    pub fn start(
        threads: usize,
        segment_bytes: usize,
        sink: WriteCompletionSink,
    ) -> Result<PwritePool> {
        Pool::start(threads, segment_bytes, sink).map(PwritePool)
    }
}

/// The io_uring engine that writes.
pub struct UringWriter(Ring<WriteRequest>);

impl UringWriter {
    /// As [`UringEngine::start`](crate::UringEngine::start).
    ///
    /// # Errors
    /// [`UringUnavailable`] if the kernel refuses a ring (seccomp, memlock, age).
    ///
    /// # Safety
    /// The memory in `register` must stay valid until the engine is dropped.
    pub unsafe fn start(
        options: &UringOptions,
        register: &[Window],
        sink: WriteCompletionSink,
    ) -> std::result::Result<UringWriter, UringUnavailable> {
        // SAFETY: the caller's promise.
        unsafe { Ring::start(options, register, sink) }.map(UringWriter)
    }

    /// Whether the buffers are registered; the reason if not.
    pub fn registered(&self) -> std::result::Result<(), &str> {
        self.0.registered()
    }
}

impl WriteEngine for PwritePool {
    fn describe(&self) -> String {
        self.0.describe()
    }

    unsafe fn submit(&self, request: WriteRequest) {
        // SAFETY: the caller's promise.
        unsafe { self.0.submit(request) };
    }

    fn cancel_queued(&self) {
        self.0.cancel_queued();
    }
}

impl WriteEngine for UringWriter {
    fn describe(&self) -> String {
        self.0.describe()
    }

    unsafe fn submit(&self, request: WriteRequest) {
        // SAFETY: the caller's promise.
        unsafe { self.0.submit(request) };
    }

    fn cancel_queued(&self) {
        self.0.cancel_queued();
    }
}
