//! What the runs of a session share: caches, mappings, devices, limits.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use headrace_columns::memory;
use headrace_cuda::{CudaDevice, CudaOptions};
use headrace_flow::{
    AccessPath, CancelToken, HostCache, MappingPool, RaceOptions, RegisteredPool, Trace,
};
use headrace_io::{InputPolicy, MemoryBudget, MemoryUse};
use headrace_pipeline::WhyNot;
use headrace_pipeline::cpu::WorkerOptions;
use headrace_spill::SpillFolder;
use parking_lot::Mutex;

use crate::build_cache::BuildCache;
use crate::functions::Functions;
use crate::gpus::Gpus;
use crate::memory::MemorySplit;
use crate::placement::Placements;
use crate::prepared::PreparedRuns;
use crate::progress::Progress;
use crate::rehearsal::Rehearsals;
use crate::settings::{Devices, Settings};

/// Mappings kept open from query to query.
const MAPPINGS_MAX: usize = 1024;

/// Spans that a trace keeps: about 100 MB of JSON.
const TRACE_SPANS_MAX: usize = 1 << 20;

/// Bytes of temporary files unless somebody says otherwise: what the planner allows its own.
const SPILL_LIMIT_BYTES: u64 = 100_000_000_000;

/// Limits of a runner.
#[derive(Clone, Debug, Default)]
pub struct RunnerOptions {
    /// Bytes that a session may hold in all; `None`: half of what is available at start-up, and
    /// the planner's own operators are not limited.
    pub memory_limit_bytes: Option<u64>,
    /// Device memory for columns that stay there between queries; `None`: most of what is free,
    /// 0: every query streams.
    pub device_cache_bytes: Option<u64>,
    /// Device memory that may be taken of each GPU; `None`: nine tenths of what is free.
    pub device_memory_bytes: Option<u64>,
    /// Folder of temporary files for groups that do not fit memory; `None`: the system's (TMPDIR).
    pub spill_folder: Option<PathBuf>,
    /// Bytes that they may take; `None`: 100 GB.
    pub spill_limit_bytes: Option<u64>,
    /// Temporary files of somebody else's making instead.
    pub spills: Option<Arc<SpillFolder>>,
    /// Whether GPUs run functions of users: what goes wrong there ends the process.
    pub cuda_functions: bool,
}

impl RunnerOptions {
    fn spills(&self) -> Arc<SpillFolder> {
        if let Some(spills) = &self.spills {
            return Arc::clone(spills);
        }
        let folder = self.spill_folder.clone().unwrap_or_else(std::env::temp_dir);
        let limit_bytes = self.spill_limit_bytes.unwrap_or(SPILL_LIMIT_BYTES);
        SpillFolder::new(folder, limit_bytes, "raise the limit of temporary files or of memory")
    }
}

/// Says whether queries may run with kernels that were compiled in haste: `off`, they wait for the full ones.
const HASTY_VARIABLE: &str = "HEADRACE_HASTY_KERNELS";

/// Caches and devices.
#[derive(Debug)]
pub struct Runner {
    memory: MemorySplit,
    budget: Arc<MemoryBudget>,
    /// What pays for the groups, rows and new builds of all runs.
    groups: Arc<MemoryBudget>,
    spills: Arc<SpillFolder>,
    /// Cold chunks that were read once.
    cache: Arc<HostCache>,
    mappings: Arc<MappingPool>,
    builds: Arc<BuildCache>,
    /// The recorder, if [`Self::start_trace`] was called.
    trace: Mutex<Option<Trace>>,
    progress: Arc<Progress>,
    placements: Placements,
    rehearsals: Rehearsals,
    // Before what the GPUs own is let go.
    prepared: PreparedRuns,
    registered: Option<Arc<RegisteredPool>>,
    gpus: Gpus,
    functions: Functions,
}

impl Runner {
    /// A runner with empty caches.
    pub fn new(options: &RunnerOptions) -> Self {
        let memory = MemorySplit::of(options.memory_limit_bytes);
        let budget = MemoryBudget::new(memory.limit_bytes);
        let cuda = CudaOptions {
            memory_bytes: options.device_memory_bytes,
            resident_bytes: options.device_cache_bytes,
            pinned_bytes_max: memory.slots_bytes,
            hasty_kernels: env::var_os(HASTY_VARIABLE).is_none_or(|value| value != "off"),
            ..CudaOptions::default()
        };
        Self {
            memory,
            groups: memory::share(&budget, memory.groups_bytes),
            spills: options.spills(),
            cache: HostCache::within(&budget, memory.cache_bytes),
            mappings: MappingPool::new(MAPPINGS_MAX),
            builds: BuildCache::new(memory.builds_bytes, &budget),
            trace: Mutex::new(None),
            progress: Arc::default(),
            placements: Placements::default(),
            rehearsals: Rehearsals::default(),
            prepared: PreparedRuns::default(),
            registered: memory.registered_bytes.map(RegisteredPool::for_repeats),
            gpus: Gpus::new(cuda, &budget),
            functions: Functions::new(options.cuda_functions),
            budget,
        }
    }

    /// How memory is divided.
    pub fn memory(&self) -> &MemorySplit {
        &self.memory
    }

    /// What the races of all runs were given so far.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// The host memory that everything shares.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// A share of the memory for an operator of its own.
    pub fn operator_memory(&self) -> Arc<MemoryBudget> {
        MemoryBudget::within(&self.budget, MemoryUse::Operators, self.memory.operator_bytes)
    }

    /// Where temporary files are made, of whatever does not fit memory: what they may take, and what went through them.
    pub fn spill_folder(&self) -> &Arc<SpillFolder> {
        &self.spills
    }

    /// Records the races of all later queries.
    pub fn start_trace(&self) -> Trace {
        let new = || Trace::new("headrace", TRACE_SPANS_MAX);
        self.trace.lock().get_or_insert_with(new).clone()
    }

    /// The first of the GPUs to be used, opened when it is first asked for; the reason if there
    /// is none.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn cuda(&self, devices: &Devices) -> Result<Arc<CudaDevice>, WhyNot> {
        let first = |ordinals: &[usize]| ordinals.first().copied().unwrap_or(0);
        let ordinal = first(&self.gpus.ordinals(devices).0);
        let opened = self.gpus.open(ordinal);
        // The one that has just failed is left out from now on, if there is any other.
        let next = first(&self.gpus.ordinals(devices).0);
        if opened.is_err() && next != ordinal { self.cuda(devices) } else { opened }
    }

    /// Bytes of columns that the GPUs opened so far may keep from run to run.
    pub fn device_cache_bytes(&self) -> u64 {
        self.gpus.all_open().iter().map(|device| device.resident().stats().budget_bytes).sum()
    }

    /// Bytes of columns that they keep now.
    pub fn resident_bytes(&self) -> u64 {
        self.gpus.all_open().iter().map(|device| device.resident().stats().bytes).sum()
    }

    pub(crate) fn gpus(&self) -> &Gpus {
        &self.gpus
    }

    pub(crate) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Why a GPU is lost to this process, if one is: nothing runs there any more.
    pub fn lost_gpus(&self) -> Option<String> {
        self.functions.lost_gpus()
    }

    pub(crate) fn placements(&self) -> &Placements {
        &self.placements
    }

    pub(crate) fn rehearsals(&self) -> &Rehearsals {
        &self.rehearsals
    }

    pub(crate) fn prepared(&self) -> &PreparedRuns {
        &self.prepared
    }

    pub(crate) fn build_cache(&self) -> &BuildCache {
        &self.builds
    }

    /// Waits until no kernel is compiled and nothing rehearsed behind the queries any more, for measurements of what comes after.
    pub fn settle(&self) {
        headrace_cuda::settle();
    }

    /// Forgets all builds, chunks and columns on a device, for measurements without them.
    pub fn clear_caches(&self) {
        self.builds.clear();
        self.cache.clear();
        self.prepared.clear();
        self.placements.clear();
        for device in self.gpus.all_open() {
            device.resident().clear();
        }
    }

    /// How races to GPUs are run under these settings.
    pub(crate) fn gpu_race_options(&self, settings: &Settings, policy: InputPolicy) -> RaceOptions {
        RaceOptions {
            access: settings.access,
            registered: self.registered.clone(),
            ..self.race_options(settings, policy)
        }
    }

    /// How races on the CPU are run under these settings.
    pub(crate) fn race_options(&self, settings: &Settings, policy: InputPolicy) -> RaceOptions {
        // Pages of the page cache that are to stay there are not the session's.
        let release_mapped = self.memory.release_mapped && !policy.fills_page_cache;
        let slots = (self.memory.slots_bytes / settings.chunk_bytes.max(1)).clamp(2, 16);
        let forbids_other_paths = settings.forbids_other_ways();
        RaceOptions {
            access: match settings.access {
                // Ways to a GPU alone.
                AccessPath::Registered | AccessPath::CuFile if !forbids_other_paths => {
                    AccessPath::Auto
                }
                access => access,
            },
            forbids_other_paths,
            policy,
            slots: slots as usize,
            memory: Some(Arc::clone(&self.budget)),
            cache: Some(Arc::clone(&self.cache)),
            mappings: (!release_mapped).then(|| Arc::clone(&self.mappings)),
            release_mapped,
            trace: self.trace.lock().clone(),
            ..RaceOptions::default()
        }
    }

    /// What pays for groups. All runs share it, so that their number does not multiply the limit.
    pub(crate) fn groups(&self) -> &Arc<MemoryBudget> {
        &self.groups
    }

    /// What pays for the groups of a run over rows of another.
    pub(crate) fn groups_above(&self) -> Arc<MemoryBudget> {
        memory::share(&self.budget, self.memory.groups_bytes / 2)
    }

    /// How groups are held that an account pays for.
    pub(crate) fn group_options(
        &self,
        groups: &Arc<MemoryBudget>,
        threads: usize,
        token: &CancelToken,
    ) -> WorkerOptions {
        let mut options = WorkerOptions::with_memory(Arc::clone(groups));
        options.workers = threads;
        options.spill = Some(Arc::clone(&self.spills));
        options.cancel = token.clone();
        options
    }
}
