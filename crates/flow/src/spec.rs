//! What is to be read, by whom it is consumed, and how.

use std::sync::Arc;

use headrace_io::{Placement, SetupFault};

use crate::{BoxError, HostCache, MappingPool, Trace};

/// An extent of a file: one buffer of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReadSpec {
    /// Index into the race's files.
    pub file: usize,
    /// First byte.
    pub offset: u64,
    /// Length; 0 gives an empty buffer and reads nothing.
    pub bytes: u64,
}

/// A chunk: what is handed to a consumer at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkSpec {
    /// One extent per buffer, in the order in which the consumer gets them.
    pub reads: Vec<ReadSpec>,
}

impl ChunkSpec {
    /// Wanted bytes.
    pub fn bytes(&self) -> u64 {
        self.reads.iter().map(|read| read.bytes).sum()
    }

    /// Bytes of a slot that can take the chunk: extents are widened to blocks of
    /// [`headrace_io::EXTENT_ALIGN_BYTES`].
    pub fn slot_bytes(&self) -> usize {
        self.reads.iter().map(|read| Placement::of(read.offset, read.bytes).window_bytes).sum()
    }
}

/// What a consumer says after a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Give me more.
    Continue,
    /// Nothing that comes later can change the answer: the race ends, without error.
    Enough,
}

/// Takes chunks on a thread of its own.
pub trait HostConsumer: Send {
    /// Consumes one chunk: one slice per [`ReadSpec`], in that order. The slices are valid only
    /// during the call; each has the alignment that its offset has in the file, up to a page.
    ///
    /// Chunks come in any order. What was computed counts only if the race ends without error:
    /// a file may turn out to have changed afterwards.
    fn consume(&mut self, chunk: usize, buffers: &[&[u8]]) -> Result<Verdict, BoxError>;
}

impl<C: HostConsumer + ?Sized> HostConsumer for Box<C> {
    fn consume(&mut self, chunk: usize, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        (**self).consume(chunk, buffers)
    }
}

/// How bytes reach the consumer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum AccessPath {
    /// Chosen per extent: host cache, else in place where the page cache has it or the file lies
    /// in memory, else O_DIRECT (admitted to the host cache), else through the page cache.
    #[default]
    Auto,
    /// Always mapped and consumed in place (a device copies from the mapping).
    Mapped,
    /// Always read through the page cache.
    Buffered,
    /// Always O_DIRECT; an error where a file does not support it.
    Direct,
}

/// What carries out O_DIRECT reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum DirectEngine {
    /// io_uring if the kernel grants it, else threads, with the reason in the report.
    #[default]
    Auto,
    /// io_uring; an error if it cannot be had.
    Uring,
    /// Threads.
    Threads,
}

/// How a race is run.
#[derive(Debug, Clone)]
pub struct RaceOptions {
    /// Which way bytes take. Any way but [`AccessPath::Auto`] leaves the host cache alone.
    pub access: AccessPath,
    /// Slots of the ring (at least 1): chunks that are being read, or were read and not consumed
    /// yet. A [`DeviceLane`](crate::DeviceLane) has its own number.
    pub slots: usize,
    /// Size of a slot; `None`: as large as the largest chunk needs.
    pub slot_bytes: Option<usize>,
    /// Threads that read through the page cache, or by O_DIRECT where io_uring cannot be had.
    pub readers: usize,
    /// Reads in the kernel at once, with io_uring.
    pub queue_depth: u32,
    /// Longest single read; extents are cut into reads of this size.
    pub segment_bytes: usize,
    /// What carries out O_DIRECT reads.
    pub direct_engine: DirectEngine,
    /// Where cold chunks are kept for the next race, and looked for first.
    pub cache: Option<Arc<HostCache>>,
    /// Mappings kept from race to race; without it, files are mapped for this race only.
    pub mappings: Option<Arc<MappingPool>>,
    /// Give mapped pages back when they were consumed, so that the process stays small. Costs a
    /// page fault per 64 KiB in the next race.
    pub release_mapped: bool,
    /// Records spans of all stages.
    pub trace: Option<Trace>,
    /// io_uring fails as if the kernel had refused: for tests of what comes instead.
    pub inject_uring: Option<SetupFault>,
}

impl Default for RaceOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        RaceOptions {
            access: AccessPath::Auto,
            slots: 8,
            slot_bytes: None,
            // A few cores are left to those who consume, or drive the device.
            readers: (cores - cores / 4).clamp(2, 12),
            queue_depth: 32,
            segment_bytes: 1 << 20,
            direct_engine: DirectEngine::Auto,
            cache: None,
            mappings: None,
            release_mapped: false,
            trace: None,
            inject_uring: None,
        }
    }
}
