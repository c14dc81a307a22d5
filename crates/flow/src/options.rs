//! How a race runs.

use std::sync::Arc;

use headrace_io::{DirectEngine, InputPolicy, MappingPool, MemoryBudget, SetupFault, UringOptions};

use crate::{AccessPath, ConsumerLimit, HostCache, RegisteredPool, Trace, WriteAccess};

/// Options of a race.
#[derive(Debug, Clone)]
pub struct RaceOptions {
    /// The access path. Any path but [`AccessPath::Auto`] ignores the host cache. Chunks in memory
    /// are not affected.
    pub access: AccessPath,
    /// Whether the race fails when bytes of a file take another path than the forced one: otherwise the report
    /// counts them. By [`AccessPath::CuFile`] it then fails, too, when the device's own reader passes host memory, as
    /// far as that is known beforehand or counted afterwards. The page cache brings a file's partial last block in
    /// any case.
    pub forbids_other_paths: bool,
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
            forbids_other_paths: false,
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
