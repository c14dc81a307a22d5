//! The CUDA processor: columns stream to the GPUs, or are there already.

use std::sync::Arc;
use std::time::Instant;

use headrace_cuda::{
    ChunkLimits, ChunkSource, Chunker, CudaAnswer, CudaDevice, CudaProgram, CudaRun, DeviceBytes,
    GroupsLeft, Rest, RowOutput, RunSource, RunUnderWay, SegmentLayout, SegmentSource, Tuning,
    chunked,
};
use headrace_flow::{AccessPath, RaceOptions, RaceReport};
use headrace_format::ChunkOptions;
use headrace_io::{EXTENT_ALIGN_BYTES, Lanes};
use headrace_ir::Pipeline;
use headrace_pipeline::bind::{BindOptions, Lookups, bind};
use headrace_pipeline::bound::{BoundSink, Grouping};
use headrace_pipeline::cpu::WorkerOptions;
use headrace_pipeline::state::{Output, finish_dense};
use headrace_pipeline::{Bound, ExecError, WhyNot};

use crate::chunks::{self, Planned};
use crate::decoded::{How, batches_of};
use crate::error::RunError;
use crate::gpus::Gpus;
use crate::near::NearGpus;
use crate::pages::TablePages;
use crate::prepared::Prepared;
use crate::report::GpuBytes;
use crate::segments::Segments;
use crate::settings::Devices;
use crate::table::StreamTable;
use crate::task::{Done, Scope, Task, groups_of};

/// Rows of a segment at most, where memory allows. Only rows decide where a record batch is split,
/// so that a column's parts are the same in every query, whatever other columns it reads, and are
/// found again.
const SEGMENT_ROWS_MAX: u64 = 1 << 21;

/// Rows of a segment at most, however little memory there is.
const SEGMENT_ROWS_MIN: u64 = 16 << 10;

/// Bytes of a row by which segments are cut to the memory for slots.
const ROW_BYTES: u64 = 64;

/// Slots that the memory for them must hold.
const SLOTS_MIN: u64 = 3;

/// Segments are not cut by bytes: this only keeps one chunk from taking all memory.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// A chunk of several segments: how many rows it may have bounds what a slot has for its output.
const CHUNK_LIMITS: ChunkLimits =
    ChunkLimits { slot_bytes: 24 << 20, segments: 256, rows: 8 << 20 };

/// A chunk of pages, which the host looks at between two kernels: slots that are many and small have
/// others read and copied meanwhile.
const PAGE_LIMITS: ChunkLimits = ChunkLimits { slot_bytes: 8 << 20, ..CHUNK_LIMITS };

/// Pages are segments of whatever size: with this much they fill a slot, widened to blocks of the file.
const PAGES_BYTES_MAX: u64 = PAGE_LIMITS.slot_bytes - 2 * EXTENT_ALIGN_BYTES as u64;

/// Device memory of its own that a pipeline may keep for the next time.
const PREPARED_BYTES_MAX: u64 = 16 << 20;

/// Runs a task.
pub fn run(task: &Task<'_>) -> Result<Done, RunError> {
    task.runner.functions().check(task.pipeline)?;
    // Without a GPU, nothing is planned for one.
    task.runner.cuda(&task.settings.devices)?;
    let _under_way = RunUnderWay::begin();
    if let Some(done) = run_prepared(task)? {
        return Ok(done);
    }
    match decoded(task)? {
        Some((table, pipeline)) => {
            run_planned(&Task { table: &table, pipeline: &pipeline, ..*task })
        }
        None => run_planned(task),
    }
}

/// A task's table as batches of the columns that it reads, with the pipeline over these; `None`: a device takes the
/// table's segments as they are.
fn decoded(task: &Task<'_>) -> Result<Option<(StreamTable, Pipeline)>, RunError> {
    let (table, ordinals) = (task.table.source(), &task.pipeline.source.ordinals);
    if table.is_decoded_by_readers(ordinals) || Arc::clone(table).page_source(ordinals)?.is_some() {
        return Ok(None);
    }
    let how = How {
        threads: task.threads.max(1),
        options: task.runner.race_options(task.settings, table.policy()),
        token: task.token.clone(),
    };
    let batches = batches_of(task.table, ordinals, &chunks::conditions(task), how)?;
    let over = |batches| {
        let mut pipeline = task.pipeline.clone();
        pipeline.source.ordinals = (0..ordinals.len()).collect();
        (StreamTable::new(task.table.name(), Arc::new(batches)), pipeline)
    };
    Ok(batches.map(over))
}

/// Runs what an earlier query left ready, if its columns are still on the GPUs.
fn run_prepared(task: &Task<'_>) -> Result<Option<Done>, RunError> {
    let (ordinals, _) = task.runner.gpus().ordinals(&task.settings.devices);
    let Some(prepared) = task.runner.prepared().take(task, &ordinals) else { return Ok(None) };
    run_resident(task, &ordinals, prepared, 0.0)
}

/// Runs over resident columns; `None` if one has left its GPU since.
fn run_resident(
    task: &Task<'_>,
    ordinals: &[usize],
    mut prepared: Prepared,
    bind_ms: f64,
) -> Result<Option<Done>, RunError> {
    let bound = Arc::clone(prepared.runs.bound());
    let options = task.runner.group_options(task.groups, task.threads, task.token);
    let output = RowOutput::new(&bound, &options, task.outlet.emit)?;
    let Some((answer, mut race)) = prepared.runs.run(&output, task.outlet.take)? else {
        return Ok(None);
    };
    // Columns that were on the device come from files that may have changed since.
    task.table.source().check_unchanged()?;
    race.path_reasons.clone_from(&prepared.notes);
    let scope = prepared.scope;
    if prepared.runs.device_bytes() <= PREPARED_BYTES_MAX && !prepared.runs.is_borrowed() {
        task.runner.prepared().put(task, ordinals, prepared);
    }
    Answered { bound: &bound, answer, scope, race, bind_ms }.finish(output, &options).map(Some)
}

fn run_planned(task: &Task<'_>) -> Result<Done, RunError> {
    let started = Instant::now();
    let pages = TablePages::of(task)?;
    let Planned { feed, info } = chunks::plan(task, chunk_options(task, pages.is_some()))?;
    let options = BindOptions { lookups: Lookups::Gpu, ..BindOptions::default() };
    let bound = Arc::new(bind(task.pipeline, &info, task.builds, &options)?);
    CudaProgram::check(&bound, Tuning::FULL)?;
    let totals = feed.totals();
    let mut segments = Segments::of(task, feed, pages.as_ref());
    let (first, is_all) = segments.first()?;
    // Files or bounds may leave nothing to stream, and so no layout.
    let expected = (!is_all).then(|| SegmentLayout::of_encodings(&segments.facts().encodings));
    let known = first.iter().map(|source| SegmentLayout::of(&source.segment));
    let layout = SegmentLayout::merged(known.chain(expected));
    if let Some(layout) = &layout {
        let program = CudaProgram::compile(Arc::clone(&bound), layout, Tuning::FULL)?;
        if let Some(pages) = &pages {
            pages.check(&bound, &program.columns_read())?;
        }
    }
    let Dealt { ordinals, devices, planned, near, notes } =
        deal(task, first, (is_all, chunk_limits(pages.is_some())), has_hashed_groups(&bound))?;
    let later = near.as_ref().map(|near| Arc::clone(near.notes()));
    let segments = segments.dealt_to(near);
    let rest = (!is_all).then(|| rest(segments, devices.len(), pages.as_ref()));
    let run = CudaRun::new(&devices, &bound, RunSource { layout, planned, rest })?;
    let bind_ms = started.elapsed().as_secs_f64() * 1e3;
    if run.is_resident() {
        let runs = run.into_resident()?;
        let scope = Scope::of(&totals.lock());
        let told = later.iter().flat_map(|notes| notes.lock().clone()).collect();
        let prepared = Prepared { runs, scope, notes: [notes, told].concat() };
        return match run_resident(task, &ordinals, prepared, bind_ms)? {
            Some(done) => Ok(done),
            None => Err(ExecError::Internal("columns that were held left the GPU".into()).into()),
        };
    }
    let options = task.runner.group_options(task.groups, task.threads, task.token);
    let output = RowOutput::new(&bound, &options, task.outlet.emit)?;
    // The race checks the files of all chunks, those too whose columns are on a GPU.
    let (answer, mut race) =
        run.stream(race_options(task), task.token, &output, task.outlet.take)?;
    race.path_reasons.extend(notes);
    race.path_reasons.extend(later.iter().flat_map(|notes| std::mem::take(&mut *notes.lock())));
    let mut scope = Scope::of(&totals.lock());
    if let Some(pages) = pages {
        scope.rows += pages.rows();
        // Kept pages are no reads of the race, and nothing else of such a table is kept.
        race.bytes_by_path.resident_device += answer.stats.resident_bytes;
    }
    Answered { bound: &bound, answer, scope, race, bind_ms }.finish(output, &options)
}

/// Runs a task over groups that lie on a GPU, in place of its table.
pub fn run_over(task: &Task<'_>, lefts: &[&GroupsLeft<'_>]) -> Result<Done, RunError> {
    let (started, _under_way) = (Instant::now(), RunUnderWay::begin());
    task.runner.functions().check(task.pipeline)?;
    let source = &task.pipeline.source;
    let options = BindOptions { lookups: Lookups::Gpu, ..BindOptions::default() };
    let info = headrace_cuda::info_of(lefts, source)?;
    let bound = Arc::new(bind(task.pipeline, &info, task.builds, &options)?);
    CudaProgram::check(&bound, Tuning::FULL)?;
    let options = task.runner.group_options(task.groups, task.threads, task.token);
    let output = RowOutput::new(&bound, &options, task.outlet.emit)?;
    let bind_ms = started.elapsed().as_secs_f64() * 1e3;
    let answer = headrace_cuda::run_over(lefts, source, &bound, &output, task.outlet.take)?;
    let scope = Scope { rows: groups_of(lefts), ..Scope::default() };
    let race = RaceReport {
        wall_ns: started.elapsed().as_nanos() as u64,
        kernel_ns: (answer.stats.kernel_ms * 1e6) as u64,
        ..RaceReport::default()
    };
    Answered { bound: &bound, answer, scope, race, bind_ms }.finish(output, &options)
}

/// The segments that were not planned, for the race.
fn rest(segments: Segments, devices: usize, pages: Option<&Arc<TablePages>>) -> Rest {
    let facts = segments.facts();
    Rest {
        feed: Box::new(segments),
        chunker: Chunker::new(devices, chunk_limits(pages.is_some())),
        segment_slot_bytes: facts.segment_bytes,
        bytes: facts.bounds.bytes,
        chunks: facts.bounds.chunks,
        pages: pages.map(TablePages::streamed),
    }
}

fn chunk_limits(has_pages: bool) -> ChunkLimits {
    if has_pages { PAGE_LIMITS } else { CHUNK_LIMITS }
}

pub(crate) fn chunk_options(task: &Task<'_>, has_pages: bool) -> ChunkOptions {
    let gpus = task.runner.gpus().ordinals(&Devices::All).0.len() as u64;
    let rows = task.runner.memory().slots_bytes / gpus / SLOTS_MIN / ROW_BYTES;
    // A power of two, so that it is the same whenever about as much memory is given.
    let rows = 1 << rows.clamp(SEGMENT_ROWS_MIN, SEGMENT_ROWS_MAX).ilog2();
    let bytes = if has_pages { PAGES_BYTES_MAX } else { SEGMENT_BYTES_MAX };
    ChunkOptions {
        chunk_rows_max: rows,
        chunk_bytes_max: bytes,
        chunk_bytes_wanted: bytes,
        is_plain: true,
        ..ChunkOptions::default()
    }
}

/// Which GPU takes which chunks.
struct Dealt {
    /// The GPUs that were to choose from.
    ordinals: Vec<usize>,
    /// Those that have chunks, or may get some; a chunk's device counts these.
    devices: Vec<Arc<CudaDevice>>,
    planned: Vec<ChunkSource>,
    /// Which of the devices are near to the files, if there are several.
    near: Option<NearGpus>,
    /// Why not all take part, and how far they are.
    notes: Vec<String>,
}

/// Whether it ends in groups of any keys. Those of several GPUs are merged on the host, which takes longer than one GPU
/// takes for all.
fn has_hashed_groups(bound: &Bound) -> bool {
    matches!(&bound.sink, BoundSink::Aggregate { grouping: Grouping::Hash, .. })
}

/// Deals the segments out to the GPUs, or to one `together`, if it holds all of them. One that cannot be opened is left
/// out, unless it was asked for.
fn deal(
    task: &Task<'_>,
    segments: Vec<SegmentSource>,
    (is_all, limits): (bool, ChunkLimits),
    together: bool,
) -> Result<Dealt, WhyNot> {
    let gpus = task.runner.gpus();
    let bytes = task.table.columns_bytes(&task.pipeline.source.ordinals);
    let holds_all = |ordinal: usize| {
        gpus.open(ordinal).is_ok_and(|gpu| gpu.resident().stats().budget_bytes >= bytes)
    };
    loop {
        let (ordinals, mut notes) = gpus.ordinals(&task.settings.devices);
        let mut near = NearGpus::of(gpus, &ordinals, &task.settings.gpu_for);
        let dealt = match &mut near {
            Some(near) => {
                let dealt = near.deal(segments.iter().cloned());
                // Whatever columns a query reads, so that the next one finds them where they are.
                match near.nearest() {
                    Some(nearest) if !has_room(task, gpus, &ordinals, nearest) => {
                        near.spread();
                        near.deal(segments.iter().cloned())
                    }
                    _ => dealt,
                }
            }
            None => segments.clone(),
        };
        let near_all = dealt.iter().fold(Lanes::ALL, |near, source| near.and(source.near));
        let one = near_all.of(ordinals.len()).next().unwrap_or(0);
        let is_one = together && ordinals.len() > 1 && holds_all(ordinals[one]);
        let mut planned = chunked(dealt, if is_one { 1 } else { ordinals.len() }, limits);
        let used = match (is_one, is_all) {
            (true, _) => vec![one],
            (false, true) => used_devices(&mut planned),
            (false, false) => (0..ordinals.len()).collect(),
        };
        if is_one {
            notes.push("groups of any keys are made on one GPU, which holds the columns".into());
            notes.extend(near.take().iter().flat_map(|near| near.notes().lock().clone()));
        }
        let opened: Vec<_> = used.iter().map(|&device| gpus.open(ordinals[device])).collect();
        if let Some(Err(reason)) = opened.iter().find(|opened| opened.is_err()) {
            // The next round leaves it out, if there is any other.
            if gpus.ordinals(&task.settings.devices).0 == ordinals {
                return Err(reason.clone());
            }
            continue;
        }
        let devices = opened.into_iter().flatten().collect();
        return Ok(Dealt { ordinals, devices, planned, near, notes });
    }
}

/// Whether GPUs have room for all columns of a task's table.
fn has_room(task: &Task<'_>, gpus: &Gpus, ordinals: &[usize], lanes: Lanes) -> bool {
    let columns: Vec<usize> = (0..task.table.source().schema().fields().len()).collect();
    let room = |lane: usize| {
        gpus.open(ordinals[lane]).map_or(0, |gpu| gpu.resident().stats().budget_bytes)
    };
    lanes.of(ordinals.len()).map(room).sum::<u64>() >= task.table.columns_bytes(&columns)
}

/// The devices that have chunks, at least one; chunks count these from now on.
fn used_devices(chunks: &mut [ChunkSource]) -> Vec<usize> {
    let mut used: Vec<usize> = chunks.iter().map(|chunk| chunk.device).collect();
    used.sort_unstable();
    used.dedup();
    let place = |device: usize| used.partition_point(|used| *used < device);
    for chunk in chunks {
        chunk.device = place(chunk.device);
        for source in chunk.segments.iter_mut().filter(|source| source.near != Lanes::ALL) {
            source.near = used.iter().copied().filter(|u| source.near.has(*u)).map(place).collect();
        }
    }
    if used.is_empty() { vec![0] } else { used }
}

fn race_options(task: &Task<'_>) -> RaceOptions {
    let policy = task.table.source().policy();
    let mut options = task.runner.gpu_race_options(task.settings, policy);
    if options.access == AccessPath::Auto && CudaDevice::reads_past_host_memory() {
        // What goes straight to the device is not kept on the host.
        options.cache = None;
    }
    let (table, ordinals) = (task.table.source(), &task.pipeline.source.ordinals);
    if table.is_decoded_by_readers(ordinals) {
        // Each column chunk is decoded by one thread, while another may wait for its validity.
        options.readers = task.threads.max(1) * 2;
        options.segment_bytes = SEGMENT_BYTES_MAX as usize;
    }
    options
}

/// What the GPUs left.
struct Answered<'a> {
    bound: &'a Bound,
    answer: CudaAnswer,
    scope: Scope,
    race: RaceReport,
    bind_ms: f64,
}

impl Answered<'_> {
    /// What is left of the answer when its rows were emitted, and the groups that wait are merged.
    fn finish(self, output: RowOutput<'_>, options: &WorkerOptions) -> Result<Done, RunError> {
        let Self { bound, answer, scope, race, bind_ms } = self;
        let finishing = Instant::now();
        output.finish()?;
        let state = answer.state.iter();
        let batches = state.map(|state| finish_dense(bound, state)).collect::<Result<_, _>>()?;
        let finish_ms = finishing.elapsed().as_secs_f64() * 1e3;
        let output = Output::Batches(batches);
        let spilled_bytes = options.spilled.spilled_bytes();
        let steps = match answer.steps {
            Some(left) if !left.places.is_empty() => Done::steps(&left.places, |at| left.rows[at]),
            // No row came.
            Some(_) => Done::steps(&bound.places, |_| Some(0)),
            None => Done::steps(&bound.places, |_| None),
        };
        let groups_brought = answer.stats.groups_brought;
        let gpus = gpu_bytes(&answer.by_device);
        Ok(Done {
            output,
            scope,
            race,
            bind_ms,
            finish_ms,
            spilled_bytes,
            groups_brought,
            gpus,
            steps,
        })
    }
}

/// What each of several GPUs had.
fn gpu_bytes(by_device: &[DeviceBytes]) -> Vec<GpuBytes> {
    let bytes = |&DeviceBytes { ordinal, came, resident }: &DeviceBytes| GpuBytes {
        gpu: ordinal,
        came_bytes: came,
        resident_bytes: resident,
    };
    if by_device.len() > 1 { by_device.iter().map(bytes).collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use headrace_ir::Segment;

    use super::*;

    #[test]
    fn devices_without_chunks_do_not_count() {
        let chunk = |device| ChunkSource { device, ..ChunkSource::default() };
        let mut chunks = [chunk(3), chunk(1), chunk(3)];
        assert_eq!(used_devices(&mut chunks), [1, 3]);
        assert_eq!(chunks.map(|chunk| chunk.device), [1, 0, 1]);
        assert_eq!(used_devices(&mut []), [0]);
        let near = |near: &[usize]| SegmentSource {
            segment: Segment { file: 0, batch: 0, first_row: 0, rows: 1, columns: Vec::new() },
            from: None,
            file: None,
            columns: Arc::default(),
            stamp: 0,
            kept: None,
            near: near.iter().copied().collect(),
        };
        let chunk = |device, segments| ChunkSource { device, segments };
        let mut chunks = [chunk(1, vec![near(&[1, 3]), near(&[1])]), chunk(3, vec![near(&[0, 3])])];
        assert_eq!(used_devices(&mut chunks), [1, 3]);
        let all: Vec<_> = chunks.iter().flat_map(|chunk| &chunk.segments).map(|s| s.near).collect();
        assert_eq!(
            all,
            [[0, 1].into_iter().collect(), Lanes::from_iter([0]), Lanes::from_iter([1])]
        );
    }
}
