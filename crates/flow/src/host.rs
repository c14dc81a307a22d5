//! The race on the host: one thread drives the reads, one thread per consumer computes.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use headrace_io::{Completion, IoError, MappedFile, ReadDone, ReadRequest, Window, block_signals};
use parking_lot::Mutex;

use crate::cache::{CachedRange, Reservation};
use crate::cancel::LOOK_INTERVAL;
use crate::choose::{Chooser, Way};
use crate::engines::{Engines, sink_into};
use crate::slots::{SlotLayout, SlotRing};
use crate::stop::{Stop, panic_message};
use crate::work_queue::WorkQueue;
use crate::{BytesByPath, ChunkSpec, HostConsumer, Race, RaceError, RaceReport, ReadSpec, Verdict};

/// Chunks that lie in memory and wait for a consumer: bounds the bookkeeping, not the buffers.
const PATIENT_MAX: usize = 1024;

/// What wakes the driver.
enum Event {
    Read(Completion),
    /// A chunk was consumed or discarded; its slot, if it had one, is free.
    Consumed {
        slot: Option<usize>,
    },
}

/// Where a buffer of a chunk lies.
enum Place {
    Nothing,
    Mapped(Arc<MappedFile>),
    Cached(Arc<CachedRange>),
    /// Exactly the wanted bytes, in a slot.
    Slot(Window),
}

/// A chunk whose bytes are all in memory.
struct Ready {
    chunk: usize,
    slot: Option<usize>,
    places: Vec<Place>,
    /// By path, once it is consumed.
    bytes: BytesByPath,
}

/// What driver and consumers share.
struct Shared<'a> {
    race: &'a Race,
    start: Instant,
    stop: Stop,
    queue: WorkQueue<Ready>,
    events: Sender<Event>,
    meter: Meter,
}

#[derive(Default)]
struct Meter {
    first_chunk_ns: AtomicU64,
    busy_ns: AtomicU64,
    wait_ns: AtomicU64,
    consumed: Mutex<(u64, BytesByPath)>,
    enough: AtomicU64,
}

pub(crate) fn run<C: HostConsumer>(
    race: &Race,
    mut consumers: Vec<C>,
) -> Result<(Vec<C>, RaceReport), RaceError> {
    if consumers.is_empty() {
        return Err(RaceError::NoConsumer);
    }
    let start = Instant::now();
    let largest = race.chunks.iter().map(ChunkSpec::slot_bytes).max().unwrap_or(0);
    let slots = race.options.slots.max(1).min(race.chunks.len());
    let ring = SlotRing::allocate(slots, race.options.slot_bytes.unwrap_or(largest).min(largest))?;
    let (events, inbox) = unbounded();
    let shared = Shared {
        race,
        start,
        stop: Stop::new(race.token.clone()),
        queue: WorkQueue::with_capacity(slots, PATIENT_MAX.min(race.chunks.len())),
        events,
        meter: Meter { first_chunk_ns: AtomicU64::new(u64::MAX), ..Meter::default() },
    };
    let mut report = RaceReport::default();
    std::thread::scope(|scope| {
        // Dropped last in this closure, so that the consumers end when the driver has.
        let _close = shared.queue.close_on_drop();
        for (number, consumer) in consumers.iter_mut().enumerate() {
            let shared = &shared;
            let started = std::thread::Builder::new()
                .name(format!("execute-{number}"))
                .spawn_scoped(scope, move || work(shared, number, consumer));
            if let Err(cause) = started {
                shared.stop.fail(RaceError::StartUp(IoError::Thread { cause }));
                return;
            }
        }
        report = Driver::new(&shared, &ring, inbox).run();
    });
    race.verify_files(shared.stop.take_error())?;
    fill_report(&mut report, &shared, consumers.len());
    Ok((consumers, report))
}

fn fill_report(report: &mut RaceReport, shared: &Shared<'_>, consumers: usize) {
    let meter = &shared.meter;
    let (chunks, bytes_by_path) = *meter.consumed.lock();
    report.wall_ns = shared.start.elapsed().as_nanos() as u64;
    report.chunks = chunks;
    report.bytes_by_path = bytes_by_path;
    report.first_chunk_ns = match meter.first_chunk_ns.load(Ordering::Relaxed) {
        u64::MAX => 0,
        ns => ns,
    };
    report.consumers = consumers;
    report.execute_busy_ns = meter.busy_ns.load(Ordering::Relaxed);
    report.execute_wait_ns = meter.wait_ns.load(Ordering::Relaxed);
    report.ended_early = meter.enough.load(Ordering::Relaxed) > 0;
}

/// What a consumer's thread does.
fn work<C: HostConsumer>(shared: &Shared<'_>, number: usize, consumer: &mut C) {
    block_signals();
    loop {
        let waiting = Instant::now();
        let Some(ready) = shared.queue.pop() else {
            return;
        };
        shared.meter.wait_ns.fetch_add(waiting.elapsed().as_nanos() as u64, Ordering::Relaxed);
        if !shared.stop.is_stopped() {
            consume(shared, number, consumer, &ready);
        }
        let slot = ready.slot;
        drop(ready);
        // The driver listens as long as it cares for slots.
        let _ = shared.events.send(Event::Consumed { slot });
    }
}

fn consume<C: HostConsumer>(shared: &Shared<'_>, number: usize, consumer: &mut C, ready: &Ready) {
    let chunk = ready.chunk;
    let reads = &shared.race.chunks[chunk].reads;
    let buffers: Result<Vec<&[u8]>, IoError> =
        ready.places.iter().zip(reads).map(|(place, read)| place.bytes(read)).collect();
    let buffers = match buffers {
        Ok(buffers) => buffers,
        Err(source) => return shared.stop.fail(RaceError::Read { chunk, source }),
    };
    let begin = Instant::now();
    let since_start = begin.saturating_duration_since(shared.start).as_nanos() as u64;
    shared.meter.first_chunk_ns.fetch_min(since_start, Ordering::Relaxed);
    // A consumer that panicked is never used again: the race fails and does not return it.
    let outcome = catch_unwind(AssertUnwindSafe(|| consumer.consume(chunk, &buffers)));
    shared.meter.busy_ns.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
    if let Some(trace) = &shared.race.options.trace {
        let track = format!("execute {number}");
        trace.record(track, "execute", begin, chunk, ready.slot, ready.bytes.total());
    }
    // First of all: what was consumed may not have been the file's bytes, and any complaint of
    // the consumer would only be a consequence.
    if let Err(source) = check_mappings(ready) {
        return shared.stop.fail(RaceError::Read { chunk, source });
    }
    release_mapped(shared, ready, reads);
    match outcome {
        Err(payload) => {
            let message = panic_message(&*payload);
            shared.stop.fail(RaceError::Panic { chunk: Some(chunk), message });
        }
        Ok(Err(source)) => shared.stop.fail(RaceError::Consumer { chunk, source }),
        Ok(Ok(verdict)) => {
            let mut consumed = shared.meter.consumed.lock();
            consumed.0 += 1;
            consumed.1.add(&ready.bytes);
            if verdict == Verdict::Enough {
                shared.meter.enough.store(1, Ordering::Relaxed);
                shared.stop.enough();
            }
        }
    }
}

impl Place {
    fn bytes<'r>(&'r self, read: &ReadSpec) -> Result<&'r [u8], IoError> {
        match self {
            Place::Nothing => Ok(&[]),
            Place::Mapped(mapped) => mapped.bytes(read.offset, read.bytes),
            Place::Cached(range) => Ok(range.bytes()),
            Place::Slot(window) => {
                // SAFETY: the window lies in a slot that belongs to this chunk from the end of
                // its reads until the slot is handed back, which is after the last use of the
                // slice; the memory is initialised, for it is anonymous, and the ring outlives
                // all threads.
                Ok(unsafe { std::slice::from_raw_parts(window.as_ptr(), window.bytes()) })
            }
        }
    }
}

fn check_mappings(ready: &Ready) -> Result<(), IoError> {
    ready.places.iter().try_for_each(|place| match place {
        Place::Mapped(mapped) => mapped.check(),
        _ => Ok(()),
    })
}

fn release_mapped(shared: &Shared<'_>, ready: &Ready, reads: &[ReadSpec]) {
    if !shared.race.options.release_mapped {
        return;
    }
    for (place, read) in ready.places.iter().zip(reads) {
        if let Place::Mapped(mapped) = place {
            mapped.release(read.offset..read.offset + read.bytes);
        }
    }
}

/// A chunk that is being read into a slot.
struct Reading {
    chunk: usize,
    started: Instant,
    reads_left: usize,
    places: Vec<Place>,
    /// Memory of the cache that is being filled, by buffer.
    reservations: Vec<Option<Reservation>>,
    bytes: BytesByPath,
}

/// A chunk with the way of each buffer, which waits for a slot.
struct Cold {
    chunk: usize,
    ways: Vec<Way>,
}

/// The driver: chooses ways, begins reads, hands chunks out.
struct Driver<'a> {
    // First, so that it is dropped first: the engines end before the memory they write to, which
    // is in `reading` (the cache's) and in the ring (which the caller holds).
    engines: Engines<'a>,
    shared: &'a Shared<'a>,
    ring: &'a SlotRing,
    inbox: Receiver<Event>,
    chooser: Chooser<'a>,
    /// The next chunk to look at.
    next: usize,
    cold: VecDeque<Cold>,
    /// By slot.
    reading: Vec<Option<Reading>>,
    free: Vec<usize>,
    patient: usize,
}

impl<'a> Driver<'a> {
    fn new(shared: &'a Shared<'a>, ring: &'a SlotRing, inbox: Receiver<Event>) -> Self {
        let race = shared.race;
        let sink = sink_into(shared.events.clone(), Event::Read);
        // SAFETY: the ring outlives the driver, which borrows it.
        let engines = unsafe { Engines::new(&race.options, &[ring.whole()], race.bytes(), sink) };
        Driver {
            engines,
            shared,
            ring,
            inbox,
            chooser: Chooser::new(&race.files, &race.options, true),
            next: 0,
            cold: VecDeque::with_capacity(ring.slots()),
            reading: (0..ring.slots()).map(|_| None).collect(),
            free: (0..ring.slots()).rev().collect(),
            patient: 0,
        }
    }

    /// Until every chunk is handed out, or the race is stopped; then until no read is under way.
    fn run(mut self) -> RaceReport {
        while !self.shared.stop.is_stopped() {
            if let Err(error) = self.advance() {
                self.shared.stop.fail(error);
                break;
            }
            let all_seen = self.next == self.shared.race.chunks.len() && self.cold.is_empty();
            if all_seen && self.engines.in_flight() == 0 {
                break;
            }
            self.wait();
        }
        self.drain();
        let mut report = RaceReport::default();
        self.engines.fill_report(&mut report);
        report.path_reasons = std::mem::take(&mut self.chooser.reasons).into_texts();
        report
    }

    /// Does all that can be done without waiting.
    fn advance(&mut self) -> Result<(), RaceError> {
        self.begin_cold()?;
        // Looks past cold chunks that wait for a slot, so that consumers have work meanwhile.
        while self.next < self.shared.race.chunks.len()
            && self.patient < PATIENT_MAX
            && self.cold.len() < self.ring.slots()
            && !self.shared.stop.is_stopped()
        {
            let chunk = self.next;
            self.next += 1;
            let reads = &self.shared.race.chunks[chunk].reads;
            let ways: Vec<Way> =
                reads.iter().map(|read| self.chooser.choose(read)).collect::<Result<_, _>>()?;
            if ways.iter().any(|way| matches!(way, Way::Read { .. })) {
                self.cold.push_back(Cold { chunk, ways });
                self.begin_cold()?;
            } else {
                self.hand_out_in_place(chunk, ways);
            }
        }
        let starved = !self.cold.is_empty();
        self.engines.starved(starved);
        Ok(())
    }

    fn hand_out_in_place(&mut self, chunk: usize, ways: Vec<Way>) {
        let reads = &self.shared.race.chunks[chunk].reads;
        let mut bytes = BytesByPath::default();
        let places = ways
            .into_iter()
            .zip(reads)
            .map(|(way, read)| in_place(way, read, &mut bytes).unwrap_or(Place::Nothing))
            .collect();
        self.patient += 1;
        self.shared.queue.push_patient(Ready { chunk, slot: None, places, bytes });
    }

    fn begin_cold(&mut self) -> Result<(), RaceError> {
        while !self.cold.is_empty() {
            let Some(slot) = self.free.pop() else {
                return Ok(());
            };
            let Some(cold) = self.cold.pop_front() else {
                return Ok(());
            };
            self.begin(slot, cold)?;
        }
        Ok(())
    }

    fn begin(&mut self, slot: usize, cold: Cold) -> Result<(), RaceError> {
        let race = self.shared.race;
        let chunk = cold.chunk;
        let reads = &race.chunks[chunk].reads;
        let mut layout = SlotLayout::new(self.ring.window(slot));
        let mut reading = Reading {
            chunk,
            started: Instant::now(),
            reads_left: 0,
            places: Vec::with_capacity(reads.len()),
            reservations: Vec::with_capacity(reads.len()),
            bytes: BytesByPath::default(),
        };
        let mut requests = Vec::with_capacity(reads.len());
        for (buffer, (way, read)) in cold.ways.into_iter().zip(reads).enumerate() {
            let Way::Read { mode, admit } = way else {
                let place = in_place(way, read, &mut reading.bytes);
                reading.places.push(place.unwrap_or(Place::Nothing));
                reading.reservations.push(None);
                continue;
            };
            let reservation = if admit { self.chooser.reserve(read) } else { None };
            let window = match &reservation {
                Some(reservation) => {
                    // Known only when it is committed.
                    reading.places.push(Place::Nothing);
                    reservation.window()
                }
                None => {
                    let (window, wanted) = layout.place(read.offset, read.bytes);
                    reading.places.push(Place::Slot(wanted));
                    window
                }
            };
            reading.reservations.push(reservation);
            requests.push(ReadRequest {
                file: race.files[read.file].clone(),
                mode,
                offset: read.offset,
                bytes: read.bytes,
                window,
                tag: tag(slot, buffer),
            });
        }
        reading.reads_left = requests.len();
        self.reading[slot] = Some(reading);
        for request in requests {
            // SAFETY: the window lies in a slot that belongs to this chunk, or in a reservation
            // that `reading` holds; both stay until the completion was seen, or the engines were
            // dropped (they are dropped before both).
            unsafe { self.engines.submit(request, &mut self.chooser.reasons) }?;
        }
        Ok(())
    }

    /// Waits for news, then takes all that there is.
    fn wait(&mut self) {
        let mut event = self.inbox.recv_timeout(LOOK_INTERVAL).ok();
        while let Some(news) = event {
            match news {
                Event::Consumed { slot: Some(slot) } => self.free.push(slot),
                Event::Consumed { slot: None } => self.patient -= 1,
                Event::Read(completion) => self.read_completed(completion),
            }
            event = self.inbox.try_recv().ok();
        }
    }

    fn read_completed(&mut self, completion: Completion) {
        let (slot, buffer) = untag(completion.tag);
        let Some(reading) = self.reading[slot].as_mut() else {
            return;
        };
        let chunk = reading.chunk;
        let read = &self.shared.race.chunks[chunk].reads[buffer];
        self.engines.completed(&completion, read.bytes, false);
        reading.reads_left -= 1;
        match completion.result {
            Err(source) => {
                // While the race is being stopped, cancelled reads are what is expected.
                if !self.shared.stop.is_stopped() {
                    self.shared.stop.fail(RaceError::Read { chunk, source });
                }
            }
            Ok(done) => {
                reading.bytes.add_read(read.bytes, &done);
                if done.direct_refused_bytes > 0 {
                    let path = self.shared.race.files[read.file].path().display();
                    self.chooser
                        .reasons
                        .add(format!("{path}: O_DIRECT reads were refused (EINVAL)"));
                }
                if let Some(reservation) = reading.reservations[buffer].take() {
                    reading.places[buffer] = Place::Cached(reservation.commit());
                }
            }
        }
        if reading.reads_left == 0 {
            self.hand_out_slot(slot);
        }
    }

    fn hand_out_slot(&mut self, slot: usize) {
        let Some(reading) = self.reading[slot].take() else {
            return;
        };
        if self.shared.stop.is_stopped() {
            return;
        }
        let Reading { chunk, started, places, bytes, .. } = reading;
        if let Some(trace) = &self.shared.race.options.trace {
            let track = format!("read slot {slot}");
            trace.record(track, "read", started, chunk, Some(slot), bytes.total());
        }
        self.shared.queue.push_urgent(Ready { chunk, slot: Some(slot), places, bytes });
    }

    /// No more reads; waits for those under way.
    fn drain(&mut self) {
        if self.engines.in_flight() > 0 {
            self.engines.cancel_queued();
        }
        while self.engines.in_flight() > 0 {
            self.wait();
        }
    }
}

/// The place of a buffer that needs no reading; `None` if it does.
fn in_place(way: Way, read: &ReadSpec, bytes: &mut BytesByPath) -> Option<Place> {
    Some(match way {
        Way::Nothing => Place::Nothing,
        Way::Mapped(mapped) => {
            bytes.mapped += read.bytes;
            Place::Mapped(mapped)
        }
        Way::Cached(range) => {
            bytes.cached += read.bytes;
            Place::Cached(range)
        }
        Way::Read { .. } => return None,
    })
}

pub(crate) fn tag(slot: usize, buffer: usize) -> u64 {
    (slot as u64) << 32 | buffer as u64
}

pub(crate) fn untag(tag: u64) -> (usize, usize) {
    ((tag >> 32) as usize, (tag & u64::from(u32::MAX)) as usize)
}

impl BytesByPath {
    pub(crate) fn add(&mut self, other: &BytesByPath) {
        self.mapped += other.mapped;
        self.cached += other.cached;
        self.buffered += other.buffered;
        self.direct += other.direct;
        self.resident_device += other.resident_device;
    }

    /// A read of `wanted` bytes, by what its parts really took. Widening is not wanted bytes: it
    /// is all on the side of O_DIRECT.
    pub(crate) fn add_read(&mut self, wanted: u64, done: &ReadDone) {
        let buffered = done.buffered_bytes.min(wanted);
        self.buffered += buffered;
        self.direct += wanted - buffered;
    }
}
