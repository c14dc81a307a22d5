//! The options applied to this machine.

use std::sync::Arc;

use headrace_flow::{HostCache, MappingPool, RaceOptions, RaceReport};
use headrace_gpu::{Compiler, CubinCache, Device, DevicePool, Module, Source};
use headrace_io::MemoryBudget;
use headrace_io::system::{SysRoot, available_memory_bytes};

use crate::{OocError, Options, Pass, Processor, Report, Result};

/// Host memory if the free amount is unknown.
const UNKNOWN_MEMORY_BYTES: u64 = 4 << 30;

/// The reason for the CPU if a matrix is too large for the GPU.
const MEMORY_IS_FASTER: &str = "less than half of the matrix fits the device's memory: the rest would cross the \
                                link each time, which is slower than memory";

/// A GPU and its usable memory.
#[derive(Debug, Clone)]
pub struct DeviceRoom {
    /// The pool of all device memory.
    pub pool: Arc<DevicePool>,
    compiler: Arc<Compiler>,
}

impl DeviceRoom {
    /// The GPU that the options name.
    ///
    /// # Errors
    /// There is none, or its driver or compiler cannot be used.
    pub fn open(options: &Options) -> std::result::Result<DeviceRoom, headrace_gpu::GpuError> {
        let device = Device::open(options.device)?;
        let compiler = Arc::new(Compiler::load(None)?);
        let (free_bytes, _) = device.free_and_total_memory()?;
        let limit_bytes = options.device_limit_bytes.unwrap_or(free_bytes / 10 * 9);
        Ok(DeviceRoom { pool: DevicePool::new(&device, limit_bytes), compiler })
    }

    /// The kernels of a source, compiled for the device.
    ///
    /// # Errors
    /// Errors of the compiler and the driver.
    pub fn module(&self, source: &Source<'_>) -> Result<Arc<Module>> {
        let device = self.pool.device();
        let arch = device.info().arch();
        let (cubin, _) = CubinCache::open_default().compile(&self.compiler, source, &arch, &[])?;
        Ok(Module::load(device, &cubin)?)
    }

    /// Bytes still available.
    pub fn free_bytes(&self) -> u64 {
        let stats = self.pool.stats();
        stats.budget_bytes.saturating_sub(stats.in_use_bytes)
    }
}

/// The processor and the memory of one call of an operator.
#[derive(Debug, Clone)]
pub struct Room {
    /// All host memory.
    pub memory: Arc<MemoryBudget>,
    /// The GPU, if the work runs there.
    pub device: Option<DeviceRoom>,
    /// Why there is none.
    pub why_not_cuda: Option<String>,
    /// Threads that work on chunks.
    pub threads: usize,
}

impl Room {
    /// Resolves the options. `cpu_is_faster` is the reason for an operator to use the CPU by default.
    ///
    /// # Errors
    /// [`OocError::Device`] if a GPU was requested and there is none.
    pub fn new(options: &Options, cpu_is_faster: Option<&str>) -> Result<Room> {
        let available = || available_memory_bytes(&SysRoot::host()).map(|bytes| bytes / 2);
        let limit_bytes = options.memory_limit_bytes.or_else(available);
        let memory = MemoryBudget::new(limit_bytes.unwrap_or(UNKNOWN_MEMORY_BYTES));
        let (device, why_not_cuda) = match (options.processor, cpu_is_faster) {
            (Processor::Cpu, _) => (None, Some("the cores were asked for".to_string())),
            (Processor::Auto, Some(why)) => (None, Some(why.to_string())),
            (processor, _) => match DeviceRoom::open(options) {
                Ok(device) => (Some(device), None),
                Err(error) if processor == Processor::Auto => (None, Some(first_line(&error))),
                Err(error) => {
                    let what = format!("the GPU was asked for: {}", first_line(&error));
                    let remedy = "headrace doctor says what is missing; --processor cpu runs on \
                                  the cores";
                    return Err(OocError::Device { what, remedy: remedy.to_string() });
                }
            },
        };
        Ok(Room { memory, device, why_not_cuda, threads: options.threads() })
    }

    /// For products that are repeated over this many bytes: the GPU, unless specified otherwise, if it has room for at
    /// least half of them.
    ///
    /// # Errors
    /// Those of [`new`](Room::new).
    pub(crate) fn for_repeated(options: &Options, bytes: u64) -> Result<Room> {
        let room = Room::new(options, None)?;
        let fits = |device: &DeviceRoom| device.free_bytes() >= bytes / 2;
        match (options.processor, &room.device) {
            (Processor::Auto, Some(device)) if !fits(device) => {
                Room::new(options, Some(MEMORY_IS_FASTER))
            }
            _ => Ok(room),
        }
    }

    /// The options of a race. If there will be others over the same files, of this number, what is read is kept where
    /// there is room: on a device, or else in the host memory.
    pub(crate) fn race(
        &self,
        options: &Options,
        slots: usize,
        repeats: Option<usize>,
    ) -> RaceOptions {
        let memory = &self.memory;
        let cached = repeats.filter(|_| self.device.is_none());
        RaceOptions {
            slots,
            memory: Some(memory.clone()),
            mappings: repeats.map(MappingPool::new),
            cache: cached.map(|_| HostCache::within(memory, memory.limit_bytes())),
            ..options.race()
        }
    }

    /// The report so far; the operator completes it.
    pub fn report(&self, passes: Vec<(&'static str, RaceReport)>) -> Report {
        let stats = self.device.as_ref().map(|device| device.pool.stats()).unwrap_or_default();
        Report {
            ran_on: match &self.device {
                Some(device) => device.pool.device().info().name.clone(),
                None => on_threads(self.threads),
            },
            why_not_cuda: self.why_not_cuda.clone(),
            input_bytes: 0,
            passes: passes.into_iter().map(|(name, race)| Pass { name, race }).collect(),
            host_limit_bytes: self.memory.limit_bytes(),
            host_peak_bytes: self.memory.peak_bytes(),
            device_limit_bytes: stats.budget_bytes,
            device_peak_bytes: stats.peak_in_use_bytes,
            ..Report::default()
        }
    }
}

/// The number of working cores in words.
pub(crate) fn on_threads(threads: usize) -> String {
    if threads == 1 { "1 thread".to_string() } else { format!("{threads} threads") }
}

fn first_line(error: &headrace_gpu::GpuError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}
