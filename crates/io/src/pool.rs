//! Reads by a pool of threads, each with one `pread` at a time: the engine that works everywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::segment::{self, Pending, Segment};
use crate::{
    CompletionSink, EXTENT_ALIGN_BYTES, IoError, ReadDone, ReadEngine, ReadRequest, Result,
};

/// A pool of reader threads, for buffered and for O_DIRECT reads.
///
/// A request is cut into segments that all threads work on, so that one large extent is read as
/// fast as many small ones.
pub struct PreadPool {
    /// `None` only while the pool is being dropped.
    queue: Option<Sender<Task>>,
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
    segment_bytes: usize,
}

struct Task {
    pending: Arc<Pending>,
    segment: Segment,
}

struct Shared {
    cancelled: AtomicBool,
    sink: CompletionSink,
}

impl PreadPool {
    /// Starts `threads` threads (at least 1) that read segments of at most `segment_bytes`
    /// (rounded up to a multiple of [`EXTENT_ALIGN_BYTES`]).
    ///
    /// # Errors
    /// [`IoError::Thread`] where a thread cannot be started.
    pub fn start(threads: usize, segment_bytes: usize, sink: CompletionSink) -> Result<PreadPool> {
        let (queue, tasks) = unbounded();
        let shared = Arc::new(Shared { cancelled: AtomicBool::new(false), sink });
        let mut pool = PreadPool {
            queue: Some(queue),
            threads: Vec::new(),
            shared,
            segment_bytes: segment_bytes.max(1).next_multiple_of(EXTENT_ALIGN_BYTES),
        };
        for number in 0..threads.max(1) {
            let (tasks, shared) = (tasks.clone(), pool.shared.clone());
            let thread = std::thread::Builder::new()
                .name(format!("read-{number}"))
                .spawn(move || work(&tasks, &shared))
                .map_err(|cause| IoError::Thread { cause })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }
}

fn work(tasks: &Receiver<Task>, shared: &Shared) {
    crate::engine::block_signals();
    for Task { pending, mut segment } in tasks {
        let result = if shared.cancelled.load(Ordering::Acquire) {
            Err(pending.cancelled(&segment))
        } else if pending.has_failed() {
            Ok(ReadDone::default())
        } else {
            // SAFETY: the promise of whoever called `submit`: the window is valid and ours until
            // the completion, which comes after this; segments of a request do not overlap.
            unsafe { segment::read_segment(&*pending.request.file, &mut segment) }
        };
        if let Some(completion) = pending.segment_ended(result) {
            // The request's hold on the file ends before its completion is seen.
            drop(pending);
            (shared.sink)(completion);
        }
    }
}

impl ReadEngine for PreadPool {
    fn describe(&self) -> String {
        format!("pread, {} threads", self.threads.len())
    }

    unsafe fn submit(&self, request: ReadRequest) {
        if let Err(error) = request.check() {
            return (self.shared.sink)(segment::immediate(&request, Err(error)));
        }
        let count = segment::segments(&request, self.segment_bytes).count();
        if count == 0 {
            return (self.shared.sink)(segment::immediate(&request, Ok(ReadDone::default())));
        }
        let segments = segment::segments(&request, self.segment_bytes);
        let pending = Arc::new(Pending::new(request, count));
        let queue = self.queue.as_ref().expect("the queue lives until the drop");
        for segment in segments {
            let task = Task { pending: pending.clone(), segment };
            // The threads hold a receiver until the queue is closed, so this can only fail if all
            // of them panicked; then nobody else will complete the request.
            if let Err(rejected) = queue.send(task) {
                let Task { pending, segment } = rejected.into_inner();
                if let Some(completion) = pending.segment_ended(Err(pending.cancelled(&segment))) {
                    (self.shared.sink)(completion);
                }
            }
        }
    }

    fn cancel_queued(&self) {
        self.shared.cancelled.store(true, Ordering::Release);
    }
}

impl Drop for PreadPool {
    fn drop(&mut self) {
        self.cancel_queued();
        drop(self.queue.take());
        for thread in self.threads.drain(..) {
            // A panic was already reported by the thread; there is nothing to add to it here.
            let _ = thread.join();
        }
    }
}
