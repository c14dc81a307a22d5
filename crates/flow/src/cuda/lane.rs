//! Slots and a program for the length of one race.

use std::sync::Arc;
use std::time::Instant;

use headrace_io::{FedChunk, Window};

use super::slots::Returning;
use super::{CudaSlots, DeviceProgram, DeviceSlice, SlotChunk};
use crate::lane::DeviceReader;
use crate::{
    BoxError, DEVICE_ALIGN_BYTES, DeviceLane, DeviceRange, DeviceTimes, HostRegistrar, OutputSpec,
    StageSpans, Verdict,
};

/// Slots and a program for the length of one race.
pub struct CudaLane<'a, P> {
    pub(super) slots: &'a mut CudaSlots,
    pub(super) program: P,
}

impl CudaSlots {
    /// A lane for one race.
    pub fn lane<P>(&mut self, program: P) -> CudaLane<'_, P> {
        // Anew for each race: the device's clock is read as a 32-bit float of milliseconds.
        // Without it there is no time line of the device, and nothing else is lost.
        self.clock = self.read_clocks().ok();
        CudaLane { slots: self, program }
    }
}

impl<P> CudaLane<'_, P> {
    /// The program, with its results.
    pub fn into_program(self) -> P {
        self.program
    }
}

impl<P> CudaLane<'_, P> {
    /// Lets the program fetch more of a chunk whose work and copies so far are done; returns
    /// whether it began another copy, or more work.
    fn bring_back<C>(&mut self, slot: usize) -> Result<bool, BoxError>
    where
        P: DeviceProgram<C>,
    {
        let stream = &self.slots.idle.back;
        let state = &mut self.slots.slots[slot];
        match state.returning {
            // An output's bytes were all that was to come.
            Returning::Output | Returning::Done => return Ok(false),
            Returning::Nothing => {}
            Returning::Part(_) => state.add_returned_ns()?,
        }
        state.return_begin.record(stream)?;
        let at = SlotChunk { slot, chunk: state.chunk };
        let more = self.program.bring_back(stream, at)?;
        let state = &mut self.slots.slots[slot];
        if more.is_some() {
            state.returned.record(stream)?;
        }
        state.returning = more.map_or(Returning::Done, Returning::Part);
        Ok(more.is_some())
    }
}

// SAFETY: each window is the pinned memory of one slot: mapped in whole pages, zeroed by the
// system, owned by the `CudaSlots` that the lane borrows, and handed to nobody else.
unsafe impl<C, P: DeviceProgram<C>> DeviceLane<C> for CudaLane<'_, P> {
    fn slots(&self) -> usize {
        self.slots.slots.len()
    }

    fn slots_ready(&mut self) -> Result<usize, BoxError> {
        self.slots.pinned.wait_first()?;
        // What cannot be had shows when all that can be had was asked for.
        Ok(self.slots.pinned.poll_ready()?)
    }

    fn host_window(&self, slot: usize) -> Window {
        match self.slots.host(slot) {
            Some(host) => Window::new(host.ptr().as_ptr(), self.slots.slot_bytes),
            // Not ready: the race does not ask for it.
            None => Window::new(std::ptr::null_mut(), 0),
        }
    }

    fn host_slot_bytes(&self) -> usize {
        self.slots.slot_bytes
    }

    fn device_slot_bytes(&self) -> usize {
        self.slots.slot_bytes
    }

    fn registrar(&self) -> Option<Arc<dyn HostRegistrar>> {
        Some(self.slots.registrar.clone())
    }

    fn device_reader(&self, forced: bool) -> Result<Arc<dyn DeviceReader>, String> {
        let reader = self.slots.cufile_reader(forced)?;
        Ok(reader)
    }

    fn begin(&mut self, chunk: &FedChunk<C>) -> Result<(), BoxError> {
        self.program.begin(chunk)
    }

    fn is_resident(&mut self, chunk: usize, buffer: usize) -> bool {
        self.program.is_resident(chunk, buffer)
    }

    unsafe fn copy_to_device(
        &mut self,
        slot: usize,
        offset: usize,
        from: Window,
    ) -> Result<(), BoxError> {
        let slot_bytes = self.slots.slot_bytes;
        if offset.checked_add(from.bytes()).is_none_or(|end| end > slot_bytes) {
            let bytes = from.bytes();
            return Err(format!("{bytes} bytes at {offset} of a slot of {slot_bytes}").into());
        }
        let slot = &mut self.slots.slots[slot];
        slot.copies.push(slot.memory.ptr() + offset as u64, from.as_ptr(), from.bytes());
        Ok(())
    }

    fn mark_copied(&mut self, slot: usize) -> Result<(), BoxError> {
        let stream = &self.slots.idle.copy;
        let slot = &mut self.slots.slots[slot];
        slot.is_copied = !slot.copies.is_empty();
        if slot.is_copied {
            slot.copy_begin.record(stream)?;
            // SAFETY: the race keeps what it gave to `copy_to_device` until the execution was seen
            // to be done, or `synchronize` has returned; the ranges lie inside the slot's device
            // memory, one for each buffer, which lives as long as the streams have work on it; the
            // last execution on it was seen to be done.
            unsafe { stream.copy_h2d_batch(&mut slot.copies)? };
            slot.copies.clear();
        }
        Ok(slot.copied.record(stream)?)
    }

    fn launch(
        &mut self,
        slot: usize,
        chunk: usize,
        buffers: &[DeviceRange],
    ) -> Result<(), BoxError> {
        let stream = &self.slots.idle.compute;
        let at = SlotChunk { slot, chunk };
        let slot = &mut self.slots.slots[slot];
        let base = slot.memory.ptr();
        assert!(base.is_multiple_of(DEVICE_ALIGN_BYTES as u64), "the pool aligns its buffers");
        slot.chunk = chunk;
        slot.buffers.clear();
        slot.buffers.extend(
            buffers.iter().map(|range| DeviceSlice {
                address: base + range.offset as u64,
                bytes: range.bytes,
            }),
        );
        stream.wait_event(&slot.copied)?;
        slot.execute_begin.record(stream)?;
        self.program.launch(stream, at, &slot.buffers)
    }

    fn output(&mut self, slot: usize, chunk: usize) -> Result<Option<OutputSpec>, BoxError> {
        let slot = &mut self.slots.slots[slot];
        let Some(output) = self.program.output(chunk, &slot.buffers)? else {
            return Ok(None);
        };
        slot.output_address = output.address;
        Ok(Some(output.to))
    }

    fn mark_executed(&mut self, slot: usize) -> Result<(), BoxError> {
        Ok(self.slots.slots[slot].executed.record(&self.slots.idle.compute)?)
    }

    unsafe fn copy_to_host(
        &mut self,
        slot: usize,
        window_offset: usize,
        bytes: usize,
    ) -> Result<(), BoxError> {
        let window = self.host_window(slot);
        if window_offset.checked_add(bytes).is_none_or(|end| end > window.bytes()) {
            let window_bytes = window.bytes();
            return Err(format!("an output of {bytes} bytes for a slot of {window_bytes}").into());
        }
        let stream = &self.slots.idle.back;
        let slot = &mut self.slots.slots[slot];
        stream.wait_event(&slot.executed)?;
        slot.return_begin.record(stream)?;
        let into = window.as_ptr().wrapping_add(window_offset);
        // SAFETY: the range lies inside the slot's pinned memory, which nobody touches until the
        // copy was seen to be done (the caller's promise); the program promised that its output
        // stays where it is until then.
        unsafe { stream.copy_d2h_raw(into, slot.output_address, bytes)? };
        slot.returned.record(stream)?;
        slot.returning = Returning::Output;
        Ok(())
    }

    fn appended(&mut self, slot: usize, chunk: usize) -> Result<Vec<(usize, usize)>, BoxError> {
        let pieces = self.program.appended(SlotChunk { slot, chunk })?;
        let slot = &mut self.slots.slots[slot];
        slot.appended.clear();
        slot.appended.extend(pieces.iter().map(|(_, slice)| *slice));
        Ok(pieces.into_iter().map(|(sink, slice)| (sink, slice.bytes)).collect())
    }

    unsafe fn copy_appended(&mut self, slot: usize, places: &[usize]) -> Result<(), BoxError> {
        let window = self.host_window(slot);
        let stream = &self.slots.idle.back;
        let slot = &mut self.slots.slots[slot];
        slot.return_begin.record(stream)?;
        for (&DeviceSlice { address, bytes }, &place) in slot.appended.iter().zip(places) {
            if place.checked_add(bytes).is_none_or(|end| end > window.bytes()) {
                let window_bytes = window.bytes();
                return Err(format!("{bytes} bytes at {place} of a slot of {window_bytes}").into());
            }
            if bytes > 0 {
                let into = window.as_ptr().wrapping_add(place);
                // SAFETY: as in `copy_to_host`.
                unsafe { stream.copy_d2h_raw(into, address, bytes)? };
            }
        }
        slot.returned.record(stream)?;
        slot.returning = Returning::Output;
        Ok(())
    }

    fn poll(&mut self, slot: usize) -> Result<bool, BoxError> {
        while self.slots.slots[slot].last_event().is_complete()? {
            if !self.bring_back(slot)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn wait(&mut self, slot: usize) -> Result<(), BoxError> {
        loop {
            self.slots.slots[slot].last_event().synchronize()?;
            if !self.bring_back(slot)? {
                return Ok(());
            }
        }
    }

    fn stage_spans(&mut self, slot: usize) -> Option<StageSpans> {
        let slots = &*self.slots;
        let slot = &slots.slots[slot];
        let copied = slot
            .is_copied
            .then(|| slots.host_time(&slot.copy_begin).zip(slots.host_time(&slot.copied)))
            .flatten();
        let executed = slots.host_time(&slot.execute_begin).zip(slots.host_time(&slot.executed));
        // Without a clock there is nothing to tell.
        executed.is_some().then_some(StageSpans { copied, executed })
    }

    fn output_span(&mut self, slot: usize) -> Option<(Instant, Instant)> {
        let slots = &*self.slots;
        let slot = &slots.slots[slot];
        if slot.returning != Returning::Output {
            return None;
        }
        slots.host_time(&slot.return_begin).zip(slots.host_time(&slot.returned))
    }

    fn retire(&mut self, slot: usize, chunk: usize) -> Result<Verdict, BoxError> {
        let slots = &mut *self.slots;
        slots.slots[slot].take_times(&mut slots.times)?;
        self.program.retire(SlotChunk { slot, chunk })
    }

    fn synchronize(&mut self) -> Result<(), BoxError> {
        let idle = &self.slots.idle;
        // All of them, also if one failed.
        let outcomes = [&idle.copy, &idle.compute, &idle.back].map(|stream| stream.synchronize());
        for slot in &mut self.slots.slots {
            slot.forget();
        }
        Ok(outcomes.into_iter().collect::<Result<(), _>>()?)
    }

    fn times(&mut self) -> DeviceTimes {
        self.slots.times
    }
}
