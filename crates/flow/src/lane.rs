//! A device's contribution to the race: slots of pinned host memory and device memory, queues for
//! copies in both directions and for work, and its own paths that bypass the slots' host memory.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use headrace_io::{BoxError, FedChunk, ReadAt, Window};

use crate::{OutputSpec, Verdict};

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

/// Busy times since the lane was created, measured by the device, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceTimes {
    /// Copies to the device; possibly extrapolated from some of them.
    pub h2d_ns: u64,
    /// Kernels.
    pub kernel_ns: u64,
    /// Copies back to the host.
    pub d2h_ns: u64,
}

/// When the device processed a chunk, by the host's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageSpans {
    /// Begin of the first and end of the last copy; `None` if nothing was copied.
    pub copied: Option<(Instant, Instant)>,
    /// Begin and end of the kernels.
    pub executed: Option<(Instant, Instant)>,
}

/// Memory that a device copies from directly, until the value is dropped.
pub type Registration = Box<dyn Any + Send + Sync>;

/// Registers host memory with a device, so that copies need no bounce buffer: used for mappings of
/// files. Called on helper threads, several at once.
pub trait HostRegistrar: Send + Sync + fmt::Debug {
    /// Pins the range; dropping the result releases it. The memory is mapped for reading only.
    ///
    /// # Errors
    /// The driver's reason. The race then takes another path, or fails if this one was forced.
    ///
    /// # Safety
    /// The range consists of whole pages that stay mapped until the result is dropped, which is not
    /// before every copy from them has ended.
    unsafe fn register(&self, start: NonNull<u8>, bytes: usize) -> Result<Registration, BoxError>;
}

/// Reads files straight into the device memory of a lane's slots. Called on reader threads,
/// several at once.
pub trait DeviceReader: Send + Sync + fmt::Debug {
    /// The reader in words ("cuFile, GPUDirect Storage").
    fn describe(&self) -> String;

    /// Whether the bytes really bypass host memory. If not, such reads must be forced: our own
    /// bounce buffer is faster than another one.
    fn is_direct(&self) -> bool;

    /// Why reads of a file that was opened pass host memory all the same; `None` if nothing says so beforehand.
    fn detour(&self, _file: &Arc<dyn ReadAt>) -> Option<String> {
        (!self.is_direct()).then(|| self.describe())
    }

    /// Reads of this process so far that passed host memory; `None` where nobody counts.
    fn detours(&self) -> Option<u64> {
        None
    }

    /// Prepares a file; called once a race for each file that is read this way.
    ///
    /// # Errors
    /// Why the file cannot be read this way.
    fn open(&self, file: &Arc<dyn ReadAt>) -> Result<(), BoxError>;

    /// Reads into the slot's device memory from `slot_offset` on and waits. May return less than
    /// requested; 0 at the end of the file.
    ///
    /// # Errors
    /// The driver's reason; the race adds file and offset.
    ///
    /// # Safety
    /// The range lies in the slot's device memory, which nobody else uses until this returns.
    unsafe fn read(
        &self,
        file: &Arc<dyn ReadAt>,
        file_offset: u64,
        bytes: usize,
        slot: usize,
        slot_offset: usize,
    ) -> Result<usize, BoxError>;
}

/// A device's side of the race. The thread that drives the lane calls all methods.
///
/// For each chunk the race calls, in this order and for a slot that is free:
/// `begin` → `is_resident` (once a buffer) → `copy_to_device` (once a buffer that is not, or a part
/// of one, as soon as it is there) → `mark_copied` → `launch` → `output` → `mark_executed` →
/// (`copy_to_host`, if there is an output) → `poll` or `wait` until all of it is done → `retire`;
/// where chunks append, `appended` → `retire` → `copy_appended` → `poll` or `wait` until that is done;
/// then the output is written from the slot's output window, and then the slot is free again. None
/// but `wait` and `synchronize` may block on the device.
///
/// # Safety
/// The race writes to the memory of [`host_window`](DeviceLane::host_window), and reads from that
/// of [`output_window`](DeviceLane::output_window), from other threads: each window must be valid
/// for reads and writes and initialised, start on a multiple of
/// [`headrace_io::EXTENT_ALIGN_BYTES`], overlap none of another slot, be used by nobody else
/// during a race (but for the copies that `copy_to_host` and
/// `copy_appended` enqueue), and live as long as the lane.
pub unsafe trait DeviceLane<P = ()> {
    /// Number of slots (at least 1).
    fn slots(&self) -> usize;

    /// Slots that are usable now, counted from the first; at least one from the first call on,
    /// which may wait for it. The others are still being prepared in the background.
    fn slots_ready(&mut self) -> Result<usize, BoxError> {
        Ok(self.slots())
    }

    /// Host memory of a slot, pinned if the device needs it; the same at each call. Called only
    /// once the slot is ready.
    fn host_window(&self, slot: usize) -> Window;

    /// Bytes of every slot's host memory, including slots that are not ready.
    fn host_slot_bytes(&self) -> usize {
        (0..self.slots()).map(|slot| self.host_window(slot).bytes()).min().unwrap_or(0)
    }

    /// Host memory for the copy of a slot's output. May be the slot's host window, which is empty
    /// by then.
    fn output_window(&self, slot: usize) -> Window {
        self.host_window(slot)
    }

    /// Device memory of a slot.
    fn device_slot_bytes(&self) -> usize;

    /// The registrar of file mappings with the device, if there is one.
    fn registrar(&self) -> Option<Arc<dyn HostRegistrar>> {
        None
    }

    /// The reader of files straight into device memory; the reason if there is none. Unless forced,
    /// only a reader that really bypasses host memory and is available at once.
    fn device_reader(&self, _forced: bool) -> Result<Arc<dyn DeviceReader>, String> {
        Err("the device's driver offers no reads into device memory".to_string())
    }

    /// A chunk was assigned to a slot: the lane prepares what later calls need.
    ///
    /// # Errors
    /// Why the chunk cannot be processed.
    fn begin(&mut self, _chunk: &FedChunk<P>) -> Result<(), BoxError> {
        Ok(())
    }

    /// Whether a chunk's buffer is already in device memory where the lane will find it: the race
    /// then neither reads nor copies it, and `launch` gets an empty range for it. Called once, when
    /// the chunk is assigned to a slot; the buffer must stay until it is retired.
    fn is_resident(&mut self, _chunk: usize, _buffer: usize) -> bool {
        false
    }

    /// Enqueues a copy into the slot's device memory. The window is an address and a length: other
    /// processes may write there meanwhile (a mapped file), in which case the bytes that arrive are
    /// unspecified.
    ///
    /// # Safety
    /// The device can read `from`, or the processor can if it is not pinned, until the slot's
    /// execution was seen to be done, or [`synchronize`](DeviceLane::synchronize) has returned.
    /// Nobody writes to it through this process until then.
    unsafe fn copy_to_device(
        &mut self,
        slot: usize,
        offset: usize,
        from: Window,
    ) -> Result<(), BoxError>;

    /// All copies of the slot's chunk are enqueued.
    fn mark_copied(&mut self, slot: usize) -> Result<(), BoxError>;

    /// Enqueues the work on a chunk, to begin when its copies are done. One range per
    /// [`ReadSpec`](crate::ReadSpec), in that order; empty for what is resident.
    fn launch(
        &mut self,
        slot: usize,
        chunk: usize,
        buffers: &[DeviceRange],
    ) -> Result<(), BoxError>;

    /// The output of the chunk that was just launched, if any: its size and destination. It must
    /// fit the slot's output window.
    fn output(&mut self, _slot: usize, _chunk: usize) -> Result<Option<OutputSpec>, BoxError> {
        Ok(None)
    }

    /// The data that the chunk, whose work is done, appends: for each piece the sink and the bytes. Called once,
    /// before `retire`, if chunks append (`output` is then not called). The pieces must fit the slot's output
    /// window consecutively, each in whole blocks of the sink: at most one block more than its bytes fill.
    fn appended(&mut self, _slot: usize, _chunk: usize) -> Result<Vec<(usize, usize)>, BoxError> {
        Ok(Vec::new())
    }

    /// Enqueues the copies of the chunk's appended data to the slot's output window: each non-empty piece
    /// to its place. From here on `poll` and `wait` refer to these.
    ///
    /// # Safety
    /// As for [`copy_to_host`](DeviceLane::copy_to_host).
    unsafe fn copy_appended(&mut self, slot: usize, _places: &[usize]) -> Result<(), BoxError> {
        Err(format!("slot {slot}: this lane appends nothing").into())
    }

    /// All work on the slot's chunk is enqueued.
    fn mark_executed(&mut self, slot: usize) -> Result<(), BoxError>;

    /// Enqueues the copy of the output's `bytes` bytes to the slot's output window, from its byte
    /// `window_offset` on (the start of the file's block is at the window's start), to begin when
    /// the execution is done. From here on `poll` and `wait` refer to the copy too.
    ///
    /// # Safety
    /// Nobody touches the window until `poll` or `wait` said that the copy is done, or
    /// [`synchronize`](DeviceLane::synchronize) has returned.
    unsafe fn copy_to_host(
        &mut self,
        slot: usize,
        _window_offset: usize,
        _bytes: usize,
    ) -> Result<(), BoxError> {
        Err(format!("slot {slot}: this lane copies nothing back").into())
    }

    /// Whether the work on the slot's chunk is done, including the copy of its output.
    fn poll(&mut self, slot: usize) -> Result<bool, BoxError>;

    /// Waits until the work on the slot's chunk is done, including the copy of its output.
    fn wait(&mut self, slot: usize) -> Result<(), BoxError>;

    /// When the slot's chunk, whose work is done, was copied and executed. Called before `retire`,
    /// only when a trace is recorded; a lane that does not know has one span per chunk.
    fn stage_spans(&mut self, _slot: usize) -> Option<StageSpans> {
        None
    }

    /// When the slot's output, which has arrived, was copied back. Called like `stage_spans`.
    fn output_span(&mut self, _slot: usize) -> Option<(Instant, Instant)> {
        None
    }

    /// The verdict after the work on the chunk. Called once for each launched chunk, before its
    /// output is written, unless the race failed or was cancelled.
    fn retire(&mut self, _slot: usize, _chunk: usize) -> Result<Verdict, BoxError> {
        Ok(Verdict::Continue)
    }

    /// Waits until the device does no more work for this lane. Called at the end of every race, in
    /// any case.
    fn synchronize(&mut self) -> Result<(), BoxError>;

    /// Busy times, for the report.
    fn times(&mut self) -> DeviceTimes {
        DeviceTimes::default()
    }
}
