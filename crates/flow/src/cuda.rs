//! A lane on a CUDA device: pinned slots, device memory, a copy stream and a compute stream.
//!
//! ```text
//! copy stream     [copy 0a][copy 0b]·copied 0   [copy 1a][copy 1b]·copied 1   ...
//! compute stream                    └►[kernels of 0]·executed 0   └►[kernels of 1]·executed 1
//! ```
//!
//! [`CudaSlots`] is made once and kept from race to race, because pinning memory costs more than
//! reading it. [`CudaLane`] is slots and a [`DeviceProgram`] for the length of one race.

use std::sync::Arc;

use headrace_gpu::{DeviceBuffer, DevicePool, Event, EventFlags, GpuError, PinnedBuffer, Stream};
use headrace_io::{EXTENT_ALIGN_BYTES, Window};

use crate::{BoxError, DEVICE_ALIGN_BYTES, DeviceLane, DeviceRange, DeviceTimes, Verdict};

/// A buffer of a chunk in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSlice {
    /// Device address; a multiple of [`DEVICE_ALIGN_BYTES`].
    pub address: u64,
    /// Length.
    pub bytes: usize,
}

/// What is done with a chunk in device memory.
pub trait DeviceProgram {
    /// Enqueues the work on a chunk; must not wait for it. One slice per
    /// [`ReadSpec`](crate::ReadSpec), in that order; they are overwritten once the work that is
    /// in `stream` when this returns is done.
    fn launch(
        &mut self,
        stream: &Stream,
        chunk: usize,
        buffers: &[DeviceSlice],
    ) -> Result<(), BoxError>;

    /// Bytes of the chunk's buffers if they all lie in device memory already.
    fn resident_bytes(&mut self, _chunk: usize) -> Option<u64> {
        None
    }

    /// Enqueues the work on a chunk for which [`resident_bytes`](Self::resident_bytes) gave an
    /// answer.
    fn launch_resident(&mut self, _stream: &Stream, chunk: usize) -> Result<(), BoxError> {
        Err(format!("chunk {chunk} is not resident in device memory").into())
    }

    /// The work on the chunk is done.
    fn retire(&mut self, _chunk: usize) -> Result<Verdict, BoxError> {
        Ok(Verdict::Continue)
    }
}

/// The memory, streams and events of a lane.
#[derive(Debug)]
pub struct CudaSlots {
    // First, so that it is dropped first: nothing may be at work on the memory below.
    idle: IdleOnDrop,
    slots: Vec<Slot>,
    slot_bytes: usize,
    times: DeviceTimes,
}

/// The streams; waits for both when dropped.
#[derive(Debug)]
struct IdleOnDrop {
    copy: Stream,
    compute: Stream,
}

#[derive(Debug)]
struct Slot {
    host: PinnedBuffer,
    memory: DeviceBuffer,
    /// Begin and end of each copy of the chunk that is in the slot; the first `copies_used`.
    copies: Vec<(Event, Event)>,
    copies_used: usize,
    /// All copies of the chunk are done.
    copied: Event,
    execute_begin: Event,
    executed: Event,
}

impl Slot {
    fn new(pool: &Arc<DevicePool>, slot_bytes: usize) -> Result<Slot, GpuError> {
        let device = pool.device();
        Ok(Slot {
            host: PinnedBuffer::new(device, slot_bytes)?,
            memory: pool.alloc(slot_bytes)?,
            copies: Vec::new(),
            copies_used: 0,
            copied: device.event(EventFlags::ORDER)?,
            execute_begin: device.event(EventFlags::TIMING)?,
            executed: device.event(EventFlags::TIMING)?,
        })
    }

    /// Begin and end of the next copy.
    fn next_copy(&mut self) -> Result<&(Event, Event), GpuError> {
        if self.copies_used == self.copies.len() {
            let device = self.memory.device();
            let pair = (device.event(EventFlags::TIMING)?, device.event(EventFlags::TIMING)?);
            self.copies.push(pair);
        }
        self.copies_used += 1;
        Ok(&self.copies[self.copies_used - 1])
    }

    /// Adds up what the chunk took; all of its events have passed.
    fn take_times(&mut self, times: &mut DeviceTimes) -> Result<(), GpuError> {
        for (begin, end) in &self.copies[..self.copies_used] {
            times.h2d_ns += nanoseconds(begin.elapsed_ms(end)?);
        }
        times.kernel_ns += nanoseconds(self.execute_begin.elapsed_ms(&self.executed)?);
        self.copies_used = 0;
        Ok(())
    }
}

fn nanoseconds(milliseconds: f32) -> u64 {
    (f64::from(milliseconds) * 1e6) as u64
}

impl CudaSlots {
    /// Slots of pinned host memory and device memory.
    ///
    /// Keep the ring small (100 to 150 MB): the reader threads write it and the device reads it,
    /// and while it stays in the processor's last-level cache neither waits for memory. On one
    /// H200 with a link of 55.4 GB/s a warm file arrived at 52.7 GB/s through 6 slots of 24 MiB,
    /// and at 29 GB/s through 12 of them.
    ///
    /// Allocates `slots` slots (at least 1) of `slot_bytes` bytes (rounded up to
    /// [`EXTENT_ALIGN_BYTES`]) of pinned host memory and as much device memory from the pool.
    ///
    /// # Errors
    /// Those of the allocations; out of memory names the tier.
    pub fn new(
        pool: &Arc<DevicePool>,
        slots: usize,
        slot_bytes: usize,
    ) -> Result<CudaSlots, GpuError> {
        let slot_bytes = slot_bytes.max(1).next_multiple_of(EXTENT_ALIGN_BYTES);
        let device = pool.device();
        Ok(CudaSlots {
            idle: IdleOnDrop { copy: device.stream()?, compute: device.stream()? },
            slots: (0..slots.max(1))
                .map(|_| Slot::new(pool, slot_bytes))
                .collect::<Result<_, _>>()?,
            slot_bytes,
            times: DeviceTimes::default(),
        })
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Size of a slot, in host and in device memory.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The stream in which programs run.
    pub fn compute_stream(&self) -> &Stream {
        &self.idle.compute
    }

    /// A lane for one race.
    pub fn lane<P: DeviceProgram>(&mut self, program: P) -> CudaLane<'_, P> {
        CudaLane { slots: self, program }
    }
}

impl Drop for IdleOnDrop {
    fn drop(&mut self) {
        // An error means that the context is lost; then nothing is at work either.
        let _ = self.copy.synchronize();
        let _ = self.compute.synchronize();
    }
}

/// Slots and a program for the length of one race.
pub struct CudaLane<'a, P> {
    slots: &'a mut CudaSlots,
    program: P,
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

    fn host_window(&self, slot: usize) -> Window {
        Window::new(self.slots.slots[slot].host.ptr().as_ptr(), self.slots.slot_bytes)
    }

    fn device_slot_bytes(&self) -> usize {
        self.slots.slot_bytes
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
        let slot = &self.slots.slots[slot];
        let base = slot.memory.ptr();
        debug_assert!(base.is_multiple_of(DEVICE_ALIGN_BYTES as u64));
        let buffers: Vec<DeviceSlice> = buffers
            .iter()
            .map(|range| DeviceSlice { address: base + range.offset as u64, bytes: range.bytes })
            .collect();
        stream.wait_event(&slot.copied)?;
        slot.execute_begin.record(stream)?;
        self.program.launch(stream, chunk, &buffers)
    }

    fn launch_resident(&mut self, slot: usize, chunk: usize) -> Result<(), BoxError> {
        let stream = &self.slots.idle.compute;
        self.slots.slots[slot].execute_begin.record(stream)?;
        self.program.launch_resident(stream, chunk)
    }

    fn mark_executed(&mut self, slot: usize) -> Result<(), BoxError> {
        Ok(self.slots.slots[slot].executed.record(&self.slots.idle.compute)?)
    }

    fn poll(&mut self, slot: usize) -> Result<bool, BoxError> {
        Ok(self.slots.slots[slot].executed.is_complete()?)
    }

    fn wait(&mut self, slot: usize) -> Result<(), BoxError> {
        Ok(self.slots.slots[slot].executed.synchronize()?)
    }

    fn retire(&mut self, slot: usize, chunk: usize) -> Result<Verdict, BoxError> {
        let slots = &mut *self.slots;
        slots.slots[slot].take_times(&mut slots.times)?;
        self.program.retire(chunk)
    }

    fn synchronize(&mut self) -> Result<(), BoxError> {
        // Both, also if the first one failed.
        let copies = self.slots.idle.copy.synchronize();
        let kernels = self.slots.idle.compute.synchronize();
        for slot in &mut self.slots.slots {
            slot.copies_used = 0;
        }
        copies?;
        Ok(kernels?)
    }

    fn times(&mut self) -> DeviceTimes {
        self.slots.times
    }
}
