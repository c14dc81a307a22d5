//! A chunk on its way into device memory.

use std::sync::Arc;
use std::time::Instant;

use headrace_gpu::nvtx;
use headrace_io::{Completion, FedChunk, Kept, ReadAt, ReadMode, ReadRequest, ReadSpec, Window};

use super::driver::Driver;
use super::shared::{Event, check_fits, device_error, device_ranges};
use super::slot::{Filled, Filling, MemoryPath, Origin, Reading};
use crate::choose::Way;
use crate::device_reads::{DeviceRead, DeviceReadDone, DeviceReads};
use crate::engines::{tag, untag};
use crate::lane::{DeviceLane, DeviceRange};
use crate::memory_source::MemorySource;
use crate::registered::{
    PieceKey, Refusal, Registered, RegisteredPiece, Registrars, SharedMapping, part_in, pieces,
};
use crate::slots::SlotLayout;
use crate::{AccessPath, BytesByPath, RaceError};

/// The work to begin for a buffer.
enum Job {
    Read(ReadRequest),
    /// Like a read, from memory.
    Copy(ReadRequest),
    Pieces(usize, Arc<SharedMapping>),
    Device(usize),
}

impl<P: Default, L: DeviceLane<P> + ?Sized> Driver<'_, P, L> {
    /// Begins to fill a slot with a chunk.
    pub(super) fn begin(&mut self, slot: usize, chunk: FedChunk<P>) -> Result<(), RaceError> {
        let _range = nvtx::range("begin reads");
        let (number, reads) = (chunk.number, &chunk.reads);
        check_fits(self.shared.race, &*self.lane, number, reads)?;
        self.lane
            .begin(&chunk)
            .map_err(|source| device_error(Some(number), "preparing", source))?;
        let mut layout = SlotLayout::new(self.lane.host_window(slot));
        let mut buffers = Vec::with_capacity(reads.len());
        let mut jobs = Vec::with_capacity(reads.len());
        let mut ranges = device_ranges(reads).0;
        let mut bytes = BytesByPath::default();
        for (buffer, (read, file)) in reads.iter().zip(&chunk.files).enumerate() {
            if self.lane.is_resident(number, buffer) {
                ranges[buffer] = DeviceRange::default();
                bytes.resident_device += read.bytes;
                buffers.push(None);
                continue;
            }
            let way = self.chooser.choose(read, file)?;
            let past_slot = matches!(way, Way::Nothing | Way::Registered(_) | Way::DeviceReader);
            // What was forced past the slot need not fit it, and never falls back to it.
            let (window, wanted) = if past_slot && self.is_past_slots_forced() {
                (Window::new(std::ptr::null_mut(), 0), Window::new(std::ptr::null_mut(), 0))
            } else {
                layout.place(read.offset, read.bytes)
            };
            let Some((job, origin)) = self.job(way, (read, file), window, (slot, buffer)) else {
                buffers.push(None);
                continue;
            };
            jobs.push(job);
            buffers.push(Some(Filling { origin, window, wanted }));
        }
        self.reading[slot] = Some(Reading {
            chunk,
            started: Instant::now(),
            buffers_left: jobs.len(),
            buffers,
            ranges,
            bytes,
        });
        if jobs.is_empty() {
            return self.launch(slot);
        }
        jobs.into_iter().try_for_each(|job| match job {
            // SAFETY: the window lies in a slot that belongs to this chunk, or in a reservation
            // that `reading` holds; both stay until the completion was seen, or the engines were
            // dropped (they are dropped before both).
            Job::Read(request) => unsafe {
                self.engines.submit(request, &mut self.chooser.reasons)
            },
            // SAFETY: as above.
            Job::Copy(request) => unsafe {
                self.engines.submit_copy(request, &mut self.chooser.reasons)
            },
            Job::Pieces(buffer, mapping) => self.want_pieces(slot, buffer, &mapping),
            Job::Device(buffer) => self.read_on_device(slot, buffer),
        })
    }

    fn is_past_slots_forced(&self) -> bool {
        let access = self.shared.race.options.access;
        matches!(access, AccessPath::Registered | AccessPath::CuFile)
    }

    fn job(
        &mut self,
        way: Way,
        (read, file): (&ReadSpec, &Arc<dyn ReadAt>),
        window: Window,
        (slot, buffer): (usize, usize),
    ) -> Option<(Job, Origin)> {
        let mut request = ReadRequest {
            file: file.clone(),
            mode: ReadMode::Buffered,
            offset: read.offset,
            bytes: read.bytes,
            window,
            tag: tag(slot, buffer),
        };
        let origin = match way {
            Way::Nothing => return None,
            Way::Registered(mapping) => {
                let left = self.pieces_of(read).count();
                let origin = Origin::Pieces { left, refused: false };
                return Some((Job::Pieces(buffer, mapping), origin));
            }
            Way::DeviceReader => return Some((Job::Device(buffer), Origin::Device)),
            // It is a file that copies from memory.
            Way::Memory(_) => Origin::Memory(Some(MemoryPath::Given)),
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
                match if admit { self.chooser.reserve(read, file) } else { None } {
                    Some(reservation) => {
                        request.window = reservation.window();
                        Origin::Admitted(reservation)
                    }
                    None => Origin::File,
                }
            }
        };
        let from_memory = matches!(origin, Origin::Memory(_));
        Some((if from_memory { Job::Copy(request) } else { Job::Read(request) }, origin))
    }

    pub(super) fn read_completed(&mut self, completion: Completion) -> Result<(), RaceError> {
        let (slot, buffer) = untag(completion.tag);
        let filling = self.reading[slot]
            .as_mut()
            .and_then(|reading| Some((&reading.chunk, reading.buffers[buffer].as_mut()?)));
        let Some((chunk, filling)) = filling else {
            self.engines.completed(&completion, 0, true);
            return Ok(());
        };
        let (read, file) = (chunk.reads[buffer], chunk.files[buffer].clone());
        let chunk = chunk.number;
        let from_memory = matches!(filling.origin, Origin::Memory(_));
        // The second half of an admission: its bytes are counted already.
        let counted = matches!(filling.origin, Origin::Memory(None));
        let bytes = if counted { 0 } else { read.bytes };
        let (origin, window) =
            (std::mem::replace(&mut filling.origin, Origin::Memory(None)), filling.window);
        self.engines.completed(&completion, bytes, from_memory);
        let done = completion.result.map_err(|source| RaceError::Read { chunk, source })?;
        if !from_memory {
            self.chooser.check_read(&read, &file, &done)?;
        }
        if done.direct_refused_bytes > 0 {
            let path = file.path().display();
            self.chooser.reasons.add(format!("{path}: O_DIRECT reads were refused (EINVAL)"));
        }
        let Some(reading) = self.reading[slot].as_mut() else { return Ok(()) };
        match origin {
            Origin::File => reading.bytes.add_read(&*file, read.bytes, &done),
            Origin::Memory(Some(MemoryPath::Cached)) => reading.bytes.cached += read.bytes,
            Origin::Memory(Some(MemoryPath::Mapped)) => reading.bytes.mapped += read.bytes,
            Origin::Memory(Some(MemoryPath::Given)) => reading.bytes.memory += read.bytes,
            // The others never send a completion of a read.
            Origin::Memory(None) | Origin::Pieces { .. } | Origin::Device => {}
            Origin::Admitted(reservation) => {
                reading.bytes.add_read(&*file, read.bytes, &done);
                let request = ReadRequest {
                    file: MemorySource::cached(file, reservation.commit(), read.offset),
                    mode: ReadMode::Buffered,
                    offset: read.offset,
                    bytes: read.bytes,
                    window,
                    tag: completion.tag,
                };
                // SAFETY: the window lies in a slot that belongs to this chunk until the
                // completion was seen, or the engines were dropped.
                return unsafe { self.engines.submit_copy(request, &mut self.chooser.reasons) };
            }
        }
        self.copy(slot, buffer)
    }

    /// A read ended whose bytes are no longer needed; bytes from a file still count.
    pub(super) fn read_discarded(&mut self, completion: &Completion) {
        let (slot, buffer) = untag(completion.tag);
        let from_file = self.reading[slot].as_ref().and_then(|reading| {
            let origin = &reading.buffers[buffer].as_ref()?.origin;
            let bytes = reading.chunk.reads[buffer].bytes;
            (!matches!(origin, Origin::Memory(_))).then_some(bytes)
        });
        match from_file.filter(|_| completion.result.is_ok()) {
            Some(bytes) => self.engines.completed(completion, bytes, false),
            None => self.engines.completed(completion, 0, true),
        }
    }

    /// A buffer is in its slot: its copy can begin, independently of the other buffers.
    fn copy(&mut self, slot: usize, buffer: usize) -> Result<(), RaceError> {
        let Some(reading) = self.reading[slot].as_ref() else { return Ok(()) };
        let Some(Filling { wanted, .. }) = &reading.buffers[buffer] else { return Ok(()) };
        let from = *wanted;
        let (chunk, offset) = (reading.chunk.number, reading.ranges[buffer].offset);
        let _range = nvtx::range("enqueue copy to device");
        // SAFETY: the wanted bytes lie in the slot's window, which the lane promised is valid and
        // initialised; the read is complete, and nobody writes there until the slot is free, or
        // its output is copied back, which is after this copy. The slot becomes free only after
        // its execution was seen to be done, and the race ends with `synchronize` in any case.
        unsafe { self.lane.copy_to_device(slot, offset, from) }
            .map_err(|source| device_error(Some(chunk), "copy to the device", source))?;
        self.buffer_is_on_its_way(slot, buffer, |_| {})
    }

    /// All copies of a buffer are enqueued, or it is in device memory.
    fn buffer_is_on_its_way(
        &mut self,
        slot: usize,
        buffer: usize,
        count: impl FnOnce(&mut BytesByPath),
    ) -> Result<(), RaceError> {
        let Some(reading) = self.reading[slot].as_mut() else { return Ok(()) };
        reading.buffers[buffer] = None;
        count(&mut reading.bytes);
        reading.buffers_left -= 1;
        if reading.buffers_left == 0 { self.launch(slot) } else { Ok(()) }
    }

    /// The pieces of an extent in which its mapping is registered.
    fn pieces_of(&self, read: &ReadSpec) -> impl Iterator<Item = u64> + use<P, L> {
        let piece_bytes = match &self.shared.registered {
            Ok((pool, _)) => pool.piece_bytes(),
            Err(_) => usize::MAX,
        };
        pieces(read.offset, read.bytes, piece_bytes)
    }

    /// Copies from the registered pieces and requests registration of the others.
    fn want_pieces(
        &mut self,
        slot: usize,
        buffer: usize,
        mapping: &Arc<SharedMapping>,
    ) -> Result<(), RaceError> {
        let Some(reading) = self.reading[slot].as_ref() else { return Ok(()) };
        let (chunk, read) = (reading.chunk.number, reading.chunk.reads[buffer]);
        let shared = self.shared;
        let Ok((pool, race)) = &shared.registered else { return Ok(()) };
        let identity = mapping.file().identity();
        for piece in self.pieces_of(&read) {
            if let Some(found) = pool.find(&PieceKey { identity, piece }, *race) {
                self.copy_piece(slot, buffer, piece, found)?;
                continue;
            }
            if self.registrars.is_none() {
                let registrar = self.lane.registrar();
                let Some(registrar) = registrar else {
                    let source = "the lane had a registrar, and has none any more".into();
                    return Err(device_error(Some(chunk), "registering a mapping", source));
                };
                let (threads, events) = (shared.race.options.registrars, self.events.clone());
                let forced = self.is_past_slots_forced();
                // Nobody listens any more only if the race is being unwound.
                let sink = move |done| drop(events.send(Event::Registered(done)));
                let started = Registrars::start(threads, pool, &registrar, (*race, forced), sink);
                self.registrars = Some(started.map_err(RaceError::StartUp)?);
            }
            if let Some(registrars) = &self.registrars {
                registrars.want(mapping.clone(), piece, tag(slot, buffer));
                self.registering += 1;
                self.engines.begun_elsewhere();
            }
        }
        Ok(())
    }

    /// A piece was registered, or refused.
    pub(super) fn registered(&mut self, registered: Registered) -> Result<(), RaceError> {
        self.registering -= 1;
        self.engines.ended_elsewhere(None);
        let (slot, buffer) = untag(registered.tag);
        match registered.result {
            Ok(piece) => self.copy_piece(slot, buffer, registered.piece, piece),
            Err(refusal) => self.piece_refused(slot, buffer, &refusal),
        }
    }

    /// Copies the part of an extent that lies in a registered piece.
    fn copy_piece(
        &mut self,
        slot: usize,
        buffer: usize,
        piece: u64,
        registered: Arc<Kept<RegisteredPiece>>,
    ) -> Result<(), RaceError> {
        let Some(reading) = self.reading[slot].as_ref() else { return Ok(()) };
        let Ok((pool, _)) = &self.shared.registered else { return Ok(()) };
        let (chunk, start) = (reading.chunk.number, reading.ranges[buffer].offset);
        let read = reading.chunk.reads[buffer];
        let part = part_in(piece, read.offset, read.bytes, pool.piece_bytes());
        let offset = start + (part.start - read.offset) as usize;
        self.pins[slot].push(registered.clone());
        let _range = nvtx::range("enqueue copy to device");
        let from = registered.mapping().window(part);
        // SAFETY: the pages are pinned, so that the device can read them, while `pins` holds the
        // piece: until the slot's execution was seen to be done, or the lane was synchronised. The
        // mapping is for reading only.
        unsafe { self.lane.copy_to_device(slot, offset, from) }
            .map_err(|source| device_error(Some(chunk), "copy to the device", source))?;
        self.piece_done(slot, buffer, false)
    }

    fn piece_refused(
        &mut self,
        slot: usize,
        buffer: usize,
        refusal: &Refusal,
    ) -> Result<(), RaceError> {
        let Some(reading) = self.reading[slot].as_ref() else { return Ok(()) };
        let (read, file) = (reading.chunk.reads[buffer], &reading.chunk.files[buffer]);
        if *refusal == Refusal::Cancelled {
            return Ok(());
        }
        if self.is_past_slots_forced() {
            return Err(self.chooser.unavailable(file, refusal.to_string()));
        }
        let path = file.path().display();
        self.chooser.reasons.add(format!("{path}: copied through slots: {refusal}"));
        if matches!(refusal, Refusal::Driver(_)) {
            self.chooser.cannot_register(read.file, refusal.to_string());
        }
        self.piece_done(slot, buffer, true)
    }

    /// One pending piece less. If any piece was refused, the whole extent is read into the slot.
    fn piece_done(
        &mut self,
        slot: usize,
        buffer: usize,
        was_refused: bool,
    ) -> Result<(), RaceError> {
        let Some(reading) = self.reading[slot].as_mut() else { return Ok(()) };
        let (read, file) = (reading.chunk.reads[buffer], reading.chunk.files[buffer].clone());
        let Some(filling) = reading.buffers[buffer].as_mut() else { return Ok(()) };
        let Origin::Pieces { left, refused } = &mut filling.origin else { return Ok(()) };
        *left -= 1;
        *refused |= was_refused;
        if *left > 0 {
            return Ok(());
        }
        if !*refused {
            return self.buffer_is_on_its_way(slot, buffer, |bytes| bytes.registered += read.bytes);
        }
        filling.origin = Origin::File;
        let request = ReadRequest {
            file,
            mode: ReadMode::Buffered,
            offset: read.offset,
            bytes: read.bytes,
            window: filling.window,
            tag: tag(slot, buffer),
        };
        // SAFETY: the window lies in a slot that belongs to this chunk until the completion was
        // seen, or the engines were dropped.
        unsafe { self.engines.submit(request, &mut self.chooser.reasons) }
    }

    /// Has the device's own reader fill a buffer.
    fn read_on_device(&mut self, slot: usize, buffer: usize) -> Result<(), RaceError> {
        let Some(reading) = self.reading[slot].as_ref() else { return Ok(()) };
        let (read, file) = (reading.chunk.reads[buffer], reading.chunk.files[buffer].clone());
        let slot_offset = reading.ranges[buffer].offset;
        if self.device_reads.is_none() {
            let Some(reader) = &self.reader else { return Ok(()) };
            let threads = (self.shared.race.options.readers / self.shared.lanes).max(2);
            let events = self.events.clone();
            // Nobody listens any more only if the race is being unwound.
            let sink = move |done| drop(events.send(Event::DeviceRead(done)));
            let started = DeviceReads::start(threads, reader, sink);
            self.device_reads = Some(started.map_err(RaceError::StartUp)?);
        }
        let request = DeviceRead {
            file,
            offset: read.offset,
            bytes: read.bytes as usize,
            slot,
            slot_offset,
            tag: tag(slot, buffer),
        };
        if let Some(reads) = &self.device_reads {
            self.device_reading += 1;
            self.engines.begun_elsewhere();
            // SAFETY: the range is this buffer's part of the slot's device memory, which belongs
            // to the chunk until the answer was seen, or the reads were dropped.
            unsafe { reads.submit(request) };
        }
        Ok(())
    }

    pub(super) fn device_read_done(&mut self, done: DeviceReadDone) -> Result<(), RaceError> {
        self.device_reading -= 1;
        let (slot, buffer) = untag(done.tag);
        let Some(reading) = self.reading[slot].as_ref() else {
            self.engines.ended_elsewhere(None);
            return Ok(());
        };
        let (chunk, bytes) = (reading.chunk.number, reading.chunk.reads[buffer].bytes);
        self.engines.ended_elsewhere(Some((bytes, done.requests, done.latency_ns)));
        done.result
            .map_err(|source| device_error(Some(chunk), "read into device memory", source))?;
        self.buffer_is_on_its_way(slot, buffer, |by_path| by_path.cufile += bytes)
    }

    /// A read by the device ended whose bytes are no longer needed.
    pub(super) fn device_read_discarded(&mut self, done: &DeviceReadDone) {
        self.device_reading -= 1;
        let (slot, buffer) = untag(done.tag);
        let reading = self.reading[slot].as_ref().filter(|_| done.result.is_ok());
        let brought = reading.map(|reading| {
            let bytes = reading.chunk.reads[buffer].bytes;
            (bytes, done.requests, done.latency_ns)
        });
        self.engines.ended_elsewhere(brought);
    }

    /// Takes a filled slot's chunk to be launched.
    pub(super) fn take_filled(&mut self, slot: usize) -> Option<Filled> {
        let Reading { chunk, started, ranges, bytes, .. } = self.reading[slot].take()?;
        let chunk = chunk.number;
        self.trace_span(
            (&format!("read slot {slot}"), "read"),
            started,
            chunk,
            slot,
            bytes.total(),
        );
        Some(Filled { chunk, ranges, bytes })
    }
}
