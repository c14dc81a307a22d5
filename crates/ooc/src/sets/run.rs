//! One call, from the lists to the report.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use headrace_flow::{ChunkSpec, CudaSlots, Race, RaceOptions, RaceReport};
use headrace_io::write::WriteAt;
use headrace_io::{EXTENT_ALIGN_BYTES, MemoryUse, binary_bytes};
use serde::Serialize;

use super::device::OnDevice;
use super::fences::PLAN_READERS;
use super::found::{CHUNK_PAIRS_MAX, Found};
use super::host::OnHost;
use super::list::KeyList;
use super::plan::{Plan, Shape};
use super::unsorted::unsorted_within;
use super::{KEY_TYPES, Repeats, SetOperation};
use crate::{Number, NumberType, OocError, Options, Report, Result, Room};

/// Default input bytes of a chunk on the CPU.
const HOST_CHUNK_BYTES: usize = 8 << 20;

/// Minimum input bytes of a chunk: below it the per-chunk work exceeds that on keys.
const CHUNK_BYTES_MIN: usize = 64 << 10;

/// Block size of the fences: one page read per two megabytes.
const FENCE_BYTES: u64 = 2 << 20;

/// Input bytes of a chunk on a device: with this many slots the ring stays in the last-level cache.
const DEVICE_CHUNK_BYTES: usize = 12 << 20;

/// Chunks in flight on a device.
const DEVICE_SLOTS: usize = 6;

/// Seconds until a GPU takes its first chunk.
const GPU_START_S: f64 = 0.6;

/// Approximate merge rate of a thread.
const HOST_GB_PER_S_A_THREAD: f64 = 1.5;

/// Room in a slot or window beside a chunk's keys: extents and output are widened to whole blocks.
const SLOT_EXTRA_BYTES: usize = CHUNK_PAIRS_MAX * 4 * EXTENT_ALIGN_BYTES + OUTPUT_EXTRA_BYTES;

/// Of this, the part of the output.
const OUTPUT_EXTRA_BYTES: usize = 4 * EXTENT_ALIGN_BYTES;

/// A set operation.
#[derive(Debug, Clone)]
pub struct SetJob {
    /// The lists; a difference is the first without the second.
    pub lists: [KeyList; 2],
    /// The operation.
    pub operation: SetOperation,
    /// Whether keys may repeat.
    pub repeats: Repeats,
    /// Destination of the result, as raw keys; `None`: only count.
    pub output: Option<PathBuf>,
    /// Block size whose last key is read in advance; `None`: the default.
    pub fence_bytes: Option<u64>,
}

/// The result of a set operation.
#[derive(Debug, Clone, Serialize)]
pub struct SetReport {
    /// Keys of the result.
    pub keys: u64,
    /// Keys of the lists.
    pub list_keys: [u64; 2],
    /// Keys of both lists that the fences ruled out and that were not read.
    pub dropped_keys: u64,
    /// The operator's report.
    pub report: Report,
}

/// Runs a set operation.
///
/// # Errors
/// See [`OocError`]; the output is complete or absent.
pub fn run(job: &SetJob, options: &Options) -> Result<SetReport> {
    let [a, b] = [0, 1].map(|list: usize| job.lists[list].number());
    if a != b {
        let what = format!("the keys of the lists are of different types: {a} and {b}");
        return Err(OocError::usage(what, "convert one of them"));
    }
    match a {
        NumberType::I32 => run_of::<i32>(job, options),
        NumberType::U32 => run_of::<u32>(job, options),
        NumberType::I64 => run_of::<i64>(job, options),
        NumberType::U64 => run_of::<u64>(job, options),
        NumberType::F32 => run_of::<f32>(job, options),
        NumberType::F64 => run_of::<f64>(job, options),
        NumberType::Bf16 => {
            let names = KEY_TYPES.map(NumberType::name).join(", ");
            Err(OocError::usage(format!("{a} is no type of keys"), format!("there are {names}")))
        }
    }
}

fn run_of<K: Number>(job: &SetJob, options: &Options) -> Result<SetReport> {
    let start = Instant::now();
    let lists = [&job.lists[0], &job.lists[1]];
    let bytes = lists[0].bytes() + lists[1].bytes();
    let start_s = GPU_START_S * HOST_GB_PER_S_A_THREAD * options.threads() as f64;
    let is_small = (bytes as f64 / 1e9) < start_s;
    let why = "the cores merge so little before a GPU has started";
    let room = Room::new(options, is_small.then_some(why))?;
    // Before anything is read: a path that cannot be written to is known at once.
    let sink = job.output.as_ref().map(|path| options.files.growing(path)).transpose()?;
    let layout = Layout::of(options, &room)?;
    let fence_bytes = job.fence_bytes.unwrap_or(FENCE_BYTES);
    let shape =
        Shape::of(layout.chunk_bytes as u64, fence_bytes, size_of::<K>() as u64, PLAN_READERS);
    let plan = Plan::new::<K>(lists, job.operation, job.repeats, shape, &room.memory)?;
    let plan_ns = start.elapsed().as_nanos() as u64;
    let found = Found::new(job.repeats, sink.is_none());
    let raced = race::<K>(job, options, &room, (&layout, &plan, &found), sink.as_ref());
    let race = raced.map_err(|error| explained::<K>(error, lists, &found))?;
    if let Some(sink) = &sink {
        sink.commit(options.sync)?;
    }
    let keys = found.keys();
    let mut report = room.report(vec![("merge", race)]);
    report.input_bytes = bytes;
    report.output_bytes = if sink.is_some() { keys * size_of::<K>() as u64 } else { 0 };
    (report.plan_ns, report.wall_ns) = (plan_ns, start.elapsed().as_nanos() as u64);
    report.notes = plan.notes;
    let list_keys = lists.map(KeyList::keys);
    Ok(SetReport { keys, list_keys, dropped_keys: plan.dropped_keys, report })
}

/// The division of memory.
struct Layout {
    chunk_bytes: usize,
    slots: usize,
    /// Windows for output; a device has its own slots.
    windows: usize,
}

impl Layout {
    fn of(options: &Options, room: &Room) -> Result<Layout> {
        let (slots, windows, wanted_bytes) = match &room.device {
            Some(_) => (DEVICE_SLOTS, 0, DEVICE_CHUNK_BYTES),
            None => (2 * room.threads + 2, room.threads + 2, HOST_CHUNK_BYTES),
        };
        let slots = options.slots.unwrap_or(slots).max(1);
        // Two more for the plan and whatever else there is.
        let parts = slots + windows + 2;
        let mut limits = vec![("host memory", room.memory.limit_bytes(), parts)];
        // In device memory a slot is its input, its output, and what the kernels note.
        limits.extend(room.device.iter().map(|d| ("device memory", d.free_bytes(), 3 * slots)));
        let fits = |(_, bytes, parts): &(&str, u64, usize)| {
            (*bytes / *parts as u64).saturating_sub(SLOT_EXTRA_BYTES as u64) as usize
        };
        let (memory, limit_bytes, parts) =
            *limits.iter().min_by_key(|limit| fits(limit)).unwrap_or(&limits[0]);
        let fits = fits(&(memory, limit_bytes, parts));
        let chunk_bytes =
            options.chunk_bytes.unwrap_or(wanted_bytes.min(fits).max(CHUNK_BYTES_MIN));
        if chunk_bytes > fits {
            return Err(OocError::Memory {
                what: format!("{parts} chunks of {}", binary_bytes(chunk_bytes as u64)),
                memory,
                wanted_bytes: ((chunk_bytes + SLOT_EXTRA_BYTES) * parts) as u64,
                limit_bytes,
                remedy: "raise the limit, or take fewer threads or smaller chunks".into(),
            });
        }
        Ok(Layout { chunk_bytes, slots, windows })
    }

    fn window_bytes(&self) -> usize {
        self.chunk_bytes + SLOT_EXTRA_BYTES
    }
}

fn race<K: Number>(
    job: &SetJob,
    options: &Options,
    room: &Room,
    (layout, plan, found): (&Layout, &Plan, &Found),
    sink: Option<&Arc<dyn WriteAt>>,
) -> Result<RaceReport> {
    let lists = [&job.lists[0], &job.lists[1]];
    let files = lists.iter().flat_map(|list| list.files().iter().cloned()).collect();
    let specs = plan.specs(lists);
    let slot_bytes =
        specs.iter().map(ChunkSpec::slot_bytes).max().unwrap_or(0) + OUTPUT_EXTRA_BYTES;
    let race_options = RaceOptions {
        slots: layout.slots,
        memory: Some(room.memory.clone()),
        output_slots: layout.windows,
        output_slot_bytes: layout.window_bytes(),
        ..options.race()
    };
    let race = Race::new(files, specs, race_options, options.token.clone())?;
    let race = match sink {
        Some(sink) => race.with_appended(vec![sink.clone()]),
        None => race,
    };
    let reserve =
        |parts: usize, bytes: usize| room.memory.reserve(MemoryUse::Slots, (parts * bytes) as u64);
    let Some(device) = &room.device else {
        let windows = if sink.is_some() { layout.windows } else { 0 };
        let _windows = reserve(windows, layout.window_bytes())?;
        let thread = |_| OnHost::<K>::new(job.operation, found, &plan.chunks);
        return Ok(race.run_host_writing((0..room.threads).map(thread).collect())?.1);
    };
    let _pinned = reserve(layout.slots, slot_bytes)?;
    let mut slots = CudaSlots::new(&device.pool, layout.slots, slot_bytes)?;
    let shape = (layout.slots, slots.slot_bytes());
    let program = OnDevice::new(device, (K::TYPE, job.operation), shape, found, &plan.chunks)?;
    Ok(race.run_device(&mut slots.lane(program))?)
}

/// The cause of a failed race: the position where a list is out of order, if one was seen to be.
fn explained<K: Number>(error: OocError, lists: [&KeyList; 2], found: &Found) -> OocError {
    match (error, found.unsorted.lock().take()) {
        (OocError::Race(_), Some(pair)) => {
            unsorted_within::<K>([(lists[0], pair.a), (lists[1], pair.b)], found.repeats)
        }
        (error, _) => error,
    }
}
