//! The threads that register pieces ahead of the copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use headrace_io::{IoError, Kept, block_signals};

use super::{Refusal, RegisteredPiece, RegisteredPool, SharedMapping};
use crate::HostRegistrar;

/// A requested piece.
#[derive(Debug)]
pub(crate) struct Registered {
    pub tag: u64,
    pub piece: u64,
    pub result: Result<Arc<Kept<RegisteredPiece>>, Refusal>,
}

/// Registers pieces and reports by a callback. Dropped, it leaves nothing half done.
pub(crate) struct Registrars {
    /// `None` only while it is being dropped.
    queue: Option<Sender<Task>>,
    threads: Vec<JoinHandle<()>>,
    cancelled: Arc<AtomicBool>,
}

struct Task {
    mapping: Arc<SharedMapping>,
    piece: u64,
    tag: u64,
}

struct Worker {
    pool: Arc<RegisteredPool>,
    registrar: Arc<dyn HostRegistrar>,
    race: u64,
    forced: bool,
    cancelled: Arc<AtomicBool>,
    tasks: Receiver<Task>,
}

impl Registrars {
    pub fn start(
        threads: usize,
        pool: &Arc<RegisteredPool>,
        registrar: &Arc<dyn HostRegistrar>,
        (race, forced): (u64, bool),
        sink: impl Fn(Registered) + Clone + Send + 'static,
    ) -> Result<Registrars, IoError> {
        let (queue, tasks) = unbounded();
        let cancelled = Arc::new(AtomicBool::new(false));
        let mut helpers = Registrars { queue: Some(queue), threads: Vec::new(), cancelled };
        for number in 0..threads.max(1) {
            let worker = Worker {
                pool: pool.clone(),
                registrar: registrar.clone(),
                race,
                forced,
                cancelled: helpers.cancelled.clone(),
                tasks: tasks.clone(),
            };
            let sink = sink.clone();
            let thread = std::thread::Builder::new()
                .name(format!("register-{number}"))
                .spawn(move || worker.work(sink))
                .map_err(|cause| IoError::Thread { cause })?;
            helpers.threads.push(thread);
        }
        Ok(helpers)
    }

    /// Requests a piece, with exactly one answer.
    pub fn want(&self, mapping: Arc<SharedMapping>, piece: u64, tag: u64) {
        let queue = self.queue.as_ref().expect("the queue lives until the drop");
        // The threads listen until the queue is closed, and do not panic.
        let _ = queue.send(Task { mapping, piece, tag });
    }

    /// Answers everything that was not begun as cancelled.
    pub fn cancel_queued(&self) {
        self.cancelled.store(true, Ordering::Release);
    }
}

impl Worker {
    fn work(self, sink: impl Fn(Registered)) {
        block_signals();
        for Task { mapping, piece, tag } in &self.tasks {
            let result = if self.cancelled.load(Ordering::Acquire) {
                Err(Refusal::Cancelled)
            } else {
                self.pool.obtain(&mapping, piece, &*self.registrar, self.race, self.forced)
            };
            sink(Registered { tag, piece, result });
        }
    }
}

impl Drop for Registrars {
    fn drop(&mut self) {
        self.cancel_queued();
        drop(self.queue.take());
        for thread in self.threads.drain(..) {
            // A panic was already reported by the thread.
            let _ = thread.join();
        }
    }
}
