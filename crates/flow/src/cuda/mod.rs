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

use crate::{BoxError, OutputSpec, Verdict};

pub use lane::CudaLane;
pub use pageable::{HostMemory, PageableLane, pageable_slots};
pub use slots::CudaSlots;

/// A buffer of a chunk in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSlice {
    /// Device address; a multiple of [`DEVICE_ALIGN_BYTES`](crate::DEVICE_ALIGN_BYTES).
    pub address: u64,
    /// Length.
    pub bytes: usize,
}

/// A chunk, and the slot that is its own until it is retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotChunk {
    /// Number of the slot.
    pub slot: usize,
    /// Number of the chunk.
    pub chunk: usize,
}

/// What a chunk puts out, on the device and afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceOutput {
    /// Device address of the first byte.
    pub address: u64,
    /// How much, and where it goes.
    pub to: OutputSpec,
}

/// What a program has enqueued for a chunk whose work so far is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum More {
    /// Copies to the host.
    Copies,
    /// Kernels.
    Work,
}

/// What is done with a chunk in device memory.
///
/// # Safety
/// What [`output`](Self::output) and [`appended`](Self::appended) name is copied: its bytes must lie in device
/// memory that stays allocated, and what is appended unchanged, until the slot has another chunk or the lane was
/// synchronised. What `launch` and
/// `bring_back` enqueue may use memory of the program until then.
pub unsafe trait DeviceProgram {
    /// A chunk was given a slot: what the program finds out before it is asked for it.
    ///
    /// # Errors
    /// Why the chunk cannot be worked on.
    fn begin(&mut self, _chunk: usize) -> Result<(), BoxError> {
        Ok(())
    }

    /// Whether a chunk's buffer lies in memory of the program's own on the device: it is then
    /// neither read nor copied. Asked for once, when the chunk is given a slot; the buffer must
    /// stay until the chunk is retired or the lane was synchronised.
    fn is_resident(&mut self, _chunk: usize, _buffer: usize) -> bool {
        false
    }

    /// Enqueues the work on a chunk; must not wait for it. One slice per
    /// [`ReadSpec`](crate::ReadSpec), in that order, empty for what is resident; they stay as they
    /// are until the chunk is retired, as no other chunk has the slot before.
    fn launch(
        &mut self,
        stream: &Stream,
        at: SlotChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), BoxError>;

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

    /// Brings back what is known only now that the work on the chunk is done, for programs whose
    /// chunks put nothing out: enqueues copies to memory of its own, or work that is left of the
    /// chunk, and says which; it is asked again when that is done, until there is nothing. May hand
    /// on what arrived and wait for whoever takes it: meanwhile nothing new is launched.
    fn bring_back(&mut self, _stream: &Stream, _at: SlotChunk) -> Result<Option<More>, BoxError> {
        Ok(None)
    }

    /// What the chunk, whose work and copies back are done, appends, where chunks do: of each piece the sink, and
    /// where its bytes lie, as for `output`. How much it is may have been [brought
    /// back](DeviceProgram::bring_back).
    fn appended(&mut self, _at: SlotChunk) -> Result<Vec<(usize, DeviceSlice)>, BoxError> {
        Ok(Vec::new())
    }

    /// The work on the chunk is done, and its output, if any, is back in host memory.
    fn retire(&mut self, _at: SlotChunk) -> Result<Verdict, BoxError> {
        Ok(Verdict::Continue)
    }
}
