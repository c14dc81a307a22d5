//! What to read, who consumes it, and how.

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

/// A chunk: the unit that a consumer gets.
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

/// A consumer's verdict after a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Continue.
    Continue,
    /// Later chunks cannot change the answer: the race ends without error.
    Enough,
}

/// Consumes chunks on a thread of its own.
pub trait HostConsumer: Send {
    /// Consumes one chunk: one slice per [`ReadSpec`], in that order. The slices are valid only
    /// during the call; each has the alignment that its offset has in the file, up to a page.
    ///
    /// Chunks come in any order. Results are valid only if the race ends without error: a file may
    /// turn out to have changed.
    fn consume(&mut self, chunk: usize, buffers: &[&[u8]]) -> Result<Verdict, BoxError>;
}

impl<C: HostConsumer + ?Sized> HostConsumer for Box<C> {
    fn consume(&mut self, chunk: usize, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        (**self).consume(chunk, buffers)
    }
}

/// Consumes chunks on a thread of its own, and produces output for them.
pub trait HostProducer: Send {
    /// Like [`HostConsumer::consume`]. Output is written while the next chunks are processed; the
    /// race ends when all of it is written.
    fn produce(
        &mut self,
        chunk: usize,
        buffers: &[&[u8]],
        outbox: &mut Outbox<'_>,
    ) -> Result<Verdict, BoxError>;
}

/// A consumer as a producer without output.
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
    /// Chosen per extent: host cache, else in place from the page cache or memory, else O_DIRECT
    /// (admitted to the host cache), else through the page cache, which is the first choice if the
    /// [input is to fill it](InputPolicy::fills_page_cache).
    ///
    /// On a device a file in memory (tmpfs) is copied from its registered mapping, if
    /// [`RaceOptions::registered`] is given and the lane can; cold extents are read by the device's
    /// own reader, if that bypasses host memory and no host cache is given. Everything else goes
    /// through the slots' host memory.
    #[default]
    Auto,
    /// Always mapped and consumed in place (a device copies from the mapping).
    Mapped,
    /// Always read through the page cache.
    Buffered,
    /// Always O_DIRECT; an error if a file does not support it.
    Direct,
    /// Always copied to the device straight from a registered mapping of the file; an error if the
    /// lane or its driver cannot do that, and on the host.
    Registered,
    /// Always read into device memory by the device's own reader (cuFile); an error if there is
    /// none, if it cannot read the file, and on the host.
    CuFile,
}

impl AccessPath {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Auto, Self::Mapped, Self::Buffered, Self::Direct, Self::Registered, Self::CuFile];

    /// Its user-visible name.
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
    /// O_DIRECT if the sink supports it and the output begins with a whole block, else through the
    /// page cache; the report has the reason.
    #[default]
    Auto,
    /// Always through the page cache.
    Buffered,
    /// Always O_DIRECT; an error if a sink, or an output's offset, does not allow it.
    Direct,
}

/// How many consumers of a race may work at a time.
pub trait ConsumerLimit: Send + Sync + fmt::Debug {
    /// The current limit; at least one works in any case. Called repeatedly while the race runs, by the
    /// thread that drives it: a call must not wait.
    fn consumers(&self) -> usize;
}

/// Options of a race.
#[derive(Debug, Clone)]
pub struct RaceOptions {
    /// The access path. Any path but [`AccessPath::Auto`] ignores the host cache. Chunks in memory
    /// are not affected.
    pub access: AccessPath,
    /// How the input may be treated. Uncacheable input ignores `cache` and `registered`, and
    /// `mappings` unless it fills the page cache; files themselves know whether they are to be
    /// checked.
    pub policy: InputPolicy,
    /// How many of the consumers work: the others wait between chunks, and are only started when it first
    /// allows them; `None`: all.
    pub limit: Option<Arc<dyn ConsumerLimit>>,
    /// Slots of the ring (at least 1): chunks that are being read, or were read and not consumed
    /// yet. A [`DeviceLane`](crate::DeviceLane) has its own number.
    pub slots: usize,
    /// The budget for slots: there are fewer slots if it has no room for all of them.
    pub memory: Option<Arc<MemoryBudget>>,
    /// Size of a slot; `None`: as large as the largest chunk needs.
    pub slot_bytes: Option<usize>,
    /// Threads that read through the page cache, or by O_DIRECT if io_uring is not available.
    pub readers: usize,
    /// Reads in the kernel at once, with io_uring.
    pub queue_depth: u32,
    /// Longest single read; extents are cut into reads of this size.
    pub segment_bytes: usize,
    /// The engine for O_DIRECT reads and writes.
    pub direct_engine: DirectEngine,
    /// How output is written.
    pub write_access: WriteAccess,
    /// Threads that write through the page cache, or by O_DIRECT if io_uring is not available.
    pub writers: usize,
    /// Host memory for output: windows of `output_slot_bytes` each, which consumers of a race with
    /// outputs fill. A device's lane has its own.
    pub output_slots: usize,
    /// Size of such a window; the largest single output of a consumer.
    pub output_slot_bytes: usize,
    /// Registered mappings kept from race to race, which also bounds the pinned memory. Without it
    /// only [`AccessPath::Registered`] registers mappings, for one race.
    pub registered: Option<Arc<RegisteredPool>>,
    /// Threads that register mappings ahead of the copies.
    pub registrars: usize,
    /// The cache of cold chunks, which is consulted first.
    pub cache: Option<Arc<HostCache>>,
    /// Mappings kept from race to race; without it, files are mapped for this race only.
    pub mappings: Option<Arc<MappingPool>>,
    /// Release mapped pages after consumption, to keep the process small. Costs a page fault per 64
    /// KiB in the next race.
    pub release_mapped: bool,
    /// Records spans of all stages.
    pub trace: Option<Trace>,
    /// io_uring fails as if the kernel had refused: for tests of the fallback.
    pub inject_uring: Option<SetupFault>,
}

impl RaceOptions {
    /// Without the caches that the input policy forbids.
    pub(crate) fn obeying_policy(self) -> Self {
        match self.policy.keeps() {
            true => self,
            false => {
                let mappings = self.mappings.filter(|_| self.policy.fills_page_cache);
                RaceOptions { cache: None, registered: None, mappings, ..self }
            }
        }
    }

    /// The set-up of a ring for reads or writes.
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
