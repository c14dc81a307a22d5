//! Reading to device memory, and writing from it.
//!
//! Devices, rings, kernels and registered mappings are kept between runs, because pinning memory
//! costs more than copying it once.

mod kernels;
mod program;
mod source;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use headrace_flow::{
    Affinity, BoxError, CancelToken, ChunkSpec, CudaSlots, DeviceLane, DeviceProgram, DeviceSlice,
    MappingPool, PageableLane, Race, RaceError, RaceOptions, RaceReport, RegisteredPool, SlotChunk,
    pageable_slots,
};
use headrace_gpu::{Device, DeviceBuffer, DevicePool, GpuError, Stream};
use headrace_io::system::{PciAddress, StorageHome, SysRoot, Taker, memory_bytes, nearest_gpu};
use headrace_io::{AlignedBuffer, EXTENT_ALIGN_BYTES, ReadAt};

pub use kernels::KERNELS;

use super::counters::Watched;
use super::host::{Outcome, broken_off, race_options};
use super::input::Input;
use super::record::RingRecord;
use super::stop::{StopSignal, watched};
use super::{BenchError, BenchPlan, HostMemory, PathChoice, Progress, Target};
use kernels::Kernels;
use program::{SUM_BYTES, Sums, Take};

/// Share of the machine's memory for pinned mappings.
const REGISTERED_SHARE: f64 = 0.5;

/// Files whose mappings are kept between runs.
const MAPPINGS_MAX: usize = 1024;

/// The GPUs that runs have used.
#[derive(Debug, Default)]
pub(crate) struct Gpus {
    open: BTreeMap<usize, Gpu>,
    mappings: Option<Arc<MappingPool>>,
    registered: Option<Arc<RegisteredPool>>,
}

#[derive(Debug)]
struct Gpu {
    device: Arc<Device>,
    pool: Arc<DevicePool>,
    slots: Option<CudaSlots>,
    kernels: Option<Kernels>,
}

/// A run's input.
pub(crate) struct Job<'a> {
    pub plan: &'a BenchPlan,
    pub inputs: &'a [Input],
    pub files: &'a [Arc<dyn ReadAt>],
    pub chunks: &'a [ChunkSpec],
    pub progress: &'a Progress,
    pub watch: &'a Watched,
}

impl Gpus {
    /// The opened devices of a target; their contexts stay until the end.
    pub fn devices(&mut self, target: &Target) -> Result<Vec<Arc<Device>>, BenchError> {
        let Target::Gpus(ordinals) = target else { return Ok(Vec::new()) };
        ordinals.iter().map(|&ordinal| Ok(self.gpu(ordinal)?.device.clone())).collect()
    }

    fn gpu(&mut self, ordinal: usize) -> Result<&mut Gpu, BenchError> {
        use std::collections::btree_map::Entry;
        Ok(match self.open.entry(ordinal) {
            Entry::Occupied(gpu) => gpu.into_mut(),
            Entry::Vacant(place) => {
                let device = Device::open(ordinal)?;
                let (free_bytes, _) = device.free_and_total_memory()?;
                let pool = DevicePool::new(&device, free_bytes);
                place.insert(Gpu { device, pool, slots: None, kernels: None })
            }
        })
    }

    /// Lets the mappings of files go that earlier runs have left for later ones.
    pub fn forget_files(&self) {
        if let Some(registered) = &self.registered {
            registered.clear();
        }
        if let Some(mappings) = &self.mappings {
            mappings.clear();
        }
    }

    /// Streams the chunks to the plan's GPUs.
    pub fn run(&mut self, job: &Job<'_>) -> Result<Outcome, BenchError> {
        let Target::Gpus(ordinals) = &job.plan.target else {
            return Err(BenchError::plan("no GPU is the target", "--to gpu"));
        };
        let options = self.options(job.plan)?;
        let slot_bytes = slot_bytes(job.chunks);
        let mut ring = None;
        for &ordinal in ordinals {
            let gpu = self.gpu(ordinal)?;
            let made = gpu.prepare(job.plan.slot_count(), slot_bytes, job.plan.verify)?;
            ring = ring.or(made);
        }
        // Taken out and put back, so that several can be borrowed at once.
        let mut gpus: Vec<(usize, Gpu)> = ordinals
            .iter()
            .filter_map(|ordinal| self.open.remove(ordinal).map(|gpu| (*ordinal, gpu)))
            .collect();
        let outcome = race(job, options, &mut gpus);
        self.open.extend(gpus);
        outcome.map(|outcome| Outcome { ring, ..outcome })
    }

    fn options(&mut self, plan: &BenchPlan) -> Result<RaceOptions, BenchError> {
        let mut options = race_options(plan);
        // Not for the automatic choice: the first pass over a file would pin it, which is slower
        // than the slots, and only a file that is read again and again pays for that.
        if plan.path == PathChoice::Registered {
            let budget_bytes =
                (memory_bytes(&SysRoot::host()).unwrap_or(0) as f64 * REGISTERED_SHARE) as u64;
            let pool = self.registered.get_or_insert_with(|| RegisteredPool::new(budget_bytes));
            options.registered = Some(pool.clone());
        }
        if matches!(plan.path, PathChoice::Auto | PathChoice::Registered) {
            options.mappings =
                Some(self.mappings.get_or_insert_with(|| MappingPool::new(MAPPINGS_MAX)).clone());
        }
        Ok(options)
    }
}

impl Gpu {
    /// Creates ring and kernels; returns the cost of a new ring.
    fn prepare(
        &mut self,
        slots: usize,
        slot_bytes: usize,
        verify: bool,
    ) -> Result<Option<RingRecord>, GpuError> {
        if verify && self.kernels.is_none() {
            self.kernels = Some(Kernels::load(&self.device)?);
        }
        let fits = |ring: &CudaSlots| ring.slots() == slots && ring.slot_bytes() == slot_bytes;
        if self.slots.as_ref().is_some_and(fits) {
            return Ok(None);
        }
        // The old one first: there may not be room for both.
        self.slots = None;
        let start = Instant::now();
        let mut ring = CudaSlots::new(&self.pool, slots, slot_bytes)?;
        // A query would begin here. What keeps the slots from becoming ready is told below.
        let _ = ring.lane(Nothing).slots_ready();
        let first_ready_ns = start.elapsed().as_nanos() as u64;
        // A measurement begins here, so that it does not pay for the rest.
        ring.wait_until_ready()?;
        self.slots = Some(ring);
        let bytes = (slots * slot_bytes) as u64;
        let ready_ns = start.elapsed().as_nanos() as u64;
        Ok(Some(RingRecord { bytes, first_ready_ns, ready_ns }))
    }
}

/// The program of a lane that is only asked whether it is ready.
struct Nothing;

// SAFETY: it has no output.
unsafe impl DeviceProgram for Nothing {
    fn launch(&mut self, _: &Stream, at: SlotChunk, _: &[DeviceSlice]) -> Result<(), BoxError> {
        Err(format!("chunk {} came to a lane that does no work", at.chunk).into())
    }
}

/// The size of the largest chunk, widened to blocks.
fn slot_bytes(chunks: &[ChunkSpec]) -> usize {
    let largest = chunks.iter().map(ChunkSpec::slot_bytes).max().unwrap_or(0);
    largest.max(EXTENT_ALIGN_BYTES).next_multiple_of(EXTENT_ALIGN_BYTES)
}

fn race(
    job: &Job<'_>,
    options: RaceOptions,
    gpus: &mut [(usize, Gpu)],
) -> Result<Outcome, BenchError> {
    let plan = job.plan;
    let (affinity, mut notes) = affinity(job, gpus);
    let (token, signal) = (CancelToken::new(), StopSignal::default());
    let race = Race::new(job.files.to_vec(), job.chunks.to_vec(), options, token.clone())?;
    let sums: Vec<Option<DeviceBuffer>> = gpus
        .iter()
        .map(|(_, gpu)| zeroed_sums(gpu, plan.verify, job.chunks.len()))
        .collect::<Result<_, _>>()?;
    let memory = pageable_memory(plan, gpus)?;
    let mut programs = Vec::new();
    let mut rings = Vec::new();
    for ((_, gpu), sums) in gpus.iter_mut().zip(&sums) {
        let kernels = gpu.kernels.as_ref();
        programs.push(Take {
            chunks: job.chunks,
            signal: &signal,
            progress: job.progress,
            sums: kernels.zip(sums.as_ref()).map(|(kernels, memory)| Sums { kernels, memory }),
            done: Vec::new(),
        });
        rings.extend(gpu.slots.as_mut());
    }
    let counters = job.watch.start();
    let start = Instant::now();
    let result = watched(plan.hooks.cancel.as_ref(), plan.time_limit, &signal, &token, || {
        run_lanes(&race, &mut rings, &mut programs, &memory, &affinity)
    });
    let counted = counters.finish(start.elapsed().as_nanos() as u64);
    let done: Vec<Vec<usize>> = programs.into_iter().map(|program| program.done).collect();
    let early = signal.asked();
    let report = match result {
        Ok(report) => report,
        Err(error) => {
            return Ok(Outcome { counted, ..broken_off(error, early, start, job.progress)? });
        }
    };
    let mut outcome = Outcome {
        bytes: report.bytes_by_path.total(),
        early: early.filter(|_| report.ended_early),
        counted,
        ..Outcome::default()
    };
    for ((ring, sums), done) in rings.iter().zip(&sums).zip(&done) {
        if let Some(memory) = sums {
            outcome.sums.extend(program::download(ring.compute_stream(), memory, done)?);
        }
    }
    if gpus.len() > 1 {
        let chunks: Vec<String> = gpus
            .iter()
            .zip(&done)
            .map(|((ordinal, _), done)| format!("GPU {ordinal} {}", done.len()))
            .collect();
        notes.push(format!(
            "chunks by GPU: {}; {} stolen",
            chunks.join(", "),
            report.stolen_chunks
        ));
    }
    Ok(Outcome { report, notes, ..outcome })
}

/// Drives the lanes, one per ring.
fn run_lanes(
    race: &Race,
    rings: &mut [&mut CudaSlots],
    programs: &mut [Take<'_>],
    memory: &[Vec<AlignedBuffer>],
    affinity: &Affinity,
) -> Result<RaceReport, RaceError> {
    let mut lanes: Vec<Box<dyn DeviceLane + Send + '_>> = Vec::new();
    for (number, (ring, program)) in rings.iter_mut().zip(programs).enumerate() {
        let lane = ring.lane(program);
        lanes.push(match memory.get(number) {
            Some(memory) => Box::new(PageableLane::new(lane, memory)),
            None => Box::new(lane),
        });
    }
    match lanes.as_mut_slice() {
        [lane] => race.run_device(&mut **lane),
        lanes => {
            let lanes = lanes.iter_mut().map(|lane| &mut **lane as _).collect();
            race.run_devices(lanes, affinity).map(|report| report.merged)
        }
    }
}

/// Slots of ordinary memory for each GPU; none if they are pinned.
fn pageable_memory(
    plan: &BenchPlan,
    gpus: &[(usize, Gpu)],
) -> Result<Vec<Vec<AlignedBuffer>>, BenchError> {
    if plan.memory == HostMemory::Pinned {
        return Ok(Vec::new());
    }
    let rings = gpus.iter().filter_map(|(_, gpu)| gpu.slots.as_ref());
    rings.map(|ring| Ok(pageable_slots(ring)?)).collect()
}

fn zeroed_sums(gpu: &Gpu, verify: bool, chunks: usize) -> Result<Option<DeviceBuffer>, GpuError> {
    let Some(ring) = gpu.slots.as_ref().filter(|_| verify) else { return Ok(None) };
    let sums = gpu.pool.alloc((chunks * SUM_BYTES).max(1))?;
    ring.compute_stream().upload(&sums, 0, &vec![0u8; sums.bytes()])?;
    Ok(Some(sums))
}

/// The GPU of each file: the forced one, else the one nearest to its storage.
fn affinity(job: &Job<'_>, gpus: &[(usize, Gpu)]) -> (Affinity, Vec<String>) {
    let mut notes = Vec::new();
    if gpus.len() < 2 {
        return (Affinity::none(), notes);
    }
    let root = SysRoot::host();
    let addresses: Result<Vec<PciAddress>, _> =
        gpus.iter().map(|(_, gpu)| gpu.device.info().pcie_id.parse()).collect();
    let nearest: Vec<Option<usize>> = job
        .plan
        .paths
        .iter()
        .map(|path| {
            let Ok(addresses) = &addresses else { return None };
            let found = nearest_gpu(&root, &StorageHome::of(&root, path), addresses);
            notes.push(format!("{}: {}", path.display(), found.reason));
            found.gpu
        })
        .collect();
    let lanes = job.inputs.iter().map(|input| match job.plan.gpu_for.taker(input.file.path()) {
        Some(Taker::Gpu(ordinal)) => gpus.iter().position(|(gpu, _)| *gpu == ordinal),
        Some(Taker::All) => None,
        None => nearest.get(input.argument).copied().flatten(),
    });
    (Affinity::by_file(lanes.collect()), notes)
}
