//! The output buffers of consumers on the host.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;
use headrace_io::write::WriteAt;
use headrace_io::{Placement, Window};
use parking_lot::{Condvar, Mutex};

use crate::append::HEADROOM_BYTES;
use crate::cancel::LOOK_INTERVAL;
use crate::host::{Event, FilledWindow, Target};
use crate::slots::SlotRing;
use crate::stop::Stop;
use crate::{BoxError, OutputSpec, RaceError};

/// The output windows: allocated once, which bounds the output that waits to be written.
pub(crate) struct OutputRing {
    ring: SlotRing,
    free: Mutex<Free>,
    changed: Condvar,
}

struct Free {
    windows: Vec<usize>,
    /// The chunk for which the last free window is reserved, if chunks append: all other output waits for
    /// it.
    oldest: Option<usize>,
}

impl OutputRing {
    pub fn allocate(
        windows: usize,
        window_bytes: usize,
        appends: bool,
    ) -> Result<OutputRing, RaceError> {
        let windows = windows.max(1);
        let ring = SlotRing::allocate(windows, window_bytes.max(1), None)?;
        let free = Free { windows: (0..windows).collect(), oldest: appends.then_some(0) };
        Ok(OutputRing { ring, free: Mutex::new(free), changed: Condvar::new() })
    }

    pub fn windows(&self) -> usize {
        self.ring.slots()
    }

    pub fn window(&self, window: usize) -> Window {
        self.ring.window(window)
    }

    /// The window is free again. Must be called once for each window taken.
    pub fn give_back(&self, window: usize) {
        self.free.lock().windows.push(window);
        self.changed.notify_all();
    }

    /// Reserves the last window for this chunk from now on, or for none.
    pub fn keep_for(&self, oldest: Option<usize>) {
        let mut free = self.free.lock();
        if free.oldest != oldest {
            free.oldest = oldest;
            self.changed.notify_all();
        }
    }

    /// A free window, without waiting; no other thread takes one now.
    pub fn take_last(&self) -> Option<usize> {
        self.free.lock().windows.pop()
    }

    /// A window for a chunk; waits until there is one, or `is_over`.
    fn take(&self, chunk: usize, is_over: impl Fn() -> bool) -> Option<usize> {
        let mut free = self.free.lock();
        loop {
            let kept = usize::from(free.oldest.is_some_and(|oldest| oldest != chunk));
            if free.windows.len() > kept {
                return free.windows.pop();
            }
            self.changed.wait_for(&mut free, LOOK_INTERVAL);
            if is_over() {
                return None;
            }
        }
    }
}

/// The output of one chunk's consumer; see [`HostProducer`](crate::HostProducer).
pub struct Outbox<'a> {
    ring: Option<&'a OutputRing>,
    sinks: &'a [Arc<dyn WriteAt>],
    stop: &'a Stop,
    events: &'a Sender<Event>,
    chunk: usize,
    appends: bool,
    waited_ns: u64,
}

impl<'a> Outbox<'a> {
    pub(crate) fn new(
        ring: Option<&'a OutputRing>,
        (sinks, appends): (&'a [Arc<dyn WriteAt>], bool),
        stop: &'a Stop,
        events: &'a Sender<Event>,
        chunk: usize,
    ) -> Self {
        Outbox { ring, sinks, stop, events, chunk, appends, waited_ns: 0 }
    }

    pub(crate) fn waited_ns(&self) -> u64 {
        self.waited_ns
    }

    /// Memory for an output; waits for it if necessary. It holds the bytes of an earlier output,
    /// and all of it will be written. A buffer that is dropped instead of
    /// [sent](OutputBuffer::send) is not written.
    ///
    /// Each buffer is one of the race's `output_slots`: a consumer that holds several at a time
    /// needs more slots than all consumers hold together.
    ///
    /// # Errors
    /// [`RaceError::BadOutput`] if the race has no such sink, its chunks append, the output lies outside of it
    /// or is larger than a window; an error if the race has failed meanwhile. Propagate it.
    pub fn buffer(&mut self, output: OutputSpec) -> Result<OutputBuffer<'a>, BoxError> {
        if self.appends {
            return Err(self.bad("the race's chunks append to its sinks").into());
        }
        output.check(self.chunk, self.sinks, self.window_bytes())?;
        let head_bytes = Placement::of(output.offset, output.bytes).head_bytes;
        self.take(Target::At(output), head_bytes, output.bytes as usize)
    }

    /// Memory for the next piece that this chunk appends to a sink, of up to `bytes` bytes (at most
    /// [`append_bytes_max`](Outbox::append_bytes_max)); waits for it if necessary. Like
    /// [`buffer`](Outbox::buffer), but one at a time: what is [sent](OutputBuffer::send_first) follows in the
    /// sink what earlier chunks, and earlier pieces of this one, appended.
    ///
    /// # Errors
    /// [`RaceError::BadOutput`] if the race has no such sink, its chunks do not append, or the piece is larger than
    /// a window; an error if the race has failed meanwhile. Propagate it.
    pub fn append(&mut self, sink: usize, bytes: usize) -> Result<OutputBuffer<'_>, BoxError> {
        if !self.appends {
            return Err(self.bad("the race's chunks say where their output goes").into());
        }
        if sink >= self.sinks.len() {
            return Err(self.bad(&format!("sink {sink} of {}", self.sinks.len())).into());
        }
        let bytes_max = self.append_bytes_max();
        if bytes > bytes_max {
            let what = format!("a piece of {bytes} bytes where windows have room for {bytes_max}");
            return Err(self.bad(&what).into());
        }
        self.take(Target::End { sink }, HEADROOM_BYTES, bytes)
    }

    /// Maximum bytes of a piece.
    pub fn append_bytes_max(&self) -> usize {
        self.window_bytes().saturating_sub(HEADROOM_BYTES)
    }

    fn window_bytes(&self) -> usize {
        self.ring.map_or(0, |ring| ring.window(0).bytes())
    }

    fn bad(&self, what: &str) -> RaceError {
        RaceError::BadOutput { chunk: self.chunk, what: what.to_string() }
    }

    fn take(
        &mut self,
        target: Target,
        at: usize,
        bytes: usize,
    ) -> Result<OutputBuffer<'a>, BoxError> {
        let Some(ring) = self.ring else {
            return Err("the race has no sinks".into());
        };
        let waiting = Instant::now();
        // Cancellation counts as failure once somebody has looked at the token.
        let window = ring.take(self.chunk, || self.stop.is_stopped() && self.stop.has_failed());
        let window = window.ok_or("the race has ended")?;
        self.waited_ns += waiting.elapsed().as_nanos() as u64;
        let (events, chunk) = (self.events, self.chunk);
        Ok(OutputBuffer { ring, events, chunk, window: Some(window), target, at, bytes })
    }
}

/// Memory that will be written; see [`Outbox::buffer`] and [`Outbox::append`].
pub struct OutputBuffer<'a> {
    ring: &'a OutputRing,
    events: &'a Sender<Event>,
    chunk: usize,
    /// `None` once it was handed over.
    window: Option<usize>,
    target: Target,
    /// The place in the window; the range was checked to lie inside it.
    at: usize,
    bytes: usize,
}

impl OutputBuffer<'_> {
    /// Submits all of the bytes for writing; returns at once.
    pub fn send(self) {
        let bytes = self.bytes;
        self.send_first(bytes);
    }

    /// Submits the first `bytes` bytes for writing; returns at once.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn send_first(mut self, bytes: usize) {
        assert!(bytes <= self.bytes, "{bytes} bytes of an output of {}", self.bytes);
        if let Some(window) = self.window.take() {
            let (chunk, target) = (self.chunk, self.target);
            // The driver listens as long as it cares for output.
            let _ = self.events.send(Event::Filled(FilledWindow { chunk, window, target, bytes }));
        }
    }

    /// Address of the first byte.
    fn start(&self) -> *mut u8 {
        let window = self.window.map(|window| self.ring.window(window));
        // `None` is only seen by the drop.
        window.map_or(std::ptr::NonNull::dangling().as_ptr(), |window| {
            window.as_ptr().wrapping_add(self.at)
        })
    }

    fn len(&self) -> usize {
        if self.window.is_some() { self.bytes } else { 0 }
    }
}

impl Deref for OutputBuffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in a window of the ring, which outlives the buffer, is
        // initialised (anonymous memory) and belongs to this buffer alone until it is handed over
        // or given back.
        unsafe { std::slice::from_raw_parts(self.start(), self.len()) }
    }
}

impl DerefMut for OutputBuffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes it the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len()) }
    }
}

impl Drop for OutputBuffer<'_> {
    fn drop(&mut self) {
        if let Some(window) = self.window.take() {
            self.ring.give_back(window);
        }
    }
}
