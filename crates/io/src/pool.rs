//! A pool of threads, each with one system call at a time: the engine that works everywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::engine::{CompletionSink, Engine, Transferred};
use crate::segment::{self, Segment};
use crate::transfer::{Outlet, Pending, Transfer, join};
use crate::{IoError, Result};

/// A pool of threads, for transfers through the page cache and by O_DIRECT. See [`Engine`].
///
/// A request is cut into segments that all threads share, so one large extent moves as fast as many
/// small ones.
pub struct Pool<T: Transfer> {
    /// `None` only while the pool is being dropped.
    queue: Option<Sender<Task<T>>>,
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
    segment_bytes: usize,
}

struct Task<T> {
    pending: Arc<Pending<T>>,
    segment: Segment,
}

struct Shared {
    cancelled: Arc<AtomicBool>,
    outlet: Outlet,
}

impl<T: Transfer> Pool<T> {
    /// Starts `threads` threads (at least 1) that move segments of at most `segment_bytes`
    /// (rounded up to a multiple of [`EXTENT_ALIGN_BYTES`](crate::EXTENT_ALIGN_BYTES), at most
    /// 1 GiB).
    ///
    /// # Errors
    /// [`IoError::Thread`] where a thread cannot be started.
    pub fn start(threads: usize, segment_bytes: usize, sink: CompletionSink) -> Result<Pool<T>> {
        let (queue, tasks) = unbounded();
        let shared = Arc::new(Shared { cancelled: Arc::default(), outlet: Outlet::new(sink) });
        let mut pool = Pool {
            queue: Some(queue),
            threads: Vec::new(),
            shared,
            segment_bytes: segment::whole_blocks(segment_bytes),
        };
        for number in 0..threads.max(1) {
            let (tasks, shared) = (tasks.clone(), pool.shared.clone());
            let thread = std::thread::Builder::new()
                .name(format!("{}-{number}", T::VERB))
                .spawn(move || work(&tasks, &shared))
                .map_err(|cause| IoError::Thread { cause })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }
}

impl<T: Transfer> Engine<T> for Pool<T> {
    fn describe(&self) -> String {
        format!("{}, {} threads", T::CALL, self.threads.len())
    }

    unsafe fn submit(&self, request: T) {
        if let Some(completion) = request.settled() {
            return self.shared.outlet.deliver_to_submitter(completion);
        }
        let (pending, segments) = Pending::start(request, self.segment_bytes);
        let queue = self.queue.as_ref().expect("the queue lives until the drop");
        for segment in segments {
            let task = Task { pending: pending.clone(), segment };
            // The threads hold a receiver until the queue is closed, so this can only fail if all
            // of them panicked; then nobody else will complete the request.
            if let Err(rejected) = queue.send(task) {
                let Task { pending, segment } = rejected.into_inner();
                let error = pending.request.cancelled(segment.offset);
                if let Some(completion) = pending.segment_ended(Err(error)) {
                    self.shared.outlet.deliver_to_submitter(completion);
                }
            }
        }
    }

    fn cancel_queued(&self) {
        self.shared.cancelled.store(true, Ordering::Release);
    }
}

fn work<T: Transfer>(tasks: &Receiver<Task<T>>, shared: &Shared) {
    crate::engine::block_signals();
    crate::remote::reads_until(&shared.cancelled);
    for Task { pending, mut segment } in tasks {
        let request = &pending.request;
        let result = if shared.cancelled.load(Ordering::Acquire) {
            Err(request.cancelled(segment.offset))
        } else if pending.has_failed() {
            Ok(Transferred::default())
        } else {
            // SAFETY: the promise of whoever called `submit`: the window is valid and ours until
            // the completion, which comes after this; segments of a request do not overlap.
            let outcome = segment.carry_out(|part| unsafe { request.attempt(part) });
            outcome.map_err(|fault| request.error(&segment, fault))
        };
        if let Some(completion) = pending.segment_ended(result) {
            // Here the request's hold on the file ends before its completion is seen; threads that
            // had a part in it may keep theirs for a moment.
            drop(pending);
            shared.outlet.deliver(completion);
        }
    }
}

impl<T: Transfer> Drop for Pool<T> {
    fn drop(&mut self) {
        self.cancel_queued();
        drop(self.queue.take());
        for thread in self.threads.drain(..) {
            join(thread);
        }
    }
}
