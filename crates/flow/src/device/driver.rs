//! The driver of a lane: what happens next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use headrace_io::Window;

use super::shared::{Event, Pins, Shared, check_windows, device_error};
use super::slot::{Appending, Reading, Working, Writing};
use crate::cancel::LOOK_INTERVAL;
use crate::choose::{Chooser, Destination, DeviceWays};
use crate::device_reads::DeviceReads;
use crate::engines::{Engines, sink_into};
use crate::lane::{DeviceLane, DeviceReader};
use crate::registered::Registrars;
use crate::report::{Stopwatch, Tally};
use crate::writers::Writers;
use crate::{AccessPath, RaceError};

/// How long to wait for an event from the host before asking the device again whether a slot is
/// done or ready.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

pub(super) struct Driver<'a, P, L: ?Sized> {
    // First, so that they are dropped first: whoever works on the slots' memory ends before that
    // memory, which is in `reading` (the cache's) and in the lane (which the caller holds).
    pub engines: Engines<'a>,
    pub writers: Writers<'a>,
    pub device_reads: Option<DeviceReads>,
    pub reader: Option<Arc<dyn DeviceReader>>,
    /// What the reader had counted before the race, if it must not pass host memory.
    detours_before: Option<u64>,
    pub registrars: Option<Registrars>,
    /// Answers that `device_reads` and `registrars` still owe.
    pub device_reading: usize,
    pub registering: usize,
    pub shared: &'a Shared<'a, P>,
    pub number: usize,
    pub lane: &'a mut L,
    /// By slot.
    pub pins: &'a mut [Pins],
    pub events: Sender<Event>,
    pub inbox: Receiver<Event>,
    pub chooser: Chooser<'a>,
    /// By slot.
    pub reading: Vec<Option<Reading<P>>>,
    pub working: VecDeque<Working>,
    /// By slot.
    pub writing: Vec<Option<Writing>>,
    pub appending: Option<Appending>,
    pub free: Vec<usize>,
    /// Slots that are ready, counted from the first.
    pub usable: usize,
    /// Slots with a chunk.
    pub in_use: usize,
    /// Set while the device is idle.
    pub idle: Stopwatch,
    pub tally: Tally,
    counted: Option<[(&'static str, u64); 4]>,
}

impl<'a, P: Default, L: DeviceLane<P> + ?Sized> Driver<'a, P, L> {
    pub fn new(
        shared: &'a Shared<'a, P>,
        number: usize,
        lane: &'a mut L,
        pins: &'a mut [Pins],
    ) -> Result<Self, RaceError> {
        let race = shared.race;
        let slots = lane.slots();
        let ready = ready_slots(lane)?;
        // Slots that come later are not registered with io_uring: the reader starts now.
        let windows: Vec<Window> = if ready == slots {
            (0..slots).map(|slot| lane.host_window(slot)).collect()
        } else {
            Vec::new()
        };
        let (events, inbox) = unbounded();
        shared.bell.add(events.clone());
        let read = sink_into(events.clone(), Event::Read);
        let written = sink_into(events.clone(), Event::Written);
        let readers = (race.options.readers / shared.lanes).max(2);
        let bytes = race.bytes() / shared.lanes as u64;
        let reader = match race.options.access {
            AccessPath::CuFile => lane.device_reader(true),
            // With a host cache cold extents are wanted there.
            AccessPath::Auto if race.options.cache.is_none() => lane.device_reader(false),
            _ => Err("not asked for".to_string()),
        };
        let ways = DeviceWays {
            registered: match (&shared.registered, lane.registrar()) {
                (Ok(registered), Some(_)) => Ok(registered.clone()),
                (Ok(_), None) => Err("the device registers no mappings".to_string()),
                (Err(reason), _) => Err(reason.clone()),
            },
            reader: reader.clone(),
        };
        let detours_before = match (&reader, race.options.access) {
            (Ok(reader), AccessPath::CuFile) if race.options.forbids_other_paths => {
                reader.detours()
            }
            _ => None,
        };
        let (cache_race, mappings) = (shared.cache_race, shared.mappings.clone());
        let mut idle = Stopwatch::default();
        idle.set(true);
        Ok(Driver {
            // SAFETY: the lane promised that its windows live as long as it does, and the driver
            // borrows it.
            engines: unsafe { Engines::new(&race.options, &windows, bytes, readers, read) },
            writers: Writers::new(&race.options, &race.sinks, written),
            reader: reader.ok(),
            detours_before,
            device_reads: None,
            registrars: None,
            device_reading: 0,
            registering: 0,
            shared,
            number,
            lane,
            pins,
            events,
            inbox,
            chooser: Chooser::new(&race.options, Destination::Device(ways), cache_race, mappings),
            reading: (0..slots).map(|_| None).collect(),
            working: VecDeque::with_capacity(slots),
            writing: (0..slots).map(|_| None).collect(),
            appending: race.appends.then(|| Appending::new(&race.sinks)).transpose()?,
            free: Vec::with_capacity(slots),
            usable: 0,
            in_use: 0,
            idle,
            tally: Tally::default(),
            counted: None,
        })
    }

    /// Runs until every chunk is done or the race is stopped, then until nothing is in progress.
    pub fn run(mut self) -> Tally {
        if let Err(error) = self.stream() {
            self.shared.stop.fail(error);
        }
        self.drain();
        if let Err(error) = self.check_detours() {
            self.shared.stop.fail(error);
        }
        let mut tally = std::mem::take(&mut self.tally);
        self.engines.fill_tally(&mut tally);
        self.writers.fill_tally(&mut tally, &mut self.chooser.reasons);
        if self.device_reads.is_some()
            && let Some(reader) = &self.reader
        {
            tally.report.engines.push(reader.describe());
        }
        let appended = self.appending.as_ref().map(Appending::bytes);
        tally.report.appended_bytes = appended.unwrap_or_default();
        tally.report.execute_wait_ns = self.idle.total_ns();
        tally.report.path_reasons = std::mem::take(&mut self.chooser.reasons).into_texts();
        tally
    }

    /// Error if the device's own reader has passed host memory meanwhile, and must not.
    fn check_detours(&self) -> Result<(), RaceError> {
        let (Some(reader), Some(before)) = (&self.reader, self.detours_before) else {
            return Ok(());
        };
        match reader.detours().map_or(0, |detours| detours.saturating_sub(before)) {
            0 => Ok(()),
            detours => Err(self.chooser.detoured(detours, &reader.describe())),
        }
    }

    fn stream(&mut self) -> Result<(), RaceError> {
        while !self.shared.stop.is_stopped() {
            self.begin_chunks()?;
            self.trace_counts();
            if self.in_use == 0 && self.shared.schedule.is_finished(self.number) {
                return self.finish_appending();
            }
            self.wait()?;
            self.retire_done()?;
        }
        if !self.shared.stop.has_failed() {
            self.finish_launched()?;
            self.finish_appending()?;
        }
        Ok(())
    }

    fn begin_chunks(&mut self) -> Result<(), RaceError> {
        self.prepare_slots()?;
        let waker = Waker::from(self.shared.bell.clone());
        while !self.free.is_empty()
            && let Some(taken) = self.shared.schedule.take(self.number, &waker)?
            && let Some(slot) = self.free.pop()
        {
            self.in_use += 1;
            self.tally.report.stolen_chunks += u64::from(taken.stolen);
            self.begin(slot, taken.chunk)?;
        }
        self.engines.starved(self.shared.schedule.has_more(self.number));
        Ok(())
    }

    fn prepare_slots(&mut self) -> Result<(), RaceError> {
        if self.usable == self.lane.slots() {
            return Ok(());
        }
        let ready = ready_slots(self.lane)?;
        for slot in self.usable..ready {
            check_windows(self.lane, slot)?;
            // Slots that were used before come first: their memory is warm.
            self.free.insert(0, slot);
        }
        self.usable = self.usable.max(ready);
        Ok(())
    }

    /// Whether the host will send another event.
    fn awaits_events(&self) -> bool {
        self.engines.in_flight() + self.writers.in_flight() + self.device_reading + self.registering
            > 0
    }

    /// Waits for the first event from the host or the device.
    fn wait(&mut self) -> Result<(), RaceError> {
        let all_ready = self.usable == self.lane.slots();
        let returns = self.appending.as_ref().is_some_and(|a| a.returning().is_some());
        if all_ready
            && !returns
            && !self.awaits_events()
            && let Some(oldest) = self.working.front()
        {
            // Every slot is with the device, or nothing is left to read.
            return self
                .lane
                .wait(oldest.slot)
                .map_err(|source| device_error(Some(oldest.chunk), "execution", source));
        }
        let is_polled = !self.working.is_empty() || returns || !all_ready;
        let patience = if is_polled { POLL_INTERVAL } else { LOOK_INTERVAL };
        let mut event = self.inbox.recv_timeout(patience).ok();
        while let Some(news) = event {
            self.handle(news)?;
            event = self.inbox.try_recv().ok();
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), RaceError> {
        match event {
            Event::Read(completion) => self.read_completed(completion),
            Event::DeviceRead(done) => self.device_read_done(done),
            Event::Registered(registered) => self.registered(registered),
            Event::Written(completion) => self.written(completion),
            // The loop looks in any case.
            Event::Fed => Ok(()),
        }
    }

    /// The race ended early without an error. Launched chunks are part of the answer: they must not
    /// have failed, and their output is needed.
    fn finish_launched(&mut self) -> Result<(), RaceError> {
        loop {
            if let Some(working) = self.working.pop_front() {
                self.lane
                    .wait(working.slot)
                    .map_err(|source| device_error(Some(working.chunk), "execution", source))?;
                self.executed(working)?;
            } else if let Some(slot) = self.appending.as_ref().and_then(Appending::returning) {
                let failed = |source| device_error(None, "copy to the host", source);
                self.lane.wait(slot).map_err(failed)?;
                self.returned()?;
            } else if self.writers.in_flight() > 0 {
                match self.inbox.recv() {
                    Ok(Event::Written(completion)) => self.written(completion)?,
                    Ok(other) => self.discard(&other),
                    Err(_) => return Ok(()),
                }
            } else {
                return self.drop_appended();
            }
        }
    }

    /// Begins nothing more and waits for work in progress on the host.
    fn drain(&mut self) {
        if !self.awaits_events() {
            return;
        }
        self.engines.cancel_queued();
        self.writers.cancel_queued();
        if let Some(reads) = &self.device_reads {
            reads.cancel_queued();
        }
        if let Some(registrars) = &self.registrars {
            registrars.cancel_queued();
        }
        while self.awaits_events() {
            match self.inbox.recv() {
                Ok(event) => self.discard(&event),
                Err(_) => return,
            }
        }
    }

    /// Handles an event whose bytes are no longer needed.
    pub fn discard(&mut self, event: &Event) {
        match event {
            Event::Read(completion) => self.read_discarded(completion),
            Event::DeviceRead(done) => self.device_read_discarded(done),
            Event::Registered(_) => {
                self.registering -= 1;
                self.engines.ended_elsewhere(None);
            }
            Event::Written(completion) => self.writers.completed(completion, 0),
            Event::Fed => {}
        }
    }

    /// The name of a track: with the lane, if there are several.
    pub fn track(&self, name: &str) -> String {
        if self.shared.lanes > 1 {
            format!("device {} {name}", self.number)
        } else {
            name.to_string()
        }
    }

    /// The occupation of the slots, if it has changed.
    fn trace_counts(&mut self) {
        let Some(trace) = &self.shared.race.options.trace else { return };
        let count = |slots: usize| slots as u64;
        let counts = [
            ("reading", count(self.reading.iter().flatten().count())),
            ("on device", count(self.working.len())),
            ("writing", count(self.writing.iter().flatten().count())),
            ("free", count(self.free.len())),
        ];
        if self.counted != Some(counts) {
            trace.count(&self.track("slots"), &counts);
            self.counted = Some(counts);
        }
    }

    /// The bytes so far, by access path.
    pub fn trace_bytes(&self) {
        if let Some(trace) = &self.shared.race.options.trace {
            trace.count(&self.track("bytes"), &self.tally.report.bytes_by_path.named());
        }
    }

    pub fn note_first_chunk(&mut self) {
        let report = &mut self.tally.report;
        if report.first_chunk_ns == 0 {
            report.first_chunk_ns = self.shared.start.elapsed().as_nanos() as u64;
        }
    }

    /// A span that began at `start` and ends now.
    pub fn trace_span(
        &self,
        (track, name): (&str, &'static str),
        start: Instant,
        chunk: usize,
        slot: usize,
        bytes: u64,
    ) {
        if let Some(trace) = &self.shared.race.options.trace {
            trace.record(self.track(track), name, start, chunk, Some(slot), bytes);
        }
    }
}

/// Slots that can be used: at least one.
fn ready_slots<P, L: DeviceLane<P> + ?Sized>(lane: &mut L) -> Result<usize, RaceError> {
    let failed = |source| device_error(None, "preparing slots", source);
    let ready = lane.slots_ready().map_err(failed)?;
    if ready == 0 {
        return Err(failed("no slot became ready".into()));
    }
    Ok(ready.min(lane.slots()))
}
