//! The driver: chooses access paths, begins reads, hands out chunks, writes consumers' output.

use std::collections::VecDeque;
use std::task::{Poll, Waker};
use std::time::Instant;

use crossbeam_channel::Receiver;
use headrace_io::{Completion, FedChunk, ReadRequest, ReadSpec, Window};

use super::event::{Event, FilledWindow, Target};
use super::shared::{Place, Ready, Shared};
use crate::append::{Ends, HEADROOM_BYTES, InOrder};
use crate::cache::Reservation;
use crate::cancel::LOOK_INTERVAL;
use crate::choose::{Chooser, Destination, Way};
use crate::engines::{Engines, sink_into, tag, untag};
use crate::feed::Chunks;
use crate::report::Tally;
use crate::slots::{SlotLayout, SlotRing, check_fits};
use crate::writers::Writers;
use crate::{BytesByPath, OutputSpec, RaceError};

/// A chunk that is being read into a slot.
struct Reading<P> {
    chunk: FedChunk<P>,
    started: Instant,
    reads_left: usize,
    places: Vec<Place>,
    /// Cache memory that is being filled, by buffer.
    reservations: Vec<Option<Reservation>>,
    bytes: BytesByPath,
}

/// A chunk with the access path of each buffer, which waits for a slot.
struct Cold<P> {
    chunk: FedChunk<P>,
    ways: Vec<Way>,
}

/// The driver: chooses access paths, begins reads, hands out chunks.
pub(super) struct Driver<'a, P> {
    // First, so that it is dropped first: the engines end before the memory they write to, which
    // is in `reading` (the cache's) and in the ring (which the caller holds).
    engines: Engines<'a>,
    // Likewise: the windows are in `shared`.
    writers: Writers<'a>,
    shared: &'a Shared<'a, P>,
    ring: &'a SlotRing,
    inbox: Receiver<Event>,
    /// Lets as many consumers work as are allowed.
    call: &'a mut dyn FnMut() -> Result<(), RaceError>,
    chooser: Chooser<'a>,
    chunks: Chunks<P>,
    /// Woken when new chunks arrive.
    waker: Waker,
    cold: VecDeque<Cold<P>>,
    /// By slot.
    reading: Vec<Option<Reading<P>>>,
    free: Vec<usize>,
    patient: usize,
    /// Chunks that consumers have, or will get.
    handed_out: usize,
    /// By window of the output ring.
    writing: Vec<Option<Writing>>,
    appending: Option<Appending<P>>,
}

/// Output that is being written.
struct Writing {
    chunk: usize,
    output: OutputSpec,
    started: Instant,
}

/// A window whose bytes after the headroom are to be appended.
struct Piece {
    chunk: usize,
    window: usize,
    sink: usize,
    bytes: usize,
}

/// Appended data, and chunks that wait for their turn: since all are begun in order, the chunk that the
/// others' output waits for always has a consumer.
struct Appending<P> {
    pieces: InOrder<Piece>,
    ends: Ends,
    turns: InOrder<Ready<P>>,
}

impl<'a, P: Default> Driver<'a, P> {
    pub fn new(
        shared: &'a Shared<'a, P>,
        ring: &'a SlotRing,
        inbox: Receiver<Event>,
        (chunks, waker): (Chunks<P>, Waker),
        call: &'a mut dyn FnMut() -> Result<(), RaceError>,
    ) -> Self {
        let race = shared.race;
        let sink = sink_into(shared.events.clone(), Event::Read);
        // SAFETY: the ring outlives the driver, which borrows it.
        let engines = unsafe {
            Engines::new(&race.options, &[ring.whole()], race.bytes(), race.options.readers, sink)
        };
        let cache_race = race.options.cache.as_ref().map_or(0, |cache| cache.begin_race());
        let windows = shared.outputs.as_ref().map_or(0, |ring| ring.windows());
        let written = sink_into(shared.events.clone(), Event::Written);
        Driver {
            engines,
            writers: Writers::new(&race.options, &race.sinks, written),
            shared,
            ring,
            inbox,
            call,
            chooser: Chooser::new(
                &race.options,
                Destination::Anywhere,
                cache_race,
                race.options.mappings.clone(),
            ),
            chunks,
            waker,
            cold: VecDeque::with_capacity(ring.slots()),
            reading: (0..ring.slots()).map(|_| None).collect(),
            free: (0..ring.slots()).rev().collect(),
            patient: 0,
            handed_out: 0,
            writing: (0..windows).map(|_| None).collect(),
            appending: race.appends.then(|| Appending {
                pieces: InOrder::new(),
                ends: Ends::new(&race.sinks),
                turns: InOrder::new(),
            }),
        }
    }

    /// Runs until every chunk is handed out and all output is written, or the race is stopped; then
    /// until nothing is in progress.
    pub fn run(mut self) -> Tally {
        while !self.shared.stop.is_stopped() {
            if let Err(error) = self.advance() {
                self.shared.stop.fail(error);
                break;
            }
            let all_seen = self.chunks.has_ended && self.cold.is_empty();
            // As long as consumers work, it may be that more of them may.
            if all_seen
                && self.engines.in_flight() == 0
                && self.handed_out == 0
                && self.writers.in_flight() == 0
            {
                break;
            }
            self.wait();
        }
        self.drain();
        self.finish_appending();
        let mut tally = Tally::default();
        self.engines.fill_tally(&mut tally);
        self.writers.fill_tally(&mut tally, &mut self.chooser.reasons);
        tally.report.path_reasons = std::mem::take(&mut self.chooser.reasons).into_texts();
        let appended = self.appending.as_ref().map(|appending| appending.ends.bytes());
        tally.report.appended_bytes = appended.unwrap_or_default();
        tally
    }

    /// Whether consumers may still produce output, or output is being written.
    fn expects_output(&self) -> bool {
        self.shared.outputs.is_some() && (self.handed_out > 0 || self.writers.in_flight() > 0)
    }

    /// Does everything that needs no waiting.
    fn advance(&mut self) -> Result<(), RaceError> {
        (self.call)()?;
        self.begin_cold()?;
        // Looks past cold chunks that wait for a slot, so that consumers have work meanwhile.
        while self.patient < self.shared.patient_max
            && self.cold.len() < self.ring.slots()
            && !self.shared.stop.is_stopped()
        {
            let next = self.chunks.poll_next(self.shared.race, &self.waker);
            let Poll::Ready(Some(chunk)) = next else { break };
            let chunk = chunk?;
            let reads = chunk.reads.iter().zip(&chunk.files);
            let ways: Vec<Way> = reads
                .map(|(read, file)| self.chooser.choose(read, file))
                .collect::<Result<_, _>>()?;
            if ways.iter().any(|way| matches!(way, Way::Read { .. })) {
                check_fits(chunk.number, &chunk.reads, self.ring.slot_bytes())?;
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

    fn hand_out_in_place(&mut self, chunk: FedChunk<P>, ways: Vec<Way>) {
        let mut bytes = BytesByPath::default();
        let places = ways
            .into_iter()
            .zip(&chunk.reads)
            .map(|(way, read)| in_place(way, read, &mut bytes).unwrap_or(Place::Nothing))
            .collect();
        self.patient += 1;
        self.hand_out(Ready { chunk, slot: None, places, bytes });
    }

    /// Gives a chunk to the consumers, or, if they take chunks in order, all chunks whose turn has
    /// come.
    fn hand_out(&mut self, ready: Ready<P>) {
        let queue = &self.shared.queue;
        let Some(Appending { turns, .. }) = &mut self.appending else {
            self.handed_out += 1;
            return match ready.slot {
                Some(_) => queue.push_urgent(ready),
                None => queue.push_patient(ready),
            };
        };
        let chunk = ready.chunk.number;
        turns.add(chunk, ready);
        turns.done(chunk);
        while let Some(ready) = turns.next() {
            self.handed_out += 1;
            queue.push_patient(ready);
        }
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

    fn begin(&mut self, slot: usize, cold: Cold<P>) -> Result<(), RaceError> {
        let Cold { chunk, ways } = cold;
        let buffers = chunk.reads.len();
        let mut layout = SlotLayout::new(self.ring.window(slot));
        let mut reading = Reading {
            chunk,
            started: Instant::now(),
            reads_left: 0,
            places: Vec::with_capacity(buffers),
            reservations: Vec::with_capacity(buffers),
            bytes: BytesByPath::default(),
        };
        let mut requests = Vec::with_capacity(buffers);
        for (buffer, way) in ways.into_iter().enumerate() {
            let (read, file) = (&reading.chunk.reads[buffer], &reading.chunk.files[buffer]);
            let Way::Read { mode, admit } = way else {
                let place = in_place(way, read, &mut reading.bytes);
                reading.places.push(place.unwrap_or(Place::Nothing));
                reading.reservations.push(None);
                continue;
            };
            let reservation = if admit { self.chooser.reserve(read, file) } else { None };
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
                file: file.clone(),
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
            let reasons = &mut self.chooser.reasons;
            // SAFETY: the window lies in a slot that belongs to this chunk, or in a reservation
            // that `reading` holds; both stay until the completion was seen, or the engines were
            // dropped (they are dropped before both).
            unsafe {
                match request.file.is_in_memory() {
                    true => self.engines.submit_copy(request, reasons),
                    false => self.engines.submit(request, reasons),
                }
            }?;
        }
        Ok(())
    }

    /// Waits for an event, then handles all pending ones.
    fn wait(&mut self) {
        let mut event = self.inbox.recv_timeout(LOOK_INTERVAL).ok();
        while let Some(news) = event {
            match news {
                Event::Consumed { chunk, slot, is_done } => {
                    self.handed_out -= 1;
                    if let Some(Appending { pieces, .. }) = &mut self.appending {
                        match is_done {
                            true => pieces.done(chunk),
                            false => pieces.end_before(chunk),
                        }
                        self.append();
                    }
                    match slot {
                        Some(slot) => self.free.push(slot),
                        None => self.patient -= 1,
                    }
                }
                Event::Read(completion) => self.read_completed(completion),
                Event::Filled(filled) => self.filled(filled),
                Event::Written(completion) => self.written(completion),
                // The loop looks in any case.
                Event::Fed => {}
            }
            event = self.inbox.try_recv().ok();
        }
    }

    fn read_completed(&mut self, completion: Completion) {
        let (slot, buffer) = untag(completion.tag);
        let Some(reading) = self.reading[slot].as_mut() else {
            return self.engines.completed(&completion, 0, false);
        };
        let chunk = reading.chunk.number;
        let (read, file) = (reading.chunk.reads[buffer], &reading.chunk.files[buffer]);
        self.engines.completed(&completion, read.bytes, file.is_in_memory());
        reading.reads_left -= 1;
        match completion.result {
            Err(source) => {
                // While the race is being stopped, cancelled reads are what is expected.
                if !self.shared.stop.is_stopped() {
                    self.shared.stop.fail(RaceError::Read { chunk, source });
                }
            }
            Ok(done) => {
                if let Err(error) = self.chooser.check_read(&read, file, &done) {
                    self.shared.stop.fail(error);
                }
                match file.is_in_memory() {
                    true => reading.bytes.memory += read.bytes,
                    false => reading.bytes.add_read(&**file, read.bytes, &done),
                }
                if done.direct_refused_bytes > 0 {
                    let path = file.path().display();
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
            trace.record(track, "read", started, chunk.number, Some(slot), bytes.total());
        }
        self.hand_out(Ready { chunk, slot: Some(slot), places, bytes });
    }

    /// A consumer has filled a window.
    fn filled(&mut self, filled: FilledWindow) {
        let FilledWindow { chunk, window, target, bytes } = filled;
        match (target, &mut self.appending) {
            (Target::At(output), _) => {
                self.write(chunk, window, OutputSpec { bytes: bytes as u64, ..output });
            }
            (Target::End { sink }, Some(appending)) => {
                appending.pieces.add(chunk, Piece { chunk, window, sink, bytes });
                self.append();
            }
            (Target::End { .. }, None) => unreachable!("no piece without a race that appends"),
        }
    }

    /// Writes all pieces with known positions.
    fn append(&mut self) {
        let (Some(ring), shared) = (&self.shared.outputs, self.shared) else { return };
        while let Some(Appending { pieces, ends, .. }) = &mut self.appending
            && let Some(Piece { chunk, window, sink, bytes }) = pieces.next()
        {
            let placed = ends.extend(chunk, sink, bytes).map(|place| {
                // SAFETY: the window is initialised memory of the ring, which outlives the driver; its consumer
                // handed it over, and nobody else has it until it is given back.
                let memory = unsafe { as_slice(ring.window(window)) };
                memory.copy_within(HEADROOM_BYTES..HEADROOM_BYTES + bytes, place.head_bytes());
                ends.complete(&place, memory)
            });
            match placed {
                Ok(Some(output)) => self.write(chunk, window, output),
                Ok(None) => ring.give_back(window),
                Err(error) => {
                    ring.give_back(window);
                    shared.stop.fail(error);
                }
            }
        }
        if let Some(Appending { pieces, .. }) = &mut self.appending {
            pieces.take_rest().iter().for_each(|piece| ring.give_back(piece.window));
            // Chunks before the end still wait for the oldest of them.
            ring.keep_for(Some(pieces.oldest()).filter(|_| !pieces.is_over()));
        }
    }

    /// All chunks are done: writes the carried bytes and fixes the ends of the sinks.
    fn finish_appending(&mut self) {
        let (Some(ring), shared) = (&self.shared.outputs, self.shared) else { return };
        if self.appending.is_none() {
            return;
        }
        for sink in 0..shared.race.sinks.len() {
            let window = loop {
                if shared.stop.has_failed() {
                    return self.drain();
                }
                match ring.take_last() {
                    Some(window) => break window,
                    None => self.wait(),
                }
            };
            let Some(Appending { pieces, ends, .. }) = &mut self.appending else { return };
            // SAFETY: as in `append`; the window was free.
            let bytes = unsafe { as_slice(ring.window(window)) };
            let chunk = pieces.oldest();
            match ends.finish(sink, bytes) {
                Some(output) => self.write(chunk, window, output),
                None => ring.give_back(window),
            }
        }
        self.drain();
    }

    fn write(&mut self, chunk: usize, window: usize, output: OutputSpec) {
        let Some(ring) = &self.shared.outputs else { return };
        if self.shared.stop.has_failed() {
            return ring.give_back(window);
        }
        self.writing[window] = Some(Writing { chunk, output, started: Instant::now() });
        // SAFETY: the window is initialised memory of the ring, which outlives the driver; it was
        // handed over by its consumer, and is given back only when the completion was seen.
        let begun = unsafe {
            self.writers.submit(
                &output,
                ring.window(window),
                window as u64,
                &mut self.chooser.reasons,
            )
        };
        if let Err(error) = begun {
            self.writing[window] = None;
            ring.give_back(window);
            self.shared.stop.fail(error);
        }
    }

    fn written(&mut self, completion: Completion) {
        let window = completion.tag as usize;
        let Some(Writing { chunk, output, started }) = self.writing[window].take() else {
            return self.writers.completed(&completion, 0);
        };
        self.writers.completed(&completion, output.bytes);
        if let Some(ring) = &self.shared.outputs {
            ring.give_back(window);
        }
        if let Some(trace) = &self.shared.race.options.trace {
            let track = format!("write slot {window}");
            trace.record(track, "write", started, chunk, Some(window), output.bytes);
        }
        if let Err(source) = completion.result {
            self.shared.stop.fail(RaceError::Write { chunk, source });
        }
    }

    /// Begins no more reads and waits for those in progress. If the race ended well its output is
    /// written completely; otherwise no more writes begin.
    fn drain(&mut self) {
        if self.engines.in_flight() > 0 {
            self.engines.cancel_queued();
        }
        while self.engines.in_flight() > 0
            || self.writers.in_flight() > 0
            || (self.expects_output() && !self.shared.stop.has_failed())
        {
            if self.shared.stop.has_failed() {
                self.writers.cancel_queued();
            }
            self.wait();
        }
    }
}

/// The bytes of a window.
///
/// # Safety
/// They are initialised, live long enough, and are not touched by others.
unsafe fn as_slice<'w>(window: Window) -> &'w mut [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(window.as_ptr(), window.bytes()) }
}

/// The location of a buffer that needs no reading; `None` if it does.
fn in_place(way: Way, read: &ReadSpec, bytes: &mut BytesByPath) -> Option<Place> {
    Some(match way {
        Way::Nothing => Place::Nothing,
        Way::Memory(file) => {
            bytes.memory += read.bytes;
            Place::Memory(file)
        }
        Way::Mapped(mapped) => {
            bytes.mapped += read.bytes;
            Place::Mapped(mapped)
        }
        Way::Cached(range) => {
            bytes.cached += read.bytes;
            Place::Cached(range)
        }
        Way::Read { .. } => return None,
        Way::Registered(_) | Way::DeviceReader => {
            unreachable!("extents for the host are not given a device's way")
        }
    })
}
