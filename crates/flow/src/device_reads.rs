//! Reads past host memory: threads that drive the device's own reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use headrace_io::{IoError, ReadAt, block_signals};
use parking_lot::Mutex;

use crate::stop::panic_message;
use crate::{BoxError, DeviceReader};

/// The size of one call: large enough to amortise its set-up, small enough that an extent keeps
/// several threads busy.
const SEGMENT_BYTES: usize = 4 << 20;

/// An extent to be read into device memory.
#[derive(Debug)]
pub(crate) struct DeviceRead {
    pub file: Arc<dyn ReadAt>,
    pub offset: u64,
    pub bytes: usize,
    pub slot: usize,
    pub slot_offset: usize,
    pub tag: u64,
}

/// The end of a [`DeviceRead`].
#[derive(Debug)]
pub(crate) struct DeviceReadDone {
    pub tag: u64,
    pub result: Result<(), BoxError>,
    pub requests: u64,
    pub latency_ns: u64,
}

/// The reading threads. Dropped, they finish their current reads and touch no memory afterwards.
pub(crate) struct DeviceReads {
    /// `None` only while it is being dropped.
    queue: Option<Sender<Task>>,
    threads: Vec<JoinHandle<()>>,
    cancelled: Arc<AtomicBool>,
}

struct Pending {
    read: DeviceRead,
    begun: Instant,
    left: AtomicUsize,
    requests: u64,
    first_error: Mutex<Option<BoxError>>,
}

struct Task {
    pending: Arc<Pending>,
    skip: usize,
    bytes: usize,
}

impl DeviceReads {
    pub fn start(
        threads: usize,
        reader: &Arc<dyn DeviceReader>,
        sink: impl Fn(DeviceReadDone) + Clone + Send + 'static,
    ) -> Result<DeviceReads, IoError> {
        let (queue, tasks) = unbounded();
        let cancelled = Arc::new(AtomicBool::new(false));
        let mut reads = DeviceReads { queue: Some(queue), threads: Vec::new(), cancelled };
        for number in 0..threads.max(1) {
            let (reader, tasks): (_, Receiver<Task>) = (reader.clone(), tasks.clone());
            let (cancelled, sink) = (reads.cancelled.clone(), sink.clone());
            let thread = std::thread::Builder::new()
                .name(format!("device-read-{number}"))
                .spawn(move || work(&*reader, &tasks, &cancelled, sink))
                .map_err(|cause| IoError::Thread { cause })?;
            reads.threads.push(thread);
        }
        Ok(reads)
    }

    /// Queues a read of at least one byte, with exactly one answer.
    ///
    /// # Safety
    /// The slot's device memory belongs to this read until its answer, or until this value is
    /// dropped.
    pub unsafe fn submit(&self, read: DeviceRead) {
        let bytes = read.bytes;
        let segments = bytes.div_ceil(SEGMENT_BYTES);
        let pending = Arc::new(Pending {
            read,
            begun: Instant::now(),
            left: AtomicUsize::new(segments),
            requests: segments as u64,
            first_error: Mutex::new(None),
        });
        let queue = self.queue.as_ref().expect("the queue lives until the drop");
        for skip in (0..bytes).step_by(SEGMENT_BYTES) {
            let bytes = (bytes - skip).min(SEGMENT_BYTES);
            // The threads listen until the queue is closed, and catch panics.
            let _ = queue.send(Task { pending: pending.clone(), skip, bytes });
        }
    }

    /// Fails everything that was not begun.
    pub fn cancel_queued(&self) {
        self.cancelled.store(true, Ordering::Release);
    }
}

impl Drop for DeviceReads {
    fn drop(&mut self) {
        self.cancel_queued();
        drop(self.queue.take());
        for thread in self.threads.drain(..) {
            // A panic was already reported by the thread.
            let _ = thread.join();
        }
    }
}

fn work(
    reader: &dyn DeviceReader,
    tasks: &Receiver<Task>,
    cancelled: &AtomicBool,
    sink: impl Fn(DeviceReadDone),
) {
    block_signals();
    for Task { pending, skip, bytes } in tasks {
        let outcome = if cancelled.load(Ordering::Acquire) {
            Err("cancelled".into())
        } else if pending.first_error.lock().is_some() {
            Ok(())
        } else {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                read_all(reader, &pending.read, skip, bytes)
            }));
            caught.unwrap_or_else(|payload| Err(panic_message(&*payload).into()))
        };
        if let Err(error) = outcome {
            pending.first_error.lock().get_or_insert(error);
        }
        if pending.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let result = pending.first_error.lock().take().map_or(Ok(()), Err);
            let latency_ns = pending.begun.elapsed().as_nanos() as u64;
            let (tag, requests) = (pending.read.tag, pending.requests);
            // This thread's hold on the file ends before the read's end is seen.
            drop(pending);
            sink(DeviceReadDone { tag, result, requests, latency_ns });
        }
    }
}

/// Reads a segment, resuming short reads.
fn read_all(
    reader: &dyn DeviceReader,
    read: &DeviceRead,
    mut skip: usize,
    mut bytes: usize,
) -> Result<(), BoxError> {
    while bytes > 0 {
        let offset = read.offset + skip as u64;
        // SAFETY: the promise of whoever called `submit`: the slot's memory is this read's until
        // its answer; segments of a read do not overlap.
        let outcome =
            unsafe { reader.read(&read.file, offset, bytes, read.slot, read.slot_offset + skip) };
        let path = read.file.path().display();
        let count = outcome.map_err(|cause| format!("{path} at offset {offset}: {cause}"))?;
        if count == 0 {
            return Err(format!("{path} ends at offset {offset}, {bytes} bytes early").into());
        }
        let count = count.min(bytes);
        skip += count;
        bytes -= count;
    }
    Ok(())
}
