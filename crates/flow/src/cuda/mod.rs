//! A lane on a CUDA device: pinned slots, device memory, a stream a stage.
//!
//! ```text
//! copy stream     [copy 0a][copy 0b]·copied 0   [copy 1a][copy 1b]·copied 1   ...
//! compute stream                    └►[kernels of 0]·executed 0   └►[kernels of 1]·executed 1
//! return stream                                     └►[output of 0]·returned 0   └►[output of 1]
//! ```
//!
//! [`CudaSlots`] is made once and kept from race to race, because pinning memory costs more than
//! reading it. [`CudaLane`] is slots and a [`DeviceProgram`] for the length of one race.

mod lane;
mod slots;
mod ways;

use headrace_gpu::Stream;

use crate::{BoxError, OutputSpec, Verdict};

pub use lane::CudaLane;
pub use slots::CudaSlots;

/// A buffer of a chunk in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSlice {
    /// Device address; a multiple of [`DEVICE_ALIGN_BYTES`](crate::DEVICE_ALIGN_BYTES).
    pub address: u64,
    /// Length.
    pub bytes: usize,
}

/// What a chunk puts out, on the device and afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceOutput {
    /// Device address of the first byte.
    pub address: u64,
    /// How much, and where it goes.
    pub to: OutputSpec,
}

/// What is done with a chunk in device memory.
///
/// # Safety
/// What [`output`](Self::output) names is copied: its bytes must lie in device memory that stays
/// allocated until the chunk is retired or the lane was synchronised.
pub unsafe trait DeviceProgram {
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

    /// What the chunk that was just launched puts out. The bytes are in device memory when the
    /// work that is in the stream now is done, and stay there until `retire`: in the chunk's
    /// buffers, say, or in memory that the program has for each slot.
    fn output(
        &mut self,
        _chunk: usize,
        _buffers: &[DeviceSlice],
    ) -> Result<Option<DeviceOutput>, BoxError> {
        Ok(None)
    }

    /// The work on the chunk is done, and its output, if any, is back in host memory.
    fn retire(&mut self, _chunk: usize) -> Result<Verdict, BoxError> {
        Ok(Verdict::Continue)
    }
}
