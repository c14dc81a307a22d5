//! What a slot holds on its way: a chunk that is read, one that the device processes, one whose output is written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use headrace_io::write::WriteAt;
use headrace_io::{AlignedBuffer, EXTENT_ALIGN_BYTES, FedChunk, Window};

use crate::append::{Ends, InOrder, Placed};
use crate::cache::Reservation;
use crate::lane::DeviceRange;
use crate::{BytesByPath, OutputSpec, RaceError};

/// The source of a buffer's bytes while they arrive.
pub(super) enum Origin {
    /// The file.
    File,
    /// The file through cache memory: first a read into it, then a copy to the slot.
    Admitted(Reservation),
    /// Memory: the access path under which the bytes are counted, unless they are counted already.
    Memory(Option<MemoryPath>),
    /// Registered pieces of the file's mapping, copied as they are registered; some may have been
    /// refused.
    Pieces { left: usize, refused: bool },
    /// The device's own reader, straight into device memory.
    Device,
}

#[derive(Clone, Copy)]
pub(super) enum MemoryPath {
    Cached,
    Mapped,
    Given,
}

/// A buffer in transit.
pub(super) struct Filling {
    pub origin: Origin,
    /// The slot's memory for the widened extent, and the wanted bytes in it.
    pub window: Window,
    pub wanted: Window,
}

/// A chunk that is being read into a slot and copied from it.
pub(super) struct Reading<P> {
    pub chunk: FedChunk<P>,
    pub started: Instant,
    pub buffers_left: usize,
    pub buffers: Vec<Option<Filling>>,
    pub ranges: Vec<DeviceRange>,
    pub bytes: BytesByPath,
}

/// A chunk whose buffers are in device memory, or will be when the copies are done.
pub(super) struct Filled {
    pub chunk: usize,
    pub ranges: Vec<DeviceRange>,
    pub bytes: BytesByPath,
}

/// A chunk that the device processes.
pub(super) struct Working {
    pub slot: usize,
    pub chunk: usize,
    pub launched: Instant,
    pub bytes: BytesByPath,
    pub output: Option<OutputSpec>,
    /// Its appended data, and their location in the slot's output window.
    pub appended: Vec<(Placed, usize)>,
}

/// A chunk whose output is being written.
pub(super) struct Writing {
    pub chunk: usize,
    pub started: Instant,
    pub bytes: BytesByPath,
    pub outputs: Vec<OutputSpec>,
    /// Those in progress.
    pub left: usize,
}

/// Data that chunks append.
pub(super) struct Appending {
    /// Chunks whose work is done, with the sinks and bytes of their pieces.
    pub chunks: InOrder<(Working, Vec<(usize, usize)>)>,
    pub ends: Ends,
    /// Chunks whose pieces are being copied to the host, in order.
    pub returning: VecDeque<Working>,
    /// For the last block of a sink.
    pub tail: AlignedBuffer,
}

impl Appending {
    pub fn new(sinks: &[Arc<dyn WriteAt>]) -> Result<Self, RaceError> {
        let tail = AlignedBuffer::allocate(EXTENT_ALIGN_BYTES).map_err(RaceError::StartUp)?;
        let (chunks, ends, returning) = (InOrder::new(), Ends::new(sinks), VecDeque::new());
        Ok(Appending { chunks, ends, returning, tail })
    }

    /// Bytes of each sink.
    pub fn bytes(&self) -> Vec<u64> {
        self.ends.bytes()
    }

    /// The slot whose pieces arrive next.
    pub fn returning(&self) -> Option<usize> {
        self.returning.front().map(|working| working.slot)
    }
}
