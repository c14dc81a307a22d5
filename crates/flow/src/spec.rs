//! What is to be read, by whom it is consumed, and how.

use std::fmt;
use std::sync::Arc;

use headrace_io::{DirectEngine, InputPolicy, MemoryBudget, Placement, SetupFault, UringOptions};

use crate::{BoxError, HostCache, MappingPool, Outbox, RegisteredPool, Trace};

/// An extent of a file: one buffer of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReadSpec {
    /// Index into the race's files, or a number of its feed's.
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
        slot_bytes_of(&self.reads)
    }
}

/// As [`ChunkSpec::slot_bytes`].
pub(crate) fn slot_bytes_of(reads: &[ReadSpec]) -> usize {
    reads.iter().map(|read| Placement::of(read.offset, read.bytes).window_bytes).sum()
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

/// Takes chunks on a thread of its own, and puts something out for them.
pub trait HostProducer: Send {
    /// As [`HostConsumer::consume`]. What is put into the outbox is written while the next chunks
    /// are worked on; the race ends when all of it is written.
    fn produce(
        &mut self,
        chunk: usize,
        buffers: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError>;
}

/// A consumer as a producer of nothing.
pub(crate) struct Silent<C>(pub C);

impl<C: HostConsumer> HostProducer for Silent<C> {
    fn produce(
        &mut self,
        chunk: usize,
        buffers: &[&[u8]],
        _outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError> {
        self.0.consume(chunk, buffers)
    }
}

/// How bytes reach the consumer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum AccessPath {
    /// Chosen per extent: host cache, else in place where the page cache has it or the file lies
    /// in memory, else O_DIRECT (admitted to the host cache), else through the page cache, which is
    /// the first choice where the [input is to fill it](InputPolicy::fills_page_cache).
    ///
    /// On a device a file in memory (tmpfs) is copied from its registered mapping, if
    /// [`RaceOptions::registered`] is given and the lane can; cold extents are read by the
    /// device's own reader, if that goes past host memory and no host cache is given. Everything
    /// else goes through the slots' host memory.
    #[default]
    Auto,
    /// Always mapped and consumed in place (a device copies from the mapping).
    Mapped,
    /// Always read through the page cache.
    Buffered,
    /// Always O_DIRECT; an error where a file does not support it.
    Direct,
    /// Always copied to the device straight from a registered mapping of the file; an error where
    /// the lane or its driver cannot do that, and on the host.
    Registered,
    /// Always read into device memory by the device's own reader (cuFile); an error where there
    /// is none, where it cannot read the file, and on the host.
    CuFile,
}

impl AccessPath {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Auto, Self::Mapped, Self::Buffered, Self::Direct, Self::Registered, Self::CuFile];

    /// As users name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mapped => "mapped",
            Self::Buffered => "buffered",
            Self::Direct => "direct",
            Self::Registered => "registered",
            Self::CuFile => "cufile",
        }
    }
}

impl fmt::Display for AccessPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How output reaches the sinks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum WriteAccess {
    /// O_DIRECT where the sink can and the output begins with a whole block, else through the
    /// page cache; the report has the reason.
    #[default]
    Auto,
    /// Always through the page cache.
    Buffered,
    /// Always O_DIRECT; an error where a sink, or an output's offset, does not allow it.
    Direct,
}

/// How many consumers of a race may work at a time.
pub trait ConsumerLimit: Send + Sync + fmt::Debug {
    /// As many as now; one works whatever it says. Asked again and again while the race runs, by the thread
    /// that drives it: no call may wait.
    fn consumers(&self) -> usize;
}

/// How a race is run.
#[derive(Debug, Clone)]
pub struct RaceOptions {
    /// Which way bytes take. Any way but [`AccessPath::Auto`] leaves the host cache alone. Chunks in
    /// memory are not asked.
    pub access: AccessPath,
    /// How the input may be treated. What may not be kept leaves `cache` and `registered` alone, and
    /// `mappings` unless it is to be found in the page cache; that files are not to be checked, the
    /// files themselves know.
    pub policy: InputPolicy,
    /// How many of the consumers work: those beyond it wait, between chunks, and are only started when it
    /// first allows them; `None`: all.
    pub limit: Option<Arc<dyn ConsumerLimit>>,
    /// Slots of the ring (at least 1): chunks that are being read, or were read and not consumed
    /// yet. A [`DeviceLane`](crate::DeviceLane) has its own number.
    pub slots: usize,
    /// What slots are reserved from: there are fewer when it has no room for all of them.
    pub memory: Option<Arc<MemoryBudget>>,
    /// Size of a slot; `None`: as large as the largest chunk needs.
    pub slot_bytes: Option<usize>,
    /// Threads that read through the page cache, or by O_DIRECT where io_uring cannot be had.
    pub readers: usize,
    /// Reads in the kernel at once, with io_uring.
    pub queue_depth: u32,
    /// Longest single read; extents are cut into reads of this size.
    pub segment_bytes: usize,
    /// What carries out O_DIRECT reads, and writes.
    pub direct_engine: DirectEngine,
    /// How output is written.
    pub write_access: WriteAccess,
    /// Threads that write through the page cache, or by O_DIRECT where io_uring cannot be had.
    pub writers: usize,
    /// Host memory for output: windows of `output_slot_bytes` each, which consumers of a race
    /// with outputs fill. A device's lane has its own.
    pub output_slots: usize,
    /// Size of such a window; the largest output that a consumer can make at once.
    pub output_slot_bytes: usize,
    /// Registered mappings kept from race to race, which also bounds what is pinned at a time.
    /// Without it only [`AccessPath::Registered`] registers mappings, for one race.
    pub registered: Option<Arc<RegisteredPool>>,
    /// Threads that register mappings ahead of the copies.
    pub registrars: usize,
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

impl RaceOptions {
    /// Without the places where an input would be kept that may not be.
    pub(crate) fn obeying_policy(self) -> Self {
        match self.policy.keeps() {
            true => self,
            false => {
                let mappings = self.mappings.filter(|_| self.policy.fills_page_cache);
                RaceOptions { cache: None, registered: None, mappings, ..self }
            }
        }
    }

    /// How a ring for reads or writes is set up.
    pub(crate) fn uring(&self) -> UringOptions {
        UringOptions {
            depth: self.queue_depth,
            segment_bytes: self.segment_bytes,
            inject: self.inject_uring,
        }
    }
}

impl Default for RaceOptions {
    fn default() -> Self {
        let cores = headrace_io::system::cores();
        RaceOptions {
            access: AccessPath::Auto,
            policy: InputPolicy::default(),
            limit: None,
            slots: 8,
            memory: None,
            slot_bytes: None,
            // A few cores are left to those who consume, or drive the device.
            readers: (cores - cores / 4).clamp(2, 12),
            queue_depth: 32,
            segment_bytes: 1 << 20,
            direct_engine: DirectEngine::Auto,
            write_access: WriteAccess::Auto,
            writers: (cores / 2).clamp(2, 8),
            output_slots: 8,
            output_slot_bytes: 4 << 20,
            registered: None,
            // Pinning is bound by one lock of the process's memory map after a few.
            registrars: 4,
            cache: None,
            mappings: None,
            release_mapped: false,
            trace: None,
            inject_uring: None,
        }
    }
}
