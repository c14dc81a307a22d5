//! A lane whose slots are ordinary memory: what copies cost that does without pinning.

use std::time::Instant;

use headrace_flow::{
    BoxError, CudaLane, DeviceLane, DeviceProgram, DeviceRange, DeviceTimes, OutputSpec,
    StageSpans, Verdict,
};
use headrace_io::{AlignedBuffer, Window};

/// A CUDA lane with the host memory of its slots exchanged. The driver copies such memory through
/// a buffer of its own and keeps the calling thread until it has read it.
pub(super) struct PageableLane<'a, P> {
    pub inner: CudaLane<'a, P>,
    /// One a slot, each as large as a slot.
    pub memory: &'a [AlignedBuffer],
}

// SAFETY: each window is the memory of one buffer: mapped in whole pages, zeroed by the system,
// borrowed for as long as the lane lives, and handed to nobody else.
unsafe impl<P: DeviceProgram> DeviceLane for PageableLane<'_, P> {
    fn slots(&self) -> usize {
        self.inner.slots().min(self.memory.len())
    }

    fn host_window(&self, slot: usize) -> Window {
        Window::new(self.memory[slot].as_ptr(), self.memory[slot].len())
    }

    fn device_slot_bytes(&self) -> usize {
        self.inner.device_slot_bytes()
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
