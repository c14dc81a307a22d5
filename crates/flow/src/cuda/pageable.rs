//! A lane with ordinary memory for slots: measures copies without pinning.

use std::time::Instant;

use headrace_io::{AlignedBuffer, FedChunk, IoError, Window};
use serde::Serialize;

use super::{CudaLane, CudaSlots, DeviceProgram};
use crate::{BoxError, DeviceLane, DeviceRange, DeviceTimes, OutputSpec, StageSpans, Verdict};

/// Host memory on the way to a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostMemory {
    /// Registered with the driver: copies run at the speed of the link, beside everything else.
    #[default]
    Pinned,
    /// Ordinary memory, which the driver copies through its own buffer.
    Pageable,
}

impl HostMemory {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            HostMemory::Pinned => "pinned",
            HostMemory::Pageable => "pageable",
        }
    }
}

/// A CUDA lane with replaced host memory. The driver copies such memory through its own buffer and
/// blocks the calling thread until it has read it.
pub struct PageableLane<'a, P> {
    inner: CudaLane<'a, P>,
    memory: &'a [AlignedBuffer],
}

impl<'a, P> PageableLane<'a, P> {
    /// The lane with other memory, as [`pageable_slots`] makes it for its slots.
    ///
    /// # Panics
    /// If a slot has no memory, or too little.
    pub fn new(inner: CudaLane<'a, P>, memory: &'a [AlignedBuffer]) -> Self {
        let slot_bytes = inner.slots.slot_bytes();
        assert!(memory.len() >= inner.slots.slots(), "one for each slot");
        assert!(memory.iter().all(|memory| memory.len() >= slot_bytes), "each as large as a slot");
        PageableLane { inner, memory }
    }

    /// The program, with its results.
    pub fn into_program(self) -> P {
        self.inner.into_program()
    }
}

/// Ordinary memory for slots, touched so that its first use does not affect a measurement.
///
/// # Errors
/// If there is not enough memory.
pub fn pageable_slots(slots: &CudaSlots) -> Result<Vec<AlignedBuffer>, IoError> {
    let slot = |_| {
        let mut slot = AlignedBuffer::allocate(slots.slot_bytes())?;
        slot.touch(1);
        Ok(slot)
    };
    (0..slots.slots()).map(slot).collect()
}

// SAFETY: each window is the memory of one buffer: mapped in whole pages, zeroed by the system,
// borrowed for as long as the lane lives, and handed to nobody else.
unsafe impl<C, P: DeviceProgram<C>> DeviceLane<C> for PageableLane<'_, P> {
    fn slots(&self) -> usize {
        self.inner.slots()
    }

    fn host_window(&self, slot: usize) -> Window {
        Window::new(self.memory[slot].as_ptr(), self.memory[slot].len())
    }

    fn device_slot_bytes(&self) -> usize {
        self.inner.device_slot_bytes()
    }

    fn begin(&mut self, chunk: &FedChunk<C>) -> Result<(), BoxError> {
        self.inner.begin(chunk)
    }

    fn is_resident(&mut self, chunk: usize, buffer: usize) -> bool {
        self.inner.is_resident(chunk, buffer)
    }

    unsafe fn copy_to_device(
        &mut self,
        slot: usize,
        offset: usize,
        from: Window,
    ) -> Result<(), BoxError> {
        // SAFETY: the race's promise is passed on.
        unsafe { self.inner.copy_to_device(slot, offset, from) }
    }

    fn mark_copied(&mut self, slot: usize) -> Result<(), BoxError> {
        self.inner.mark_copied(slot)
    }

    fn launch(
        &mut self,
        slot: usize,
        chunk: usize,
        buffers: &[DeviceRange],
    ) -> Result<(), BoxError> {
        self.inner.launch(slot, chunk, buffers)
    }

    fn output(&mut self, slot: usize, chunk: usize) -> Result<Option<OutputSpec>, BoxError> {
        match self.inner.output(slot, chunk)? {
            // It would go to the inner lane's own memory.
            Some(_) => Err("a lane of ordinary memory puts nothing out".into()),
            None => Ok(None),
        }
    }

    fn mark_executed(&mut self, slot: usize) -> Result<(), BoxError> {
        self.inner.mark_executed(slot)
    }

    fn poll(&mut self, slot: usize) -> Result<bool, BoxError> {
        self.inner.poll(slot)
    }

    fn wait(&mut self, slot: usize) -> Result<(), BoxError> {
        self.inner.wait(slot)
    }

    fn stage_spans(&mut self, slot: usize) -> Option<StageSpans> {
        self.inner.stage_spans(slot)
    }

    fn output_span(&mut self, slot: usize) -> Option<(Instant, Instant)> {
        self.inner.output_span(slot)
    }

    fn retire(&mut self, slot: usize, chunk: usize) -> Result<Verdict, BoxError> {
        self.inner.retire(slot, chunk)
    }

    fn synchronize(&mut self) -> Result<(), BoxError> {
        self.inner.synchronize()
    }

    fn times(&mut self) -> DeviceTimes {
        self.inner.times()
    }
}
