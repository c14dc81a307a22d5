//! Where consumers on the host put what is to be written.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use headrace_io::write::WriteAt;
use headrace_io::{Placement, Window};

use crate::cancel::LOOK_INTERVAL;
use crate::host::{Event, FilledWindow, Shared};
use crate::slots::SlotRing;
use crate::stop::Stop;
use crate::{BoxError, OutputSpec, RaceError};

/// The windows for output: allocated once, which bounds what waits to be written.
pub(crate) struct OutputRing {
    ring: SlotRing,
    free: (Sender<usize>, Receiver<usize>),
}

impl OutputRing {
    pub fn allocate(windows: usize, window_bytes: usize) -> Result<OutputRing, RaceError> {
        let windows = windows.max(1);
        let ring = SlotRing::allocate(windows, window_bytes.max(1), None)?;
        let free = bounded(windows);
        let output_ring = OutputRing { ring, free };
        (0..windows).for_each(|window| output_ring.give_back(window));
        Ok(output_ring)
    }

    pub fn windows(&self) -> usize {
        self.ring.slots()
    }

    pub fn window(&self, window: usize) -> Window {
        self.ring.window(window)
    }

    /// The window is free again. Must be called once for each one that was taken.
    pub fn give_back(&self, window: usize) {
        // There is room for all of them, and both ends live as long as the ring.
        let _ = self.free.0.try_send(window);
    }
}

/// What a consumer of one chunk may put out; see [`HostProducer`](crate::HostProducer).
pub struct Outbox<'a> {
    ring: Option<&'a OutputRing>,
    sinks: &'a [Arc<dyn WriteAt>],
    stop: &'a Stop,
    events: &'a Sender<Event>,
    chunk: usize,
    waited_ns: u64,
}

impl<'a> Outbox<'a> {
    pub(crate) fn new(shared: &'a Shared<'a>, chunk: usize) -> Self {
        Outbox {
            ring: shared.outputs.as_ref(),
            sinks: &shared.race.sinks,
            stop: &shared.stop,
            events: &shared.events,
            chunk,
            waited_ns: 0,
        }
    }

    pub(crate) fn waited_ns(&self) -> u64 {
        self.waited_ns
    }

    /// Memory for an output; waits until there is some. Holds whatever an earlier output left:
    /// all of it will be written. A buffer that is dropped instead of [sent](OutputBuffer::send)
    /// is not.
    ///
    /// Each buffer is one of the race's `output_slots`: whoever holds several at a time must be
    /// sure that there are more than all consumers hold.
    ///
    /// # Errors
    /// [`RaceError::BadOutput`] if the race has no such sink, the output lies outside of it or is
    /// larger than a window; an error if the race has failed meanwhile. Hand it on.
    pub fn buffer(&mut self, output: OutputSpec) -> Result<OutputBuffer<'a>, BoxError> {
        let window_bytes = self.ring.map_or(0, |ring| ring.window(0).bytes());
        output.check(self.chunk, self.sinks, window_bytes)?;
        let Some(ring) = self.ring else {
            return Err("the race has no sinks".into());
        };
        let waiting = Instant::now();
        let window = loop {
            if let Ok(window) = ring.free.1.recv_timeout(LOOK_INTERVAL) {
                break window;
            }
            // Cancellation counts as failure once somebody has looked at the token.
            if self.stop.is_stopped() && self.stop.has_failed() {
                return Err("the race has ended".into());
            }
        };
        self.waited_ns += waiting.elapsed().as_nanos() as u64;
        Ok(OutputBuffer {
            ring,
            events: self.events,
            chunk: self.chunk,
            window: Some(window),
            output,
        })
    }
}

/// Memory that will be written; see [`Outbox::buffer`].
pub struct OutputBuffer<'a> {
    ring: &'a OutputRing,
    events: &'a Sender<Event>,
    chunk: usize,
    /// `None` once it was handed over.
    window: Option<usize>,
    output: OutputSpec,
}

impl OutputBuffer<'_> {
    /// Hands the bytes over to be written; returns at once.
    pub fn send(mut self) {
        if let Some(window) = self.window.take() {
            let filled = FilledWindow { chunk: self.chunk, window, output: self.output };
            // The driver listens as long as it cares for output.
            let _ = self.events.send(Event::Filled(filled));
        }
    }

    /// Address of the first byte.
    fn start(&self) -> *mut u8 {
        let OutputSpec { offset, bytes, .. } = self.output;
        let head_bytes = Placement::of(offset, bytes).head_bytes;
        let window = self.window.map(|window| self.ring.window(window));
        // Inside the window, because the output was checked to fit. `None` is only seen by the
        // drop.
        window.map_or(std::ptr::NonNull::dangling().as_ptr(), |window| {
            window.as_ptr().wrapping_add(head_bytes)
        })
    }
}

impl Deref for OutputBuffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = if self.window.is_some() { self.output.bytes as usize } else { 0 };
        // SAFETY: the range lies in a window of the ring, which outlives the buffer, is
        // initialised (anonymous memory) and belongs to this buffer alone until it is handed over
        // or given back.
        unsafe { std::slice::from_raw_parts(self.start(), bytes) }
    }
}

impl DerefMut for OutputBuffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = if self.window.is_some() { self.output.bytes as usize } else { 0 };
        // SAFETY: as for `deref`, and `&mut self` makes it the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start(), bytes) }
    }
}

impl Drop for OutputBuffer<'_> {
    fn drop(&mut self) {
        if let Some(window) = self.window.take() {
            self.ring.give_back(window);
        }
    }
}
