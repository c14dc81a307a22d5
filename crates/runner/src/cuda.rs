//! The CUDA processor: columns stream to the GPU, or are there already.

use std::sync::Arc;
use std::time::Instant;

use headrace_flow::{BytesByPath, Race, RaceReport};
use headrace_format::arrow::ChunkOptions;
use headrace_io::FileIdentity;
use headrace_ir::Sink;
use headrace_pipeline::bind::{BindOptions, bind};
use headrace_pipeline::cuda::{
    CudaAnswer, CudaDevice, CudaExecution, CudaLane, CudaOptions, CudaProgram, SegmentLayout,
    SegmentSource, StreamPlan, Tuning, run_resident,
};
use headrace_pipeline::state::{Output, finish_dense};
use headrace_pipeline::{Bound, ExecError, WhyNot};

use crate::chunks::{self, Chunks};
use crate::error::RunError;
use crate::task::{Done, Task};

/// Rows of a chunk. Only rows decide where a record batch is split, so that a column's parts
/// are the same in every query, whatever other columns it reads, and are found again.
const CHUNK_ROWS: u64 = 2 << 20;

/// No chunk is larger than this, in bytes: 32 columns of 4 bytes.
const CHUNK_BYTES_MAX: u64 = 256 << 20;

/// Chunks on their way at a time: one is read, one copied, one executed, one to spare.
const SLOTS: usize = 4;

/// Output rows that one launch over resident columns may yield.
const RESIDENT_ROWS_MAX: u64 = 16 << 20;

/// Opens the first GPU; the reason if there is none that can be used.
pub fn open(resident_bytes: Option<u64>) -> Result<Arc<CudaDevice>, WhyNot> {
    let options = CudaOptions { resident_bytes, ..CudaOptions::default() };
    CudaDevice::open(0, options).map_err(|error| {
        // Remedies follow on lines of their own; EXPLAIN has room for the cause.
        let text = error.to_string();
        WhyNot::new(text.lines().next().unwrap_or("no GPU"))
    })
}

/// Runs a task.
pub fn run(task: &Task<'_>) -> Result<Done, RunError> {
    let device = task.runner.cuda()?;
    let started = Instant::now();
    let chunks = chunks::plan(task, chunk_options())?;
    let bound = Arc::new(bind(task.pipeline, &chunks.info, task.builds, &BindOptions::default())?);
    CudaProgram::check(&bound, Tuning::FULL)?;
    // Files or bounds may leave nothing to stream, and so no layout.
    let layouts = layouts(&chunks);
    for layout in &layouts {
        CudaProgram::compile(Arc::clone(&bound), layout, Tuning::FULL)?;
    }
    let mut execution = CudaExecution::new(&device, &bound, &layouts)?;
    let plan = StreamPlan::new(&mut execution, &sources(task, &chunks))?;
    let bind_ms = started.elapsed().as_secs_f64() * 1e3;
    let (answer, race) = if plan.is_resident() {
        resident(execution, &plan)?
    } else {
        stream(task, &chunks, execution, plan)?
    };
    check_files(&chunks)?;
    let finishing = Instant::now();
    let output = finish(task, &bound, answer)?;
    let finish_ms = finishing.elapsed().as_secs_f64() * 1e3;
    Ok(Done { output, chunks, race, bind_ms, finish_ms })
}

fn chunk_options() -> ChunkOptions {
    ChunkOptions {
        chunk_rows_max: CHUNK_ROWS,
        chunk_bytes_max: CHUNK_BYTES_MAX,
        ..ChunkOptions::default()
    }
}

fn layouts(chunks: &Chunks) -> Vec<SegmentLayout> {
    let mut layouts: Vec<SegmentLayout> = Vec::new();
    for segment in chunks.plan.chunks.iter().flat_map(|c| &c.segments) {
        let layout = SegmentLayout::of(segment);
        if !layouts.contains(&layout) {
            layouts.push(layout);
        }
    }
    layouts
}

/// Segments with what makes their columns the same in a later query.
fn sources(task: &Task<'_>, chunks: &Chunks) -> Vec<Vec<SegmentSource>> {
    let numbers = chunks.file_numbers();
    let ordinals = &task.pipeline.source.ordinals;
    let columns: Arc<[u32]> = ordinals.iter().map(|&c| c as u32).collect();
    let table = task.table.source();
    let names: Vec<_> = table.schema().fields().iter().map(|f| f.name().as_str()).collect();
    let identities: Vec<Arc<[u8]>> = (0..table.file_count())
        .map(|file| identity_bytes(table.file_identity(file), &names))
        .collect();
    let source = |segment: &headrace_ir::Segment| {
        let file = Arc::clone(&identities[segment.file as usize]);
        let mut segment = segment.clone();
        segment.file = numbers[&segment.file] as u32;
        SegmentSource { segment, file, columns: Arc::clone(&columns) }
    };
    let of_chunk = |chunk: &headrace_ir::Chunk| chunk.segments.iter().map(source).collect();
    chunks.plan.chunks.iter().map(of_chunk).collect()
}

/// Columns are numbered as the table has them, which another table over the same file may
/// order differently: their names are part of the identity.
fn identity_bytes(identity: FileIdentity, columns: &[&str]) -> Arc<[u8]> {
    format!("{identity:?} {columns:?}").into_bytes().into()
}

/// Everything is on the device: nothing is read.
fn resident(
    execution: CudaExecution,
    plan: &StreamPlan,
) -> Result<(CudaAnswer, RaceReport), RunError> {
    let started = Instant::now();
    let answer = run_resident(execution, plan, RESIDENT_ROWS_MAX)?;
    let report = RaceReport {
        wall_ns: started.elapsed().as_nanos() as u64,
        chunks: plan.chunk_specs().len() as u64,
        bytes_by_path: BytesByPath {
            resident_device: answer.stats.resident_bytes,
            ..BytesByPath::default()
        },
        kernel_ns: (answer.stats.kernel_ms * 1e6) as u64,
        ..RaceReport::default()
    };
    Ok((answer, report))
}

fn stream(
    task: &Task<'_>,
    chunks: &Chunks,
    execution: CudaExecution,
    plan: StreamPlan,
) -> Result<(CudaAnswer, RaceReport), RunError> {
    let specs = plan.chunk_specs();
    let slots = SLOTS.min(specs.len().max(1));
    let mut lane = CudaLane::new(execution, plan, slots)?;
    let race = Race::new(
        chunks.files.clone(),
        specs,
        task.runner.race_options(task.settings),
        task.token.clone(),
    )?;
    let mut report = race.run_device(&mut lane)?;
    let answer = lane.finish()?;
    report.kernel_ns = report.kernel_ns.max((answer.stats.kernel_ms * 1e6) as u64);
    Ok((answer, report))
}

/// The race checks the files that it reads; columns that were on the device come from files
/// that may have changed since.
fn check_files(chunks: &Chunks) -> Result<(), RunError> {
    for file in &chunks.files {
        file.check_unchanged().map_err(headrace_flow::RaceError::Changed)?;
    }
    Ok(())
}

fn finish(task: &Task<'_>, bound: &Bound, answer: CudaAnswer) -> Result<Output, RunError> {
    if let Some(state) = &answer.state {
        return Ok(Output::Batches(vec![finish_dense(bound, state)?]));
    }
    let mut left = match &task.pipeline.sink {
        Sink::Rows { limit, .. } => limit.unwrap_or(u64::MAX),
        // Hashed groups come as they are.
        Sink::Aggregate { .. } => u64::MAX,
        Sink::Build { .. } => {
            return Err(ExecError::Internal("a GPU answered rows for another sink".into()).into());
        }
    };
    let mut batches = answer.batches;
    for batch in &mut batches {
        let rows = (batch.num_rows() as u64).min(left);
        *batch = batch.slice(0, rows as usize);
        left -= rows;
    }
    Ok(Output::Batches(batches))
}
