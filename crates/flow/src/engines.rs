//! The readers of a race: started when the first extent needs them.

use std::sync::Arc;

use headrace_io::{
    Completion, CompletionSink, NoEngine, Placement, ReadRequest, Transferred, Window,
};

use crate::report::{Latencies, Reasons, Stopwatch, Tally};
use crate::{AccessPath, RaceError, RaceOptions};

/// Registration pins the memory, which costs about as much as copying it: worthwhile only if each
/// slot is used at least this often.
const REGISTER_USES_MIN: u64 = 32;

/// The engines and their counters.
pub(crate) struct Engines<'a> {
    options: &'a RaceOptions,
    engines: headrace_io::Engines<ReadRequest>,
    /// Reads that were begun here.
    in_flight: usize,
    /// Everything else that fills slots: reads by the device, registrations.
    elsewhere: usize,
    busy: Stopwatch,
    waiting: Stopwatch,
    latencies: Latencies,
    requests: u64,
    totals: Transferred,
    read_bytes: u64,
    /// Read by the device's own reader.
    elsewhere_bytes: u64,
    host_copied_bytes: u64,
}

impl<'a> Engines<'a> {
    /// # Safety
    /// The slots must outlive the value.
    pub unsafe fn new(
        options: &'a RaceOptions,
        slots: &[Window],
        total_bytes: u64,
        readers: usize,
        sink: CompletionSink,
    ) -> Self {
        let slots_bytes: u64 = slots.iter().map(|slot| slot.bytes() as u64).sum();
        let used_often = slots_bytes > 0 && total_bytes / slots_bytes >= REGISTER_USES_MIN;
        // With a cache, cold extents are read into its memory.
        let into_slots = options.access != AccessPath::Auto || options.cache.is_none();
        let worth_it = used_often && into_slots;
        let register = if worth_it { slots.to_vec() } else { Vec::new() };
        let (direct_engine, uring) = (options.direct_engine, options.uring());
        // SAFETY: the caller's promise: the slots outlive this value.
        let engines =
            unsafe { headrace_io::Engines::new(direct_engine, readers, uring, register, sink) };
        Engines {
            options,
            engines,
            in_flight: 0,
            elsewhere: 0,
            requests: 0,
            busy: Stopwatch::default(),
            waiting: Stopwatch::default(),
            latencies: Latencies::default(),
            totals: Transferred::default(),
            read_bytes: 0,
            elsewhere_bytes: 0,
            host_copied_bytes: 0,
        }
    }

    /// Begins a read.
    ///
    /// # Safety
    /// As [`headrace_io::Engine::submit`], with this value in place of the engine.
    pub unsafe fn submit(
        &mut self,
        request: ReadRequest,
        reasons: &mut Reasons,
    ) -> Result<(), RaceError> {
        let requests = requests_of(&request, self.options.segment_bytes);
        // SAFETY: the caller's promise.
        unsafe { self.submit_copy(request, reasons) }?;
        self.requests += requests;
        Ok(())
    }

    /// Begins to copy from memory: for the engines an ordinary read, but not a request to the
    /// kernel, and not counted as one.
    ///
    /// # Safety
    /// As for [`submit`](Engines::submit).
    pub unsafe fn submit_copy(
        &mut self,
        request: ReadRequest,
        reasons: &mut Reasons,
    ) -> Result<(), RaceError> {
        // What was copied into the cache lies in memory, wherever it came from.
        let is_fetched = request.file.source().is_remote() && !request.file.is_in_memory();
        let engine = match is_fetched {
            true => self.engines.fetching(),
            false => self.engines.of(request.mode),
        };
        let begun = match engine {
            Ok(engine) => {
                // SAFETY: the caller's promise.
                unsafe { engine.submit(request) };
                Ok(())
            }
            Err(NoEngine::Threads(cause)) => Err(RaceError::StartUp(cause)),
            Err(NoEngine::Uring(refusal)) => Err(RaceError::PathUnavailable {
                access: AccessPath::Direct,
                file: request.file.path().display().to_string(),
                reason: refusal.to_string(),
            }),
        };
        self.engines.take_reasons().into_iter().for_each(|reason| reasons.add(reason));
        begun?;
        self.in_flight += 1;
        self.set_busy();
        Ok(())
    }

    /// Something other than the engines has begun to fill a slot.
    pub fn begun_elsewhere(&mut self) {
        self.elsewhere += 1;
        self.set_busy();
    }

    /// It has ended, with its bytes if they were read from a file.
    pub fn ended_elsewhere(&mut self, read: Option<(u64, u64, u64)>) {
        self.elsewhere -= 1;
        self.set_busy();
        if let Some((bytes, requests, latency_ns)) = read {
            self.latencies.add(latency_ns);
            self.elsewhere_bytes += bytes;
            self.read_bytes += bytes;
            self.requests += requests;
        }
    }

    fn set_busy(&mut self) {
        let busy = self.in_flight + self.elsewhere > 0;
        self.busy.set(busy);
        if busy {
            self.waiting.set(false);
        }
    }

    /// Records a completion. Must be called for each one. Copies from memory count in the stage's
    /// time, not in the bytes of files.
    pub fn completed(&mut self, completion: &Completion, wanted_bytes: u64, from_memory: bool) {
        self.in_flight -= 1;
        self.set_busy();
        if from_memory {
            self.host_copied_bytes += wanted_bytes;
            return;
        }
        self.latencies.add(completion.latency_ns);
        if let Ok(done) = &completion.result {
            self.totals.direct_bytes += done.direct_bytes;
            self.totals.buffered_bytes += done.buffered_bytes;
            self.totals.direct_refused_bytes += done.direct_refused_bytes;
            self.totals.short += done.short;
            self.read_bytes += wanted_bytes;
        }
    }

    /// Records whether there is something to read without a free slot.
    pub fn starved(&mut self, starved: bool) {
        self.waiting.set(starved && self.in_flight + self.elsewhere == 0);
    }

    /// Reads in progress in the engines.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub fn cancel_queued(&self) {
        self.engines.cancel_queued();
    }

    pub fn fill_tally(&self, tally: &mut Tally) {
        tally.reads = self.latencies.clone();
        let report = &mut tally.report;
        report.transferred_bytes =
            self.totals.direct_bytes + self.totals.buffered_bytes + self.elsewhere_bytes;
        report.read_requests = self.requests;
        report.read_bytes = self.read_bytes;
        report.host_copied_bytes = self.host_copied_bytes;
        report.read_busy_ns = self.busy.total_ns();
        report.read_wait_ns = self.waiting.total_ns();
        report.short_reads = self.totals.short;
        report.direct_refused_bytes = self.totals.direct_refused_bytes;
        report.engines.extend_from_slice(self.engines.used());
    }
}

/// Kernel requests per read.
fn requests_of(request: &ReadRequest, segment_bytes: usize) -> u64 {
    let window_bytes = Placement::of(request.offset, request.bytes).window_bytes;
    window_bytes.div_ceil(segment_bytes.max(1)) as u64
}

/// A sink that turns completions into events of a race.
pub(crate) fn sink_into<C, E: Send + 'static>(
    events: crossbeam_channel::Sender<E>,
    event: fn(C) -> E,
) -> Arc<dyn Fn(C) + Send + Sync>
where
    C: 'static,
{
    Arc::new(move |completion| {
        // Nobody listens any more only if the race is being unwound; the engines are then
        // dropped, which waits for the transfers all the same.
        let _ = events.send(event(completion));
    })
}

/// The tag of a read or write of a slot.
pub(crate) fn tag(slot: usize, buffer: usize) -> u64 {
    (slot as u64) << 32 | buffer as u64
}

pub(crate) fn untag(tag: u64) -> (usize, usize) {
    ((tag >> 32) as usize, (tag & u64::from(u32::MAX)) as usize)
}
