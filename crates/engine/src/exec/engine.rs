//! What the pipelines of a session share: caches, mappings, limits.

use std::sync::{Arc, OnceLock};

use headrace_flow::{AccessPath, HostCache, MappingPool, RaceOptions, Trace};
use headrace_pipeline::WhyNot;
use headrace_pipeline::cuda::CudaDevice;
use parking_lot::Mutex;

use super::builds::BuildCache;
use super::cuda;
use crate::config::{Access, HeadraceConfig};

/// Mappings kept open from query to query.
const MAPPINGS_MAX: usize = 1024;

/// Spans that a trace keeps: about 100 MB of JSON.
const TRACE_SPANS_MAX: usize = 1 << 20;

/// Limits of an engine.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// Bytes that a session may hold in all; `None`: half of what is available at start-up, and
    /// the planner's own operators are not limited.
    pub memory_limit_bytes: Option<u64>,
    /// Device memory for columns that stay there between queries; `None`: most of what is free,
    /// 0: every query streams.
    pub device_cache_bytes: Option<u64>,
}

/// How a session's memory is divided.
///
/// | share | for |
/// |---|---|
/// | 1/4 | the host chunk cache |
/// | 1/8 | slots of running races |
/// | 1/8 | builds kept for later queries |
/// | 1/4 | groups, rows and new builds of running pipelines |
/// | 1/4 | the planner's own operators (sorts, joins) |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySplit {
    /// The host chunk cache.
    pub cache_bytes: u64,
    /// Slots of a race.
    pub slots_bytes: u64,
    /// Builds kept.
    pub builds_bytes: u64,
    /// State of running pipelines.
    pub groups_bytes: u64,
    /// The planner's own operators; `None`: not limited.
    pub planner_bytes: Option<u64>,
    /// Whether mapped pages are given back after use, so that the process stays small.
    pub release_mapped: bool,
}

impl MemorySplit {
    /// Divides a limit.
    pub fn of(limit_bytes: Option<u64>) -> Self {
        let total = limit_bytes.unwrap_or_else(|| available_bytes() / 2);
        Self {
            cache_bytes: total / 4,
            slots_bytes: total / 8,
            builds_bytes: total / 8,
            groups_bytes: total / 4,
            planner_bytes: limit_bytes.map(|limit| limit / 4),
            release_mapped: limit_bytes.is_some(),
        }
    }
}

/// Memory that can be had without swapping; 4 GiB if the system does not tell.
fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(4 << 30, |kib| kib << 10)
}

/// Caches and devices.
#[derive(Debug)]
pub struct Engine {
    memory: MemorySplit,
    cache: Arc<HostCache>,
    mappings: Arc<MappingPool>,
    builds: BuildCache,
    trace: Mutex<Option<Trace>>,
    cuda: OnceLock<Result<Arc<CudaDevice>, WhyNot>>,
    device_cache_bytes: Option<u64>,
}

impl Engine {
    /// An engine.
    pub fn new(options: &EngineOptions) -> Self {
        let memory = MemorySplit::of(options.memory_limit_bytes);
        Self {
            memory,
            cache: HostCache::new(memory.cache_bytes),
            mappings: MappingPool::new(MAPPINGS_MAX),
            builds: BuildCache::new(memory.builds_bytes),
            trace: Mutex::new(None),
            cuda: OnceLock::new(),
            device_cache_bytes: options.device_cache_bytes,
        }
    }

    /// How memory is divided.
    pub fn memory(&self) -> &MemorySplit {
        &self.memory
    }

    /// Cold chunks that were read once.
    pub fn cache(&self) -> &Arc<HostCache> {
        &self.cache
    }

    /// Records the races of all later queries.
    pub fn start_trace(&self) -> Trace {
        let new = || Trace::new("headrace", TRACE_SPANS_MAX);
        self.trace.lock().get_or_insert_with(new).clone()
    }

    /// The recorder, if [`Self::start_trace`] was called.
    pub fn trace(&self) -> Option<Trace> {
        self.trace.lock().clone()
    }

    /// The GPU, opened when it is first asked for; the reason if there is none to be used.
    pub fn cuda(&self) -> Result<Arc<CudaDevice>, WhyNot> {
        self.cuda.get_or_init(|| cuda::open(self.device_cache_bytes)).clone()
    }

    pub(super) fn builds(&self) -> &BuildCache {
        &self.builds
    }

    /// Bytes of builds kept for later queries.
    pub fn build_cache_bytes(&self) -> u64 {
        self.builds.bytes()
    }

    /// Forgets all builds, chunks and columns on a device, for measurements without them.
    pub fn clear_caches(&self) {
        self.builds.clear();
        self.cache.clear();
        if let Some(Ok(device)) = self.cuda.get() {
            device.resident().clear();
        }
    }

    /// How races are run under these settings.
    pub(super) fn race_options(&self, config: &HeadraceConfig) -> RaceOptions {
        let slots = (self.memory.slots_bytes / config.chunk_bytes.max(1)).clamp(2, 16);
        RaceOptions {
            access: match config.access {
                Access::Auto => AccessPath::Auto,
                Access::Mapped => AccessPath::Mapped,
                Access::Buffered => AccessPath::Buffered,
                Access::Direct => AccessPath::Direct,
            },
            slots: slots as usize,
            cache: Some(Arc::clone(&self.cache)),
            mappings: (!self.memory.release_mapped).then(|| Arc::clone(&self.mappings)),
            release_mapped: self.memory.release_mapped,
            trace: self.trace(),
            ..RaceOptions::default()
        }
    }
}
