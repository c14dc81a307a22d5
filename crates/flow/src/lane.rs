//! What a device offers to the race: slots of pinned host memory and device memory, a copy queue
//! and a compute queue.

use std::time::Instant;

use headrace_io::Window;

use crate::{BoxError, Verdict};

/// Alignment of every buffer in a slot's device memory.
pub const DEVICE_ALIGN_BYTES: usize = 256;

/// A buffer in a slot's device memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceRange {
    /// From the slot's start; a multiple of [`DEVICE_ALIGN_BYTES`].
    pub offset: usize,
    /// Length.
    pub bytes: usize,
}

/// Busy times as the device measured them since the lane was made, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceTimes {
    /// Copies to the device.
    pub h2d_ns: u64,
    /// Kernels.
    pub kernel_ns: u64,
}

/// When the device worked on a chunk, by the host's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageSpans {
    /// Begin of the first and end of the last copy; `None` if nothing was copied.
    pub copied: Option<(Instant, Instant)>,
    /// Begin and end of the kernels.
    pub executed: Option<(Instant, Instant)>,
}

/// One device's end of the race. All methods are called from the thread that runs the race.
///
/// For each chunk the race calls, in this order and for a slot that is free:
/// `copy_to_device` (once a buffer, as soon as it was read) → `mark_copied` → `launch` →
/// `mark_executed` → `poll` or `wait` until it is done → `retire`; then the slot is free again.
/// None but `wait` and `synchronize` may block on the device.
///
/// # Safety
/// The race writes to the memory of [`host_window`](DeviceLane::host_window) from other threads:
/// each window must be valid for reads and writes and initialised, start on a multiple of
/// [`headrace_io::EXTENT_ALIGN_BYTES`], overlap no other, be used by nobody else during a race,
/// and live as long as the lane.
pub unsafe trait DeviceLane {
    /// Number of slots (at least 1).
    fn slots(&self) -> usize;

    /// Host memory of a slot, pinned if the device asks for it; the same at each call.
    fn host_window(&self, slot: usize) -> Window;

    /// Device memory of a slot.
    fn device_slot_bytes(&self) -> usize;

    /// Bytes of the chunk's buffers if they all lie in device memory already; the race then
    /// neither reads nor copies, and calls [`launch_resident`](DeviceLane::launch_resident).
    fn resident_bytes(&mut self, _chunk: usize) -> Option<u64> {
        None
    }

    /// Enqueues a copy into the slot's device memory.
    ///
    /// # Safety
    /// `from` stays valid and unchanged until the slot's execution was seen to be done, or
    /// [`synchronize`](DeviceLane::synchronize) has returned.
    unsafe fn copy_to_device(
        &mut self,
        slot: usize,
        offset: usize,
        from: &[u8],
    ) -> Result<(), BoxError>;

    /// All copies of the slot's chunk are enqueued.
    fn mark_copied(&mut self, slot: usize) -> Result<(), BoxError>;

    /// Enqueues the work on a chunk, to begin when its copies are done. One range per
    /// [`ReadSpec`](crate::ReadSpec), in that order.
    fn launch(
        &mut self,
        slot: usize,
        chunk: usize,
        buffers: &[DeviceRange],
    ) -> Result<(), BoxError>;

    /// Enqueues the work on a chunk whose buffers are in device memory.
    fn launch_resident(&mut self, _slot: usize, chunk: usize) -> Result<(), BoxError> {
        Err(format!("chunk {chunk} is not resident in device memory").into())
    }

    /// All work on the slot's chunk is enqueued.
    fn mark_executed(&mut self, slot: usize) -> Result<(), BoxError>;

    /// Whether the work on the slot's chunk is done.
    fn poll(&mut self, slot: usize) -> Result<bool, BoxError>;

    /// Waits until the work on the slot's chunk is done.
    fn wait(&mut self, slot: usize) -> Result<(), BoxError>;

    /// When the slot's chunk, whose work is done, was copied and executed. Asked for before
    /// `retire`, only when a trace is recorded; a lane that cannot tell has one span a chunk.
    fn stage_spans(&mut self, _slot: usize) -> Option<StageSpans> {
        None
    }

    /// The work on the chunk is done: what does it say? Called once for each launched chunk,
    /// unless the race failed or was cancelled.
    fn retire(&mut self, _slot: usize, _chunk: usize) -> Result<Verdict, BoxError> {
        Ok(Verdict::Continue)
    }

    /// Waits until the device does nothing for this lane any more. Called at the end of every
    /// race, whatever happened.
    fn synchronize(&mut self) -> Result<(), BoxError>;

    /// Busy times, for the report.
    fn times(&mut self) -> DeviceTimes {
        DeviceTimes::default()
    }
}
