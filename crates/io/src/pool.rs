//! A pool of threads, each with one system call at a time: the engine that works everywhere.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    crate::signals::block_signals();
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
            let attempt = |part: &Segment| unsafe { request.attempt(part) };
            let outcome = segment.carry_out(|part| told(|| attempt(part)));
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

/// What an attempt yields. A file may decode what it reads; if that panics, the request fails instead of its thread, for
/// which a race would wait.
fn told(attempt: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
    let told = catch_unwind(AssertUnwindSafe(attempt));
    told.unwrap_or_else(|_| Err(io::Error::other("the reader of the file panicked")))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::{
        AlignedBuffer, Engine, FileIdentity, PreadPool, ReadAt, ReadMode, ReadRequest, SourceFile,
        Window,
    };
    use std::sync::Arc;

    /// A file whose decoder has a fault.
    #[derive(Debug)]
    struct Panicking(Arc<SourceFile>);

    impl ReadAt for Panicking {
        fn source(&self) -> &SourceFile {
            &self.0
        }

        fn read_at(&self, _: ReadMode, _: u64, _: &mut [u8]) -> std::io::Result<usize> {
            panic!("an unexpected page")
        }
    }

    #[test]
    fn a_reader_that_panics_fails_its_request_and_takes_the_next() {
        let identity =
            FileIdentity { device: 1, inode: 2, size_bytes: 100, mtime_ns: 0, ctime_ns: 0 };
        let file: Arc<dyn ReadAt> = Arc::new(Panicking(SourceFile::known("x", identity)));
        let (sender, completions) = crossbeam_channel::unbounded();
        let sink = Arc::new(move |completion| drop(sender.send(completion)));
        let mut memory = AlignedBuffer::allocate(4096).unwrap();
        let window = Window::new(memory.as_mut_slice().as_mut_ptr(), 4096);
        let pool = PreadPool::start(1, 4096, sink).unwrap();
        for tag in 0..2 {
            let (file, mode) = (Arc::clone(&file), ReadMode::Buffered);
            let request = ReadRequest { file, mode, offset: 0, bytes: 100, window, tag };
            // SAFETY: the memory outlives the pool, which is dropped before it, and is initialised.
            unsafe { pool.submit(request) };
            let completion: crate::Completion = completions.recv().unwrap();
            let error = completion.result.unwrap_err().to_string();
            assert!(completion.tag == tag && error.contains("panicked"), "{error}");
        }
    }
}
