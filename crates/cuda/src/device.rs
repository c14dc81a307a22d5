//! A GPU with what queries share on it: loaded kernels, builds and resident columns.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use headrace_gpu::{CuFile, Device, DeviceBuffer, DevicePool, Function, GpuError, Source, Stream};
use headrace_io::{Kept, MemoryBudget};
use headrace_pipeline::bound::Bound;
use parking_lot::Mutex;

use crate::build_cache::BuildCache;
use crate::error::CudaError;
use crate::groups::TABLE_BYTES_MAX;
use crate::host_memory::HostMemory;
use crate::kernels::{Kernel, Kernels};
use crate::layout::SegmentLayout;
use crate::resident::ResidentColumns;
use crate::tuning::Tuning;

/// Shares of the device memory that a table of hashed groups begins with, and may take.
const TABLE_SHARE: f64 = 0.125;
const TABLE_SHARE_MAX: f64 = 0.4;

/// How a GPU is used.
#[derive(Clone, Copy, Debug)]
pub struct CudaOptions {
    /// Device memory for everything, in bytes; `None`: nine tenths of what is free at opening.
    pub memory_bytes: Option<u64>,
    /// Share of it for resident columns, 0 to 1.
    pub resident_share: f64,
    /// Bytes for resident columns in place of the share; 0 keeps none.
    pub resident_bytes: Option<u64>,
    /// Share of it for builds that no query uses at the moment, 0 to 1.
    pub build_share: f64,
    /// What kernels are cut to, in place of [`Tuning::LADDER`].
    pub tuning: Option<Tuning>,
    /// How often a kernel may be asked for before it is compiled where that of another pipeline does,
    /// one that differs in constants alone.
    pub borrows_max: u32,
    /// Whether a query that is the first to want a kernel gets a hasty one, while the full one is compiled.
    pub hasty_kernels: bool,
    /// Host memory that may be pinned, in bytes: slots of races and what comes back.
    pub pinned_bytes_max: u64,
    /// Groups of a table of hashed groups, about: it is emptied when there are more. Tests set it.
    pub groups_max: u64,
    /// Groups for which such a table has room at first, about: it becomes larger when there are more. Tests set it.
    pub groups_first: u64,
}

impl Default for CudaOptions {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            resident_share: 0.8,
            resident_bytes: None,
            build_share: 0.1,
            tuning: None,
            borrows_max: 3,
            hasty_kernels: false,
            pinned_bytes_max: u64::MAX,
            groups_max: u64::MAX,
            groups_first: u64::MAX,
        }
    }
}

/// A GPU and what stays on it between queries.
pub struct CudaDevice {
    device: Arc<Device>,
    pool: Arc<DevicePool>,
    upload: Mutex<Stream>,
    kernels: Arc<Kernels>,
    /// Kernels that are the same for all pipelines, by name.
    functions: Mutex<HashMap<&'static str, Function>>,
    builds: Mutex<BuildCache>,
    resident: ResidentColumns,
    host: Arc<HostMemory>,
    table_begins_with: (u64, u64),
    table_max: (u64, u64),
}

impl std::fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaDevice").field("device", &self.device).finish_non_exhaustive()
    }
}

impl CudaDevice {
    /// Opens the GPU at `ordinal` and NVRTC.
    ///
    /// # Errors
    /// [`CudaError::Gpu`] without GPU, driver or NVRTC, with the reason and a remedy.
    pub fn open(ordinal: usize, options: CudaOptions) -> Result<Arc<Self>, CudaError> {
        Self::open_within(ordinal, options, None)
    }

    /// As [`Self::open`]; what is pinned counts against a budget of host memory.
    ///
    /// # Errors
    /// As there.
    pub fn open_within(
        ordinal: usize,
        options: CudaOptions,
        budget: Option<&Arc<MemoryBudget>>,
    ) -> Result<Arc<Self>, CudaError> {
        // The device first: without one, NVRTC's absence is not the reason.
        let device = Device::open(ordinal)?;
        let kernels = Kernels::new(options.tuning, options.borrows_max, options.hasty_kernels)?;
        let (free_bytes, _) = device.free_and_total_memory()?;
        let memory_bytes = options.memory_bytes.unwrap_or(free_bytes / 10 * 9);
        let share = |share: f64| (memory_bytes as f64 * share.clamp(0.0, 1.0)) as u64;
        Ok(Arc::new(Self {
            pool: DevicePool::new(&device, memory_bytes),
            upload: Mutex::new(device.stream()?),
            kernels: Arc::new(kernels),
            functions: Mutex::default(),
            builds: Mutex::new(BuildCache::new(share(options.build_share))),
            resident: ResidentColumns::new(
                options.resident_bytes.unwrap_or_else(|| share(options.resident_share)),
            ),
            host: HostMemory::new(options.pinned_bytes_max, budget),
            table_begins_with: (
                options.groups_max.min(options.groups_first),
                share(TABLE_SHARE).min(TABLE_BYTES_MAX),
            ),
            table_max: (options.groups_max, share(TABLE_SHARE_MAX)),
            device,
        }))
    }

    /// The PCI addresses of the GPUs that this process sees; none without a driver.
    pub fn addresses() -> Vec<String> {
        headrace_gpu::probe().devices.into_iter().map(|info| info.pcie_id).collect()
    }

    /// Whether the kernel has what it takes to read files past host memory (nvidia-fs).
    pub fn reads_past_host_memory() -> bool {
        CuFile::nvidia_fs().is_some()
    }

    /// The GPU.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its memory.
    pub fn pool(&self) -> &Arc<DevicePool> {
        &self.pool
    }

    /// Columns that stay on the device.
    pub fn resident(&self) -> &ResidentColumns {
        &self.resident
    }

    /// Device memory; when there is none left, what no query uses makes room.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`] naming the tier.
    pub fn alloc(&self, bytes: usize) -> Result<DeviceBuffer, GpuError> {
        self.with_room(|| self.pool.alloc(bytes.max(16)))
    }

    /// What `make` allocates. While there is too little memory, what no query uses makes room:
    /// resident columns, then builds, then slots.
    pub(crate) fn with_room<T>(
        &self,
        make: impl Fn() -> Result<T, GpuError>,
    ) -> Result<T, GpuError> {
        loop {
            match make() {
                Err(error) if error.is_out_of_memory() => {
                    let made_room = self.resident.evict_oldest()
                        || self.builds.lock().evict_oldest()
                        || self.host.release_idle();
                    if !made_room {
                        return Err(error);
                    }
                }
                result => return result,
            }
        }
    }

    /// Groups and bytes that a table of hashed groups begins with at most.
    pub(crate) fn table_begins_with(&self) -> (u64, u64) {
        self.table_begins_with
    }

    /// Groups and bytes of such a table at most.
    pub(crate) fn table_max(&self) -> (u64, u64) {
        self.table_max
    }

    pub(crate) fn host_memory(&self) -> &HostMemory {
        &self.host
    }

    /// Host memory that is pinned for this device, used or kept for later queries, in bytes.
    pub fn pinned_bytes(&self) -> u64 {
        self.host.held_bytes()
    }

    /// Unpins and frees the slots and buffers that no query uses.
    pub fn trim_pinned(&self) {
        self.host.release_idle();
    }

    /// A buffer with a copy of `bytes`.
    ///
    /// # Errors
    /// [`GpuError`] when memory or the device fails.
    pub fn upload(&self, bytes: &[u8]) -> Result<Arc<Kept<DeviceBuffer>>, GpuError> {
        let buffer = self.alloc(bytes.len())?;
        self.upload_into(&buffer, bytes)?;
        Ok(Kept::new(buffer))
    }

    /// Copies `bytes` to the start of a buffer.
    pub(crate) fn upload_into(&self, buffer: &DeviceBuffer, bytes: &[u8]) -> Result<(), GpuError> {
        self.upload.lock().upload(buffer, 0, bytes)
    }

    /// The parts of builds that stay here.
    pub(crate) fn builds(&self) -> &Mutex<BuildCache> {
        &self.builds
    }

    /// Parts one after the other, in whole words of 16 bytes.
    pub(crate) fn upload_parts(&self, parts: &[Cow<'_, [u8]>]) -> Result<DeviceBuffer, GpuError> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let buffer = self.alloc(bytes.next_multiple_of(16))?;
        let (upload, mut offset) = (self.upload.lock(), 0);
        for part in parts {
            upload.upload(&buffer, offset, part)?;
            offset += part.len();
        }
        Ok(buffer)
    }

    /// The kernel of a pipeline for a layout: the first of [`Tuning::LADDER`] that does not spill
    /// registers, of those that have most builds in shared memory; or, for constants that ask for
    /// another kernel than others did, at first that of the others.
    ///
    /// # Errors
    /// [`CudaError::Gpu`] when it does not compile or load, [`ExecError::Internal`](headrace_pipeline::ExecError::Internal) for a
    /// pipeline that [`CudaProgram::compile`](crate::CudaProgram::compile) refuses.
    pub fn kernel(&self, bound: &Arc<Bound>, layout: &SegmentLayout) -> Result<Kernel, CudaError> {
        self.kernels.get(&self.device, bound, layout)
    }

    /// Has kernels compiled behind the queries that were never compiled before.
    pub(crate) fn compile_ahead(&self, sources: impl IntoIterator<Item = Source<'static>>) {
        self.kernels.begin_fixed(&self.device, sources);
    }

    /// A kernel that is the same for all pipelines, by its name: loaded when it is first asked for.
    pub(crate) fn function(
        &self,
        source: &Source<'_>,
        name: &'static str,
    ) -> Result<Function, GpuError> {
        let mut known = self.functions.lock();
        if let Some(function) = known.get(name) {
            return Ok(function.clone());
        }
        let function = self.kernels.load(&self.device, source, name)?;
        known.insert(name, function.clone());
        Ok(function)
    }

    /// A kernel that is loaded for one use.
    pub(crate) fn load(&self, source: &Source<'_>, name: &str) -> Result<Function, GpuError> {
        self.kernels.load(&self.device, source, name)
    }

    /// Kernels that were compiled, or found compiled on disk, and loaded so far.
    pub fn kernels_loaded(&self) -> u64 {
        self.kernels.loaded()
    }
}
