//! A lane on a CUDA device: pinned slots, device memory, a stream a stage.
//!
//! ```text
//! copy stream     [copy 0a][copy 0b]·copied 0   [copy 1a][copy 1b]·copied 1   ...
//! compute stream                    └►[kernels of 0]·executed 0   └►[kernels of 1]·executed 1
//! return stream                                     └►[output of 0]·returned 0   └►[output of 1]
//! ```
//!
//! [`CudaSlots`] is created once and kept from race to race, because pinning memory costs more than
//! reading it. [`CudaLane`] is slots and a [`DeviceProgram`] for one race.
//!
//! This is the only CUDA lane: a query is a [`DeviceProgram`] in it. A chunk's copies go out as one batch
//! (`cuMemcpyBatchAsync`): between copies that are queued one by one the link idles for 3 us, 4 % of a copy of 4
//! MiB, and a second stream does not help. The ring is small so that it stays in the last-level cache: pinned slots
//! that fit there copied twice as fast as large ones, and more slots only made the copy engine's queue longer.

mod lane;
mod pageable;
mod slots;
mod ways;

use headrace_gpu::Stream;
use headrace_io::{BoxError, FedChunk};

use crate::{OutputSpec, Verdict};

pub use lane::CudaLane;
pub use pageable::{HostMemory, PageableLane, pageable_slots};
pub use slots::CudaSlots;
pub use ways::CudaRegistrar;

/// A buffer of a chunk in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSlice {
    /// Device address; a multiple of [`DEVICE_ALIGN_BYTES`](crate::DEVICE_ALIGN_BYTES).
    pub address: u64,
    /// Length.
    pub bytes: usize,
}

/// A chunk, and the slot that belongs to it until it is retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotChunk {
    /// Number of the slot.
    pub slot: usize,
    /// Number of the chunk.
    pub chunk: usize,
}

/// The output of a chunk, on the device and afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceOutput {
    /// Device address of the first byte.
    pub address: u64,
    /// Its size and destination.
    pub to: OutputSpec,
}

/// Work that a program has enqueued for a chunk whose previous work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum More {
    /// Copies to the host.
    Copies,
    /// Kernels.
    Work,
}

/// The work on a chunk in device memory.
///
/// # Safety
/// The race copies what [`output`](Self::output) and [`appended`](Self::appended) name: these bytes must lie in
/// device memory that stays allocated, and appended bytes unchanged, until the slot has another chunk or the
/// lane was synchronised. Work that `launch` and `bring_back` enqueue may use memory of the program until then.
pub unsafe trait DeviceProgram<C = ()> {
    /// A chunk was assigned to a slot: the program prepares what later calls need.
    ///
    /// # Errors
    /// Why the chunk cannot be processed.
    fn begin(&mut self, _chunk: &FedChunk<C>) -> Result<(), BoxError> {
        Ok(())
    }

    /// Whether a chunk's buffer is in the program's own device memory: it is then neither read nor
    /// copied. Called once, when the chunk is assigned to a slot; the buffer must stay until the
    /// chunk is retired or the lane was synchronised.
    fn is_resident(&mut self, _chunk: usize, _buffer: usize) -> bool {
        false
    }

    /// Enqueues the work on a chunk; must not wait for it. One slice per
    /// [`ReadSpec`](crate::ReadSpec), in that order, empty for resident buffers; the slices stay
    /// unchanged until the chunk is retired, because no other chunk gets the slot before.
    fn launch(
        &mut self,
        stream: &Stream,
        at: SlotChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), BoxError>;

    /// The output of the chunk that was just launched. The bytes are in device memory when the work
    /// now in the stream is done, and stay there until `retire`: in the chunk's buffers, for
    /// example, or in memory that the program has for each slot.
    fn output(
        &mut self,
        _chunk: usize,
        _buffers: &[DeviceSlice],
    ) -> Result<Option<DeviceOutput>, BoxError> {
        Ok(None)
    }

    /// Fetches what is known only after the work on the chunk is done, for programs whose chunks
    /// have no output: enqueues copies to its own memory, or remaining work on the chunk, and says
    /// which. It is called again when that is done, until there is nothing left. It may deliver
    /// results and wait for their consumer; meanwhile nothing new is launched.
    fn bring_back(&mut self, _stream: &Stream, _at: SlotChunk) -> Result<Option<More>, BoxError> {
        Ok(None)
    }

    /// The data that the chunk, whose work and copies back are done, appends, if chunks append: for each piece
    /// the sink and the location of its bytes, as for `output`. The sizes may have been
    /// [fetched](DeviceProgram::bring_back).
    fn appended(&mut self, _at: SlotChunk) -> Result<Vec<(usize, DeviceSlice)>, BoxError> {
        Ok(Vec::new())
    }

    /// The work on the chunk is done, and its output, if any, is in host memory.
    fn retire(&mut self, _at: SlotChunk) -> Result<Verdict, BoxError> {
        Ok(Verdict::Continue)
    }
}
