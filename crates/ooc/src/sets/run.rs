//! One call, from the lists to the report.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use headrace_flow::{Race, RaceError, RaceOptions, RaceReport};
use headrace_io::write::WriteAt;
use headrace_io::{MemoryUse, Reservation, binary_bytes};

use super::host::OnHost;
use super::list::KeyList;
use super::plan::{Plan, Shape};
use super::unsorted::unsorted_within;
use super::{Found, KEY_TYPES, Repeats, SetOperation, SetReport};
use crate::{Number, NumberType, OocError, Options, Result, Room};

/// Input of a chunk on the cores unless something else is asked for.
const HOST_CHUNK_BYTES: usize = 8 << 20;

/// Input of a chunk at least: below it the work on chunks is more than that on keys.
const CHUNK_BYTES_MIN: usize = 64 << 10;

/// Blocks whose last keys are the fences: a read of a page for a megabyte.
const FENCE_BYTES: u64 = 1 << 20;

/// Small reads under way while a plan is made: enough to hide the latency of a drive.
const PLAN_READERS: usize = 32;

/// Room in an output window beside a chunk's keys: what the race puts before and behind them.
const WINDOW_EXTRA_BYTES: usize = 64 << 10;

/// A set operation.
#[derive(Debug, Clone)]
pub struct SetJob {
    /// The lists; of a difference, the first without the second.
    pub lists: [KeyList; 2],
    /// What is asked of them.
    pub operation: SetOperation,
    /// Whether keys may be repeated.
    pub repeats: Repeats,
    /// Where the result goes, as keys and nothing else; `None`: they are counted.
    pub output: Option<PathBuf>,
    /// Bytes of a block, of which the last key is read beforehand; `None`: what suits.
    pub fence_bytes: Option<u64>,
}

/// Runs a set operation.
///
/// # Errors
/// See [`OocError`]; the output is whole or not there.
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
    let room = Room::new(options, None)?;
    let lists = [&job.lists[0], &job.lists[1]];
    // Before anything is read: a path that cannot be written to is known at once.
    let sink = job.output.as_ref().map(|path| options.files.growing(path)).transpose()?;
    let layout = Layout::of(options, &room)?;
    let fence_bytes = job.fence_bytes.unwrap_or(FENCE_BYTES);
    let shape =
        Shape::of(layout.chunk_bytes as u64, fence_bytes, size_of::<K>() as u64, PLAN_READERS);
    let _fences = room.memory.reserve(MemoryUse::Operators, plan_bytes(lists, shape))?;
    let plan = Plan::new::<K>(lists, job.operation, job.repeats, shape)?;
    let plan_ns = start.elapsed().as_nanos() as u64;
    let found = Found::new(job.repeats, sink.is_none());
    let raced = race::<K>(job, options, &room, (&layout, &plan, &found), sink.as_ref());
    let race = raced.map_err(|error| explained::<K>(error, lists, &found))?;
    if let Some(sink) = &sink {
        sink.commit(options.sync)?;
    }
    let keys = found.keys();
    let mut report = room.report(vec![("merge", race)]);
    report.input_bytes = lists[0].bytes() + lists[1].bytes();
    report.output_bytes = if sink.is_some() { keys * size_of::<K>() as u64 } else { 0 };
    (report.plan_ns, report.wall_ns) = (plan_ns, start.elapsed().as_nanos() as u64);
    let list_keys = lists.map(KeyList::keys);
    Ok(SetReport { keys, list_keys, dropped_keys: plan.dropped_keys, report })
}

/// How host memory is divided.
struct Layout {
    chunk_bytes: usize,
    slots: usize,
    windows: usize,
}

impl Layout {
    fn of(options: &Options, room: &Room) -> Result<Layout> {
        let slots = options.slots.unwrap_or(2 * room.threads + 2);
        let windows = room.threads + 2;
        let limit_bytes = room.memory.limit_bytes();
        let share = |parts: usize| (limit_bytes / parts as u64) as usize;
        // A slot may be wider than its chunk, by a block at either end of each extent.
        let fits = share(slots + windows + 2).saturating_sub(2 * WINDOW_EXTRA_BYTES);
        let chunk_bytes = options.chunk_bytes.unwrap_or(HOST_CHUNK_BYTES.min(fits));
        let chunk = options.chunk_bytes.unwrap_or(chunk_bytes.max(CHUNK_BYTES_MIN));
        if chunk > fits {
            let parts = slots + windows + 2;
            return Err(OocError::Memory {
                what: format!("{parts} chunks of {}", binary_bytes(chunk as u64)),
                memory: "host memory",
                wanted_bytes: ((chunk + 2 * WINDOW_EXTRA_BYTES) * parts) as u64,
                limit_bytes,
                remedy: "raise the memory limit, or take fewer threads or smaller chunks".into(),
            });
        }
        Ok(Layout { chunk_bytes, slots, windows })
    }

    fn window_bytes(&self) -> usize {
        self.chunk_bytes + WINDOW_EXTRA_BYTES
    }
}

/// Memory for fences, cuts and chunks, at most a few of each a block.
fn plan_bytes(lists: [&KeyList; 2], shape: Shape) -> u64 {
    const BYTES_A_BLOCK: u64 = 128;
    let blocks =
        |list: &KeyList| list.keys() / shape.block_keys + list.segment_ends().count() as u64 + 1;
    lists.map(blocks).iter().sum::<u64>() * BYTES_A_BLOCK
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
    let race_options = RaceOptions {
        slots: layout.slots,
        memory: Some(room.memory.clone()),
        output_slots: layout.windows,
        output_slot_bytes: layout.window_bytes(),
        ..options.race()
    };
    let race = Race::new(files, plan.specs(lists), race_options, options.token.clone())?;
    let race = match sink {
        Some(sink) => race.with_appended(vec![sink.clone()]),
        None => race,
    };
    let _windows: Option<Reservation> = match sink {
        Some(_) => {
            let bytes = (layout.windows * layout.window_bytes()) as u64;
            Some(room.memory.reserve(MemoryUse::Slots, bytes)?)
        }
        None => None,
    };
    let threads = (0..room.threads).map(|_| OnHost::<K>::new(job.operation, found, &plan.chunks));
    Ok(race.run_host_writing(threads.collect())?.1)
}

/// What a race that failed failed of: where a list is out of order, if one was seen to be.
fn explained<K: Number>(error: OocError, lists: [&KeyList; 2], found: &Found) -> OocError {
    match (error, found.unsorted.lock().take()) {
        (OocError::Race(RaceError::Cancelled), _) => OocError::Cancelled,
        (OocError::Race(RaceError::Changed(error)), _) => OocError::Io(error),
        (_, Some(pair)) => {
            unsorted_within::<K>([(lists[0], pair.a), (lists[1], pair.b)], found.repeats)
        }
        (error, None) => error,
    }
}
