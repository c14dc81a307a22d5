//! The io_uring engine, for either direction: one thread, many transfers in the kernel at once.
//!
//! The thread owns the ring. Requests reach it through a queue; an eventfd that the ring itself
//! waits on wakes it while it waits for completions. Nothing touches the ring from outside.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};
use io_uring::{IoUring, opcode, squeue, types};

use crate::engine::{CompletionSink, Engine, Transferred, Window};
use crate::segment::{self, Segment, Step, TRANSFER_BYTES_MAX};
use crate::transfer::{Descriptor, Outlet, Pending, Transfer, join};
use crate::{IoError, ReadMode, SetupFault, UringOptions, UringUnavailable};

/// Mark of the read that waits on the eventfd.
const WAKE: u64 = u64::MAX;

/// The io_uring engine. See [`Engine`].
pub struct Ring<T: Transfer> {
    /// `None` only while the engine is being dropped.
    queue: Option<Sender<T>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    depth: u32,
    registered: std::result::Result<(), String>,
}

struct Shared {
    cancelled: AtomicBool,
    /// Whether the thread waits, or is about to wait, on the ring and must be woken.
    waiting: AtomicBool,
    wake: OwnedFd,
    outlet: Outlet,
}

impl Shared {
    fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes and an open descriptor. A failure means that the counter
        // is already at its maximum, and then the thread will wake.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

impl<T: Transfer> Ring<T> {
    /// Sets up the ring and starts its thread. The memory in `register` is registered with the
    /// kernel, which pins it, so that transfers need not map it each time. If registration is
    /// refused, transfers still work, and [`registered`](Ring::registered) has the reason.
    ///
    /// # Errors
    /// [`UringUnavailable`] if the kernel refuses a ring (seccomp, memlock, age).
    ///
    /// # Safety
    /// The memory in `register` must stay valid until the engine is dropped.
    pub unsafe fn start(
        options: &UringOptions,
        register: &[Window],
        sink: CompletionSink,
    ) -> std::result::Result<Ring<T>, UringUnavailable> {
        let depth = options.depth.clamp(1, 4096);
        let unavailable = |what: &str| {
            let what = what.to_string();
            move |cause: io::Error| UringUnavailable::from_os(&what, &cause)
        };
        // One entry more: for the read that waits on the eventfd.
        let ring = injected(options, SetupFault::Setup)
            .and_then(|()| IoUring::builder().setup_clamp().dontfork().build(depth + 1))
            .map_err(unavailable("io_uring_setup"))?;
        let depth = depth.min(ring.params().sq_entries() - 1);
        let windows = registrable(register);
        // SAFETY: the caller's promise: the memory outlives the engine.
        let registered = unsafe { register_windows(&ring, options, &windows) };
        let shared = Arc::new(Shared {
            cancelled: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            wake: eventfd().map_err(unavailable("eventfd"))?,
            outlet: Outlet::new(sink),
        });
        let (queue, requests) = unbounded();
        let driver = Driver {
            ring,
            requests,
            shared: shared.clone(),
            windows: if registered.is_ok() { windows } else { Vec::new() },
            segment_bytes: segment::whole_blocks(options.segment_bytes),
            backlog: VecDeque::with_capacity(1024),
            flights: (0..depth).map(|_| None).collect(),
            free: (0..depth as usize).rev().collect(),
            wake_value: Box::new(0),
            wake_armed: false,
        };
        let thread = std::thread::Builder::new()
            .name(format!("{}-uring", T::VERB))
            .spawn(move || driver.run())
            .map_err(unavailable("starting its thread"))?;
        Ok(Ring { queue: Some(queue), shared, thread: Some(thread), depth, registered })
    }

    /// Whether the buffers are registered; the reason if not.
    pub fn registered(&self) -> std::result::Result<(), &str> {
        match &self.registered {
            Ok(()) => Ok(()),
            Err(reason) => Err(reason),
        }
    }
}

impl<T: Transfer> Engine<T> for Ring<T> {
    fn describe(&self) -> String {
        let buffers = if self.registered.is_ok() { "registered" } else { "unregistered" };
        format!("io_uring, depth {}, {buffers} buffers", self.depth)
    }

    unsafe fn submit(&self, request: T) {
        if let Some(completion) = request.settled() {
            return self.shared.outlet.deliver_to_submitter(completion);
        }
        let queue = self.queue.as_ref().expect("the queue lives until the drop");
        if let Err(rejected) = queue.send(request) {
            // Only if the thread panicked: then nobody else will complete the request.
            let request = rejected.into_inner();
            let error = request.cancelled(request.extent().0);
            let completion = request.immediately(Err(error));
            return self.shared.outlet.deliver_to_submitter(completion);
        }
        // SeqCst with the thread's store and its look at the queue: either it sees the request,
        // or we see that it waits.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.shared.waiting.load(Ordering::SeqCst) {
            self.shared.wake();
        }
    }

    fn cancel_queued(&self) {
        self.shared.cancelled.store(true, Ordering::Release);
        self.shared.wake();
    }
}

fn injected(options: &UringOptions, kind: fn(i32) -> SetupFault) -> io::Result<()> {
    match options.inject {
        Some(fault @ (SetupFault::Setup(errno) | SetupFault::Register(errno)))
            if fault == kind(errno) =>
        {
            Err(io::Error::from_raw_os_error(errno))
        }
        _ => Ok(()),
    }
}

/// Windows cut to the size that the kernel accepts.
pub(crate) fn registrable(windows: &[Window]) -> Vec<Window> {
    let mut cut = Vec::new();
    for window in windows {
        for offset in (0..window.bytes).step_by(TRANSFER_BYTES_MAX) {
            let bytes = (window.bytes - offset).min(TRANSFER_BYTES_MAX);
            // Inside the window: `offset` is below its length.
            cut.push(Window::new(window.start.wrapping_add(offset), bytes));
        }
    }
    cut
}

/// # Safety
/// The memory must outlive the ring.
unsafe fn register_windows(
    ring: &IoUring,
    options: &UringOptions,
    windows: &[Window],
) -> std::result::Result<(), String> {
    if windows.is_empty() {
        return Err("no buffers were given".to_string());
    }
    injected(options, SetupFault::Register)
        // SAFETY: the caller's promise.
        .and_then(|()| unsafe { ring.submitter().register_buffers(&vectors(windows)) })
        .map_err(|cause| UringUnavailable::from_os("registering buffers", &cause).to_string())
}

/// Windows as the kernel wants them.
pub(crate) fn vectors(windows: &[Window]) -> Vec<libc::iovec> {
    let vector =
        |window: &Window| libc::iovec { iov_base: window.start.cast(), iov_len: window.bytes };
    windows.iter().map(vector).collect()
}

fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: a plain call.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl<T: Transfer> Drop for Ring<T> {
    fn drop(&mut self) {
        self.cancel_queued();
        drop(self.queue.take());
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}

/// A transfer in the kernel.
struct Flight<T> {
    pending: Arc<Pending<T>>,
    segment: Segment,
    /// The file that the kernel reads or writes, open until it has finished.
    descriptor: Option<Descriptor>,
    tally: Transferred,
}

/// The state of the ring's thread.
struct Driver<T: Transfer> {
    ring: IoUring,
    requests: Receiver<T>,
    shared: Arc<Shared>,
    /// Registered buffers, in the order of registration; empty if there are none.
    windows: Vec<Window>,
    segment_bytes: usize,
    /// Segments that wait for a free flight.
    backlog: VecDeque<Flight<T>>,
    flights: Vec<Option<Flight<T>>>,
    free: Vec<usize>,
    /// The target of the eventfd's counter; boxed, so that its address is stable.
    wake_value: Box<u64>,
    wake_armed: bool,
}

impl<T: Transfer> Driver<T> {
    fn run(mut self) {
        crate::signals::block_signals();
        loop {
            let open = self.take_requests();
            if self.shared.cancelled.load(Ordering::Acquire) {
                self.cancel_backlog();
            }
            self.launch();
            if self.in_flight() == 0 && self.backlog.is_empty() {
                if !open {
                    break;
                }
                // Nothing in the kernel: wait on the queue itself, which also sees the end.
                match self.requests.recv() {
                    Ok(request) => self.accept(request),
                    Err(_) => break,
                }
                continue;
            }
            self.wait(open);
            self.reap();
        }
    }

    fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Whether more requests can arrive.
    fn take_requests(&mut self) -> bool {
        loop {
            match self.requests.try_recv() {
                Ok(request) => self.accept(request),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn accept(&mut self, request: T) {
        let (pending, segments) = Pending::start(request, self.segment_bytes);
        self.backlog.extend(segments.map(|segment| Flight {
            pending: pending.clone(),
            segment,
            descriptor: None,
            tally: Transferred::default(),
        }));
    }

    fn cancel_backlog(&mut self) {
        while let Some(flight) = self.backlog.pop_front() {
            let error = flight.pending.request.cancelled(flight.segment.offset);
            self.end(flight, Some(error));
        }
    }

    /// Moves segments from the backlog into the submission queue.
    fn launch(&mut self) {
        while !self.free.is_empty() {
            let Some(mut flight) = self.backlog.pop_front() else {
                return;
            };
            if flight.pending.has_failed() {
                self.end(flight, None);
                continue;
            }
            let Some(index) = self.free.pop() else {
                return;
            };
            match self.entry(&mut flight, index as u64) {
                Ok(entry) => {
                    self.flights[index] = Some(flight);
                    self.push(&entry);
                }
                Err(cause) => {
                    self.free.push(index);
                    self.step(flight, Err(cause));
                }
            }
        }
    }

    fn entry(&self, flight: &mut Flight<T>, mark: u64) -> io::Result<squeue::Entry> {
        let segment = &flight.segment;
        let descriptor = flight.pending.request.descriptor(segment.mode)?;
        let fd = types::Fd(flight.descriptor.insert(descriptor).raw_fd());
        Ok(T::entry(fd, segment, self.registered_index(segment)).user_data(mark))
    }

    fn registered_index(&self, segment: &Segment) -> Option<u16> {
        if segment.mode == ReadMode::Buffered {
            return None;
        }
        let start = segment.memory.addr();
        let index = self.windows.iter().position(|window| {
            let first = window.start.addr();
            start >= first && start + segment.bytes <= first + window.bytes
        })?;
        u16::try_from(index).ok()
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the descriptor and the memory live until the completion: the flight holds the
        // descriptor or the file, the submitter promised the memory, `wake_value` is ours.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // The queue has an entry for every flight and one for the eventfd, and is emptied by each
        // `wait`; a full queue would mean that two entries carry one mark.
        pushed.expect("the submission queue has room for every flight");
    }

    /// Submits the queue and waits for one completion or a wake-up.
    fn wait(&mut self, open: bool) {
        if open && !self.wake_armed {
            let fd = types::Fd(self.shared.wake.as_raw_fd());
            let into: *mut u64 = &mut *self.wake_value;
            let entry = opcode::Read::new(fd, into.cast(), 8).build().user_data(WAKE);
            self.push(&entry);
            self.wake_armed = true;
        }
        self.shared.waiting.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        // A request that came before `waiting` was seen has no wake-up of its own.
        let want = usize::from(self.requests.is_empty() || self.free.is_empty());
        if let Err(cause) = self.ring.submit_and_wait(want) {
            // EINTR, EAGAIN, EBUSY: the kernel is out of something for a moment; completions that
            // are there are taken next. The pause keeps a lasting refusal from burning a core.
            if cause.raw_os_error() != Some(libc::EINTR) {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        self.shared.waiting.store(false, Ordering::SeqCst);
    }

    fn reap(&mut self) {
        loop {
            // One at a time, so that the ring is not borrowed while an outcome is handled.
            let Some(entry) = self.ring.completion().next() else {
                return;
            };
            if entry.user_data() == WAKE {
                self.wake_armed = false;
                continue;
            }
            let index = entry.user_data() as usize;
            let flight =
                self.flights[index].take().expect("a completion belongs to exactly one flight");
            self.free.push(index);
            let outcome = match entry.result() {
                negative @ i32::MIN..=-1 => Err(io::Error::from_raw_os_error(-negative)),
                count => Ok(count as usize),
            };
            let request = &flight.pending.request;
            // SAFETY: the segment's memory belongs to the request until its completion, and the
            // kernel has finished with it.
            let outcome = unsafe { request.intercept(&flight.segment, outcome) };
            self.step(flight, outcome);
        }
    }

    fn step(&mut self, mut flight: Flight<T>, outcome: io::Result<usize>) {
        match flight.segment.advance(outcome, &mut flight.tally) {
            Step::Done => self.end(flight, None),
            // In front: what is half done is finished first.
            Step::Again => self.backlog.push_front(flight),
            Step::Failed(fault) => {
                let error = flight.pending.request.error(&flight.segment, fault);
                self.end(flight, Some(error));
            }
        }
    }

    fn end(&self, flight: Flight<T>, error: Option<IoError>) {
        let result = error.map_or(Ok(flight.tally), Err);
        if let Some(completion) = flight.pending.segment_ended(result) {
            // The request's hold on the file ends before its completion is seen.
            drop(flight);
            self.shared.outlet.deliver(completion);
        }
    }
}

impl<T: Transfer> Drop for Driver<T> {
    /// Waits until the kernel is done with all memory, after taking back the read of the eventfd.
    /// This also happens when the thread panics, because the owner of the engine may then free the
    /// memory.
    fn drop(&mut self) {
        while self.wake_armed || self.in_flight() > 0 {
            if self.wake_armed {
                self.shared.wake();
            }
            if self.ring.submit_and_wait(1).is_err() {
                std::thread::sleep(Duration::from_micros(100));
            }
            for entry in self.ring.completion() {
                if entry.user_data() == WAKE {
                    self.wake_armed = false;
                    continue;
                }
                let index = entry.user_data() as usize;
                if self.flights[index].take().is_some() {
                    self.free.push(index);
                }
            }
        }
    }
}
