//! Slots and a program for the length of one race.

use std::sync::Arc;
use std::time::Instant;

use headrace_io::Window;

use super::{CudaSlots, DeviceProgram, DeviceSlice};
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

impl<P> CudaLane<'_, P> {
    /// The program, with whatever it gathered.
    pub fn into_program(self) -> P {
        self.program
    }
}

// SAFETY: each window is the pinned memory of one slot: mapped in whole pages, zeroed by the
// system, owned by the `CudaSlots` that the lane borrows, and handed to nobody else.
unsafe impl<P: DeviceProgram> DeviceLane for CudaLane<'_, P> {
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

    fn resident_bytes(&mut self, chunk: usize) -> Option<u64> {
        self.program.resident_bytes(chunk)
    }

    unsafe fn copy_to_device(
        &mut self,
        slot: usize,
        offset: usize,
        from: &[u8],
    ) -> Result<(), BoxError> {
        let stream = &self.slots.idle.copy;
        let slot = &mut self.slots.slots[slot];
        slot.next_copy()?.0.record(stream)?;
        // SAFETY: the race keeps `from` until the execution was seen to be done, or
        // `synchronize` has returned; the slot's device memory lives as long as the streams have
        // work on it; the last execution on it was seen to be done.
        unsafe { stream.copy_h2d_async(&slot.memory, offset, from)? };
        slot.copies[slot.copies_used - 1].1.record(stream)?;
        Ok(())
    }

    fn mark_copied(&mut self, slot: usize) -> Result<(), BoxError> {
        Ok(self.slots.slots[slot].copied.record(&self.slots.idle.copy)?)
    }

    fn launch(
        &mut self,
        slot: usize,
        chunk: usize,
        buffers: &[DeviceRange],
    ) -> Result<(), BoxError> {
        let stream = &self.slots.idle.compute;
        let slot = &mut self.slots.slots[slot];
        let base = slot.memory.ptr();
        debug_assert!(base.is_multiple_of(DEVICE_ALIGN_BYTES as u64));
        slot.buffers.clear();
        slot.buffers.extend(
            buffers.iter().map(|range| DeviceSlice {
                address: base + range.offset as u64,
                bytes: range.bytes,
            }),
        );
        stream.wait_event(&slot.copied)?;
        slot.execute_begin.record(stream)?;
        self.program.launch(stream, chunk, &slot.buffers)
    }

    fn launch_resident(&mut self, slot: usize, chunk: usize) -> Result<(), BoxError> {
        let stream = &self.slots.idle.compute;
        self.slots.slots[slot].buffers.clear();
        self.slots.slots[slot].execute_begin.record(stream)?;
        self.program.launch_resident(stream, chunk)
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
        slot.returning = true;
        Ok(())
    }

    fn poll(&mut self, slot: usize) -> Result<bool, BoxError> {
        let slot = &self.slots.slots[slot];
        // The copy back waits for the execution.
        let last = if slot.returning { &slot.returned } else { &slot.executed };
        Ok(last.is_complete()?)
    }

    fn wait(&mut self, slot: usize) -> Result<(), BoxError> {
        let slot = &self.slots.slots[slot];
        let last = if slot.returning { &slot.returned } else { &slot.executed };
        Ok(last.synchronize()?)
    }

    fn stage_spans(&mut self, slot: usize) -> Option<StageSpans> {
        let slots = &*self.slots;
        let slot = &slots.slots[slot];
        let copies = &slot.copies[..slot.copies_used];
        let copied = copies
            .first()
            .zip(copies.last())
            .and_then(|((begin, _), (_, end))| slots.host_time(begin).zip(slots.host_time(end)));
        let executed = slots.host_time(&slot.execute_begin).zip(slots.host_time(&slot.executed));
        // Without a clock there is nothing to tell.
        executed.is_some().then_some(StageSpans { copied, executed })
    }

    fn output_span(&mut self, slot: usize) -> Option<(Instant, Instant)> {
        let slots = &*self.slots;
        let slot = &slots.slots[slot];
        if !slot.returning {
            return None;
        }
        slots.host_time(&slot.return_begin).zip(slots.host_time(&slot.returned))
    }

    fn retire(&mut self, slot: usize, chunk: usize) -> Result<Verdict, BoxError> {
        let slots = &mut *self.slots;
        slots.slots[slot].take_times(&mut slots.times)?;
        self.program.retire(chunk)
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
