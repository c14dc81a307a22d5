//! The race on the host: one thread drives reads and writes, one thread per consumer computes.

mod consume;
mod consumer;
mod crew;
mod driver;
mod event;
mod shared;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_channel::unbounded;
use headrace_io::{ReadAt, Transferred};

use crate::feed::{Bell, Chunks};
use crate::outbox::OutputRing;
use crate::report::Tally;
use crate::slots::SlotRing;
use crate::stop::{FailOnPanic, Stop};
use crate::work_queue::WorkQueue;
use crate::{BytesByPath, Race, RaceError, RaceReport};
use consumer::Silent;
pub use consumer::{HostConsumer, HostProducer};
use crew::Crew;
use driver::Driver;
pub(crate) use event::{Event, FilledWindow, Target};
use shared::{Meter, Shared};

/// Chunks in memory that wait or are being processed, per consumer: enough that none waits for the
/// driver, and few enough to bound their bookkeeping and a producer's lead.
const PATIENT_PER_CONSUMER: usize = 8;

impl<P: Default + Send> Race<P> {
    /// Hands every chunk to one of the consumers, each on its own thread, and returns the
    /// consumers. The calling thread drives the reads.
    ///
    /// # Errors
    /// The first error; see [`RaceError`]. The consumers' results are then invalid.
    pub fn run_host<C: HostConsumer<P>>(
        &self,
        consumers: Vec<C>,
    ) -> Result<(Vec<C>, RaceReport), RaceError> {
        let silent = consumers.into_iter().map(Silent).collect();
        let (consumers, report) = self.run_host_writing(silent)?;
        Ok((consumers.into_iter().map(|Silent(consumer)| consumer).collect(), report))
    }

    /// Like [`run_host`](Race::run_host), with consumers that produce output: see
    /// [`with_outputs`](Race::with_outputs). The calling thread drives reads and writes.
    ///
    /// # Errors
    /// The first error; see [`RaceError`].
    pub fn run_host_writing<C: HostProducer<P>>(
        &self,
        mut producers: Vec<C>,
    ) -> Result<(Vec<C>, RaceReport), RaceError> {
        if producers.is_empty() {
            return Err(RaceError::NoConsumer);
        }
        let start = Instant::now();
        let chunks = Chunks::of(self)?;
        let bounds = self.bounds;
        let chunks_max = bounds.chunks.map_or(usize::MAX, |chunks| chunks as usize);
        let slots = self.options.slots.min(chunks_max).max(1);
        let slot_bytes = self.options.slot_bytes.unwrap_or(usize::MAX).min(bounds.slot_bytes);
        let ring = SlotRing::allocate(slots, slot_bytes, self.options.memory.as_ref())?;
        let slots = ring.slots();
        let outputs = if self.sinks.is_empty() {
            None
        } else {
            let (windows, window_bytes) =
                (self.options.output_slots, self.options.output_slot_bytes);
            Some(OutputRing::allocate(windows, window_bytes, self.appends)?)
        };
        let (events, inbox) = unbounded();
        let bell = Bell::new(|| Event::Fed);
        bell.add(events.clone());
        let patient_max = PATIENT_PER_CONSUMER.saturating_mul(producers.len());
        let shared = Shared {
            race: self,
            start,
            stop: Stop::new(self.token.clone()),
            queue: WorkQueue::with_capacity(slots, patient_max.min(chunks_max)),
            events,
            outputs,
            patient_max,
            meter: Meter { first_chunk_ns: AtomicU64::new(u64::MAX), ..Meter::default() },
        };
        let (mut tally, mut counts) = (Tally::default(), (0, 0));
        headrace_io::scope(|scope| {
            // Dropped last in this closure, so that the producers end when the driver has.
            let _close = shared.queue.close_on_drop();
            let _fail = FailOnPanic(&shared.stop);
            let mut crew = Crew::new(scope, &shared, &mut producers);
            let mut call = || crew.call();
            tally = Driver::new(&shared, &ring, inbox, (chunks, bell.into()), &mut call).run();
            counts = crew.counts();
        });
        self.verify_files(shared.stop.take_error())?;
        fill_report(&mut tally.report, &shared, counts);
        let report = tally.finish(start.elapsed().as_nanos() as u64);
        Ok((producers, report))
    }
}

fn fill_report<P>(report: &mut RaceReport, shared: &Shared<'_, P>, consumers: (usize, usize)) {
    let meter = &shared.meter;
    let (chunks, bytes_by_path) = *meter.consumed.lock();
    report.chunks = chunks;
    report.bytes_by_path = bytes_by_path;
    report.first_chunk_ns = match meter.first_chunk_ns.load(Ordering::Relaxed) {
        u64::MAX => 0,
        ns => ns,
    };
    (report.consumers_min, report.consumers) = consumers;
    report.execute_busy_ns = meter.busy_ns.load(Ordering::Relaxed);
    report.write_wait_ns = meter.output_wait_ns.load(Ordering::Relaxed);
    report.execute_wait_ns = meter.wait_ns.load(Ordering::Relaxed);
    report.ended_early = meter.enough.load(Ordering::Relaxed) > 0;
}

impl BytesByPath {
    /// A read of `wanted` bytes, split by the access paths that its parts really took. Widened
    /// bytes are not wanted bytes: they are all on the O_DIRECT side.
    pub(crate) fn add_read(&mut self, file: &dyn ReadAt, wanted: u64, done: &Transferred) {
        if file.is_made() {
            self.decoded += wanted;
            return;
        }
        if file.source().is_remote() {
            self.remote += wanted;
            return;
        }
        let buffered = done.buffered_bytes.min(wanted);
        self.buffered += buffered;
        self.direct += wanted - buffered;
    }
}
