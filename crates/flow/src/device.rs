//! The race on a device: one thread drives reads, copies and launches; nothing in it waits for a
//! copy or a kernel while there is anything else to do.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use headrace_io::{Completion, EXTENT_ALIGN_BYTES, ReadMode, ReadRequest, Window};

use crate::cache::Reservation;
use crate::cancel::LOOK_INTERVAL;
use crate::choose::{Chooser, Way};
use crate::engines::{Engines, sink_into};
use crate::host::{tag, untag};
use crate::lane::{DEVICE_ALIGN_BYTES, DeviceLane, DeviceRange};
use crate::memory_source::MemorySource;
use crate::slots::{SlotLayout, check_chunks_fit};
use crate::stop::{Stop, panic_message};
use crate::{BoxError, BytesByPath, Race, RaceError, RaceReport, ReadSpec, Verdict};

/// How long to wait for reads before the device is asked again whether a slot is done.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

pub(crate) fn run<L: DeviceLane + ?Sized>(
    race: &Race,
    lane: &mut L,
) -> Result<RaceReport, RaceError> {
    let start = Instant::now();
    check_fits(race, lane)?;
    let before = lane.times();
    let stop = Stop::new(race.token.clone());
    let mut report = RaceReport::default();
    let driven = catch_unwind(AssertUnwindSafe(|| {
        report = Driver::new(race, lane, &stop, start).run();
    }));
    if let Err(payload) = driven {
        let message = panic_message(&*payload);
        stop.fail(RaceError::Panic { chunk: None, message });
    }
    // Whatever happened: after this the device touches no memory of the lane on our behalf. The
    // reads have ended with the driver.
    if let Err(source) = lane.synchronize() {
        stop.fail(device_error(None, "waiting for the device", source));
    }
    race.verify_files(stop.take_error())?;
    let after = lane.times();
    report.h2d_ns = after.h2d_ns.saturating_sub(before.h2d_ns);
    report.kernel_ns = after.kernel_ns.saturating_sub(before.kernel_ns);
    report.wall_ns = start.elapsed().as_nanos() as u64;
    Ok(report)
}

fn check_fits<L: DeviceLane + ?Sized>(race: &Race, lane: &L) -> Result<(), RaceError> {
    if lane.slots() == 0 {
        return Err(RaceError::NoConsumer);
    }
    for slot in 0..lane.slots() {
        let window = lane.host_window(slot);
        if !window.as_ptr().addr().is_multiple_of(EXTENT_ALIGN_BYTES) {
            let what = format!("the host memory of slot {slot} is not aligned to a page");
            return Err(device_error(None, "starting", what.into()));
        }
        check_chunks_fit(&race.chunks, window.bytes())?;
    }
    let slot_bytes = lane.device_slot_bytes();
    for (chunk, spec) in race.chunks.iter().enumerate() {
        let needed_bytes = device_ranges(&spec.reads).1;
        if needed_bytes > slot_bytes {
            return Err(RaceError::ChunkTooLarge { chunk, needed_bytes, slot_bytes });
        }
    }
    Ok(())
}

/// Where the buffers of a chunk lie in device memory, and how much of it they need.
fn device_ranges(reads: &[ReadSpec]) -> (Vec<DeviceRange>, usize) {
    let mut end = 0usize;
    let ranges = reads
        .iter()
        .map(|read| {
            let range = DeviceRange { offset: end, bytes: read.bytes as usize };
            end = (end + range.bytes).next_multiple_of(DEVICE_ALIGN_BYTES);
            range
        })
        .collect();
    (ranges, end)
}

fn device_error(chunk: Option<usize>, stage: &'static str, source: BoxError) -> RaceError {
    RaceError::Device { chunk, stage, source }
}

/// Where the bytes of a buffer come from, while they come.
enum Origin {
    /// The file.
    File,
    /// The file, through memory of the cache: first a read into it, then a copy to the slot.
    Admitted(Reservation),
    /// Memory: the path under which the bytes are counted, if they are not counted already.
    Memory(Option<MemoryPath>),
}

#[derive(Clone, Copy)]
enum MemoryPath {
    Cached,
    Mapped,
}

/// A buffer on its way into a slot.
struct Filling {
    origin: Origin,
    /// The slot's memory for the widened extent, and the wanted bytes in it.
    window: Window,
    wanted: Window,
}

/// A chunk that is being read into a slot and copied from it.
struct Reading {
    chunk: usize,
    started: Instant,
    reads_left: usize,
    buffers: Vec<Option<Filling>>,
    ranges: Vec<DeviceRange>,
    bytes: BytesByPath,
}

/// A chunk that the device works on.
struct Executing {
    slot: usize,
    chunk: usize,
    launched: Instant,
    bytes: BytesByPath,
}

struct Driver<'a, L: ?Sized> {
    // First, so that it is dropped first: the engines end before the memory they write to, which
    // is in `reading` (the cache's) and in the lane (which the caller holds).
    engines: Engines<'a>,
    race: &'a Race,
    lane: &'a mut L,
    stop: &'a Stop,
    start: Instant,
    inbox: Receiver<Completion>,
    chooser: Chooser<'a>,
    next: usize,
    reading: Vec<Option<Reading>>,
    executing: VecDeque<Executing>,
    free: Vec<usize>,
    report: RaceReport,
}

impl<'a, L: DeviceLane + ?Sized> Driver<'a, L> {
    fn new(race: &'a Race, lane: &'a mut L, stop: &'a Stop, start: Instant) -> Self {
        let slots = lane.slots();
        let windows: Vec<Window> = (0..slots).map(|slot| lane.host_window(slot)).collect();
        let (events, inbox) = unbounded();
        let sink = sink_into(events, |completion| completion);
        // SAFETY: the lane promised that its windows live as long as it does, and the driver
        // borrows it.
        let engines = unsafe { Engines::new(&race.options, &windows, race.bytes(), sink) };
        Driver {
            engines,
            race,
            lane,
            stop,
            start,
            inbox,
            chooser: Chooser::new(&race.files, &race.options, false),
            next: 0,
            reading: (0..slots).map(|_| None).collect(),
            executing: VecDeque::with_capacity(slots),
            free: (0..slots).rev().collect(),
            report: RaceReport::default(),
        }
    }

    fn run(mut self) -> RaceReport {
        if let Err(error) = self.stream() {
            self.stop.fail(error);
        }
        self.engines.fill_report(&mut self.report);
        self.report.path_reasons = std::mem::take(&mut self.chooser.reasons).into_texts();
        if self.engines.in_flight() > 0 {
            self.engines.cancel_queued();
        }
        while self.engines.in_flight() > 0 {
            match self.inbox.recv() {
                // Its bytes go nowhere any more.
                Ok(completion) => self.engines.completed(&completion, 0, true),
                Err(_) => break,
            }
        }
        std::mem::take(&mut self.report)
    }

    fn stream(&mut self) -> Result<(), RaceError> {
        while !self.stop.is_stopped() {
            self.begin_chunks()?;
            let all_begun = self.next == self.race.chunks.len();
            if all_begun && self.free.len() == self.reading.len() {
                return Ok(());
            }
            self.wait()?;
            self.retire_done()?;
        }
        if self.report.ended_early {
            // What was launched has left its marks in the answer: it must not have failed.
            while let Some(executing) = self.executing.pop_front() {
                self.lane
                    .wait(executing.slot)
                    .map_err(|source| device_error(Some(executing.chunk), "execution", source))?;
                self.retire(executing)?;
            }
        }
        Ok(())
    }

    fn begin_chunks(&mut self) -> Result<(), RaceError> {
        while self.next < self.race.chunks.len() {
            let Some(slot) = self.free.pop() else {
                break;
            };
            let chunk = self.next;
            self.next += 1;
            match self.lane.resident_bytes(chunk) {
                Some(bytes) => self.launch_resident(slot, chunk, bytes)?,
                None => self.begin(slot, chunk)?,
            }
        }
        self.engines.starved(self.next < self.race.chunks.len());
        Ok(())
    }

    fn begin(&mut self, slot: usize, chunk: usize) -> Result<(), RaceError> {
        let reads = &self.race.chunks[chunk].reads;
        let mut layout = SlotLayout::new(self.lane.host_window(slot));
        let mut buffers = Vec::with_capacity(reads.len());
        let mut requests = Vec::with_capacity(reads.len());
        for (buffer, read) in reads.iter().enumerate() {
            let way = self.chooser.choose(read)?;
            let (window, wanted) = layout.place(read.offset, read.bytes);
            let Some((request, origin)) = self.request(way, read, window, tag(slot, buffer)) else {
                buffers.push(None);
                continue;
            };
            requests.push(request);
            buffers.push(Some(Filling { origin, window, wanted }));
        }
        self.reading[slot] = Some(Reading {
            chunk,
            started: Instant::now(),
            reads_left: requests.len(),
            buffers,
            ranges: device_ranges(reads).0,
            bytes: BytesByPath::default(),
        });
        let nothing_to_read = requests.is_empty();
        for request in requests {
            // SAFETY: the window lies in a slot that belongs to this chunk, or in a reservation
            // that `reading` holds; both stay until the completion was seen, or the engines were
            // dropped (they are dropped before both).
            unsafe { self.engines.submit(request, &mut self.chooser.reasons) }?;
        }
        if nothing_to_read {
            self.launch(slot)?;
        }
        Ok(())
    }

    fn request(
        &mut self,
        way: Way,
        read: &ReadSpec,
        window: Window,
        tag: u64,
    ) -> Option<(ReadRequest, Origin)> {
        let file = self.race.files[read.file].clone();
        let mut request = ReadRequest {
            file,
            mode: ReadMode::Buffered,
            offset: read.offset,
            bytes: read.bytes,
            window,
            tag,
        };
        let origin = match way {
            Way::Nothing => return None,
            Way::Mapped(mapped) => {
                request.file = MemorySource::mapped(request.file, mapped);
                Origin::Memory(Some(MemoryPath::Mapped))
            }
            Way::Cached(range) => {
                request.file = MemorySource::cached(request.file, range, read.offset);
                Origin::Memory(Some(MemoryPath::Cached))
            }
            Way::Read { mode, admit } => {
                request.mode = mode;
                match if admit { self.chooser.reserve(read) } else { None } {
                    Some(reservation) => {
                        request.window = reservation.window();
                        Origin::Admitted(reservation)
                    }
                    None => Origin::File,
                }
            }
        };
        Some((request, origin))
    }

    /// Waits for whatever comes first, reads or the device.
    fn wait(&mut self) -> Result<(), RaceError> {
        let reads = self.engines.in_flight() > 0;
        if !reads && let Some(oldest) = self.executing.front() {
            // Every slot is with the device, or nothing is left to read.
            return self
                .lane
                .wait(oldest.slot)
                .map_err(|source| device_error(Some(oldest.chunk), "execution", source));
        }
        let patience = if self.executing.is_empty() { LOOK_INTERVAL } else { POLL_INTERVAL };
        let mut completion = self.inbox.recv_timeout(patience).ok();
        while let Some(one) = completion {
            self.read_completed(one)?;
            completion = self.inbox.try_recv().ok();
        }
        Ok(())
    }

    fn read_completed(&mut self, completion: Completion) -> Result<(), RaceError> {
        let (slot, buffer) = untag(completion.tag);
        let Some(reading) = self.reading[slot].as_mut() else {
            self.engines.completed(&completion, 0, true);
            return Ok(());
        };
        let chunk = reading.chunk;
        let read = &self.race.chunks[chunk].reads[buffer];
        let Some(filling) = reading.buffers[buffer].as_mut() else {
            self.engines.completed(&completion, 0, true);
            return Ok(());
        };
        let from_memory = matches!(filling.origin, Origin::Memory(_));
        // The second half of an admission: its bytes are counted already.
        let counted = matches!(filling.origin, Origin::Memory(None));
        let bytes = if counted { 0 } else { read.bytes };
        self.engines.completed(&completion, bytes, from_memory);
        let done = completion.result.map_err(|source| RaceError::Read { chunk, source })?;
        if done.direct_refused_bytes > 0 {
            let path = self.race.files[read.file].path().display();
            self.chooser.reasons.add(format!("{path}: O_DIRECT reads were refused (EINVAL)"));
        }
        match std::mem::replace(&mut filling.origin, Origin::Memory(None)) {
            Origin::File => reading.bytes.add_read(read.bytes, &done),
            Origin::Memory(None) => {}
            Origin::Memory(Some(MemoryPath::Cached)) => reading.bytes.cached += read.bytes,
            Origin::Memory(Some(MemoryPath::Mapped)) => reading.bytes.mapped += read.bytes,
            Origin::Admitted(reservation) => {
                reading.bytes.add_read(read.bytes, &done);
                let file = self.race.files[read.file].clone();
                let request = ReadRequest {
                    file: MemorySource::cached(file, reservation.commit(), read.offset),
                    mode: ReadMode::Buffered,
                    offset: read.offset,
                    bytes: read.bytes,
                    window: filling.window,
                    tag: completion.tag,
                };
                // SAFETY: the window lies in a slot that belongs to this chunk until the
                // completion was seen, or the engines were dropped.
                return unsafe { self.engines.submit(request, &mut self.chooser.reasons) };
            }
        }
        self.copy(slot, buffer)
    }

    /// A buffer is in its slot: its copy can begin, whatever the other buffers do.
    fn copy(&mut self, slot: usize, buffer: usize) -> Result<(), RaceError> {
        let Some(reading) = self.reading[slot].as_mut() else {
            return Ok(());
        };
        let Some(Filling { wanted, .. }) = reading.buffers[buffer].take() else {
            return Ok(());
        };
        // SAFETY: the wanted bytes lie in the slot's window, which the lane promised is valid and
        // initialised; the read is complete, and nobody writes there until the slot is free.
        let from = unsafe { std::slice::from_raw_parts(wanted.as_ptr(), wanted.bytes()) };
        let offset = reading.ranges[buffer].offset;
        // SAFETY: as above; the slot becomes free only after its execution was seen to be done,
        // and the race ends with `synchronize` in any case.
        unsafe { self.lane.copy_to_device(slot, offset, from) }
            .map_err(|source| device_error(Some(reading.chunk), "copy to the device", source))?;
        reading.reads_left -= 1;
        if reading.reads_left == 0 {
            return self.launch(slot);
        }
        Ok(())
    }

    fn launch(&mut self, slot: usize) -> Result<(), RaceError> {
        let Some(Reading { chunk, started, ranges, bytes, .. }) = self.reading[slot].take() else {
            return Ok(());
        };
        if let Some(trace) = &self.race.options.trace {
            let track = format!("read slot {slot}");
            trace.record(track, "read", started, chunk, Some(slot), bytes.total());
        }
        self.note_first_chunk();
        let launched = Instant::now();
        let failed = |stage| move |source| device_error(Some(chunk), stage, source);
        self.lane.mark_copied(slot).map_err(failed("copy to the device"))?;
        self.lane.launch(slot, chunk, &ranges).map_err(failed("launch"))?;
        self.lane.mark_executed(slot).map_err(failed("launch"))?;
        self.executing.push_back(Executing { slot, chunk, launched, bytes });
        Ok(())
    }

    fn launch_resident(
        &mut self,
        slot: usize,
        chunk: usize,
        resident_bytes: u64,
    ) -> Result<(), RaceError> {
        self.note_first_chunk();
        let launched = Instant::now();
        let failed = |source| device_error(Some(chunk), "launch", source);
        self.lane.launch_resident(slot, chunk).map_err(failed)?;
        self.lane.mark_executed(slot).map_err(failed)?;
        let bytes = BytesByPath { resident_device: resident_bytes, ..BytesByPath::default() };
        self.executing.push_back(Executing { slot, chunk, launched, bytes });
        Ok(())
    }

    fn note_first_chunk(&mut self) {
        if self.report.first_chunk_ns == 0 {
            self.report.first_chunk_ns = self.start.elapsed().as_nanos() as u64;
        }
    }

    /// Frees the slots of all chunks that the device is done with.
    fn retire_done(&mut self) -> Result<(), RaceError> {
        for _ in 0..self.executing.len() {
            let Some(executing) = self.executing.pop_front() else {
                return Ok(());
            };
            let done = self
                .lane
                .poll(executing.slot)
                .map_err(|source| device_error(Some(executing.chunk), "execution", source))?;
            if done {
                self.retire(executing)?;
            } else {
                self.executing.push_back(executing);
            }
        }
        Ok(())
    }

    /// One span on the copy track and one on the kernel track, if the lane knows; otherwise
    /// one on the slot's.
    fn trace_device(&mut self, slot: usize, chunk: usize, launched: Instant, bytes: u64) {
        let Some(trace) = &self.race.options.trace else { return };
        let record = |track: &str, name, span| {
            trace.record_between(track.to_string(), name, span, chunk, Some(slot), bytes);
        };
        match self.lane.stage_spans(slot) {
            Some(spans) => {
                spans.copied.into_iter().for_each(|span| record("H2D", "copy to device", span));
                spans.executed.into_iter().for_each(|span| record("kernel", "execute", span));
            }
            None => record(
                &format!("device slot {slot}"),
                "copy and execute",
                (launched, Instant::now()),
            ),
        }
    }

    fn retire(&mut self, executing: Executing) -> Result<(), RaceError> {
        let Executing { slot, chunk, launched, bytes } = executing;
        self.trace_device(slot, chunk, launched, bytes.total());
        let verdict = self
            .lane
            .retire(slot, chunk)
            .map_err(|source| device_error(Some(chunk), "execution", source))?;
        self.report.chunks += 1;
        self.report.bytes_by_path.add(&bytes);
        self.free.push(slot);
        if verdict == Verdict::Enough {
            self.report.ended_early = true;
            self.stop.enough();
        }
        Ok(())
    }
}
