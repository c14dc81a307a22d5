//! The CPU processor: one worker a thread, fed by the race in place where it can be.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use headrace_flow::{BoxError, HostConsumer, Race, Verdict};
use headrace_format::batches::BatchSegment;
use headrace_format::{ChunkOptions, Encoded, SegmentDecoder};
use headrace_io::FedChunk;
use headrace_ir::{Chunk, Segment, Sink};
use headrace_pipeline::bind::{BindOptions, bind};
use headrace_pipeline::cpu::{CpuProgram, CpuWorker};

use crate::chunks::{self, Planned, segment_view};
use crate::error::RunError;
use crate::task::{Done, Emit, Scope, Task};

/// Runs a task.
pub fn run(task: &Task<'_>) -> Result<Done, RunError> {
    let started = Instant::now();
    let Planned { mut feed, info } = chunks::plan(task, chunk_options(task))?;
    let bound = bind(task.pipeline, &info, task.builds, &BindOptions::default())?;
    let program = CpuProgram::compile(Arc::new(bound))?;
    let bind_ms = started.elapsed().as_secs_f64() * 1e3;
    let totals = feed.totals();
    let last_wanted = feed.first_by(program.bound(), &task.pipeline.source.ordinals);
    let mut bounds = feed.facts().bounds;
    // A worker without a chunk would only cost a thread.
    let chunks_max = bounds.chunks.map_or(usize::MAX, |chunks| chunks as usize);
    let threads = task.threads.clamp(1, chunks_max.max(1));
    let mut options = task.runner.group_options(task.groups, threads, task.token);
    options.last_wanted = last_wanted;
    let (source, ordinals) = (task.table.source(), &task.pipeline.source.ordinals);
    if source.file_count() == 0 && !source.policy().copy_first {
        // Batches in memory are consumed where they lie.
        bounds.slot_bytes = 0;
    }
    let consumers = (0..threads)
        .map(|_| {
            Ok(CpuConsumer {
                worker: program.worker(&options)?,
                decoder: Arc::clone(source).segment_decoder(ordinals)?,
                rows: 0,
                remaps: &info.remaps,
                emit: task.outlet.emit,
            })
        })
        .collect::<Result<Vec<_>, RunError>>()?;
    let mut race_options = task.runner.race_options(task.settings, source.policy());
    race_options.limit = task.limit.cloned();
    let race = Race::fed(Box::new(feed), bounds, race_options, task.token.clone());
    let (consumers, report) = race.run_host(consumers)?;
    let finishing = Instant::now();
    let mut scope = Scope::of(&totals.lock());
    scope.rows += consumers.iter().map(|consumer| consumer.rows).sum::<u64>();
    let workers: Vec<_> = consumers.into_iter().map(|c| c.worker).collect();
    let mut left = vec![0; program.bound().steps.len()];
    for worker in &workers {
        left.iter_mut().zip(worker.rows_left()).for_each(|(sum, rows)| *sum += rows);
    }
    // No step makes rows of none: 0 before more was not counted.
    let is_counted = |at: usize| left[at] > 0 || left[at..].iter().all(|&rows| rows == 0);
    let rows_left = |at: usize| is_counted(at).then_some(left[at]);
    let steps = Done::steps(&program.bound().places, rows_left);
    let output = program.finish_each(workers, task.build_options, task.outlet.emit)?;
    let finish_ms = finishing.elapsed().as_secs_f64() * 1e3;
    let spilled_bytes = options.spilled.spilled_bytes();
    let race = report;
    let (groups_brought, gpus) = (0, Vec::new());
    Ok(Done { output, scope, race, bind_ms, finish_ms, spilled_bytes, groups_brought, gpus, steps })
}

/// Parts by rows alone, so that what was read of a column is found again whatever columns a query
/// names; chunks of them small enough that every thread gets several and all finish together.
fn chunk_options(task: &Task<'_>) -> ChunkOptions {
    const CHUNKS_A_THREAD: u64 = 8;
    const PARTS_A_CHUNK: u64 = 2;
    const PART_ROWS_MIN: u64 = 16 << 10;
    const PART_ROWS_MAX: u64 = 1 << 20;
    const CHUNK_BYTES_MIN: u64 = 256 << 10;
    // Of an order's first rows most chunks turn out to be of no use, if they are not given out before that is known.
    const FIRST_ROWS_CHUNKS: u64 = 8;
    // Of rows of which nobody knows how many come: of batches the least, of pages by their bytes.
    const UNKNOWN_PART_ROWS: u64 = 1 << 17;
    const UNKNOWN_CHUNK_BYTES_MIN: u64 = 1 << 20;
    const UNKNOWN_CHUNK_BYTES_MAX: u64 = 4 << 20;
    let (source, chunk_bytes_max) = (task.table.source(), task.settings.chunk_bytes);
    let shares = CHUNKS_A_THREAD * task.threads.max(1) as u64;
    let (part_rows_max, chunk_bytes) = match (source.rows(), source.comes_once()) {
        (Some(rows), false) => {
            let rows = rows / (shares * PARTS_A_CHUNK);
            let ordinals = &task.pipeline.source.ordinals;
            let bytes = task.table.columns_bytes(ordinals);
            // A power of two: a table that grows keeps its parts for a while.
            let part_rows_max = 1 << rows.clamp(PART_ROWS_MIN, PART_ROWS_MAX).ilog2();
            let smaller = match task.pipeline.sink {
                Sink::Sorted { limit: Some(_), .. } => FIRST_ROWS_CHUNKS,
                _ => 1,
            };
            (part_rows_max, (bytes / shares).max(CHUNK_BYTES_MIN) / smaller)
        }
        _ => {
            let files = 0..source.file_count();
            let bytes: u64 = files.map(|file| source.file_identity(file).size_bytes).sum();
            let wanted = (bytes / shares).clamp(UNKNOWN_CHUNK_BYTES_MIN, UNKNOWN_CHUNK_BYTES_MAX);
            (UNKNOWN_PART_ROWS, wanted)
        }
    };
    ChunkOptions {
        part_rows_max,
        chunk_bytes_max,
        chunk_bytes_wanted: chunk_bytes.min(chunk_bytes_max),
        readers: task.threads as u64,
        ..ChunkOptions::default()
    }
}

struct CpuConsumer<'a> {
    worker: CpuWorker,
    /// Of a table whose segments are encoded.
    decoder: Option<Box<dyn SegmentDecoder>>,
    /// Rows that were not known before they were decoded.
    rows: u64,
    remaps: &'a [Arc<[i32]>],
    emit: Emit<'a>,
}

impl<'a> CpuConsumer<'a> {
    fn execute<'b>(
        &mut self,
        segment: &Segment,
        buffers: &mut impl Iterator<Item = &'b [u8]>,
    ) -> Result<Verdict, BoxError>
    where
        'a: 'b,
    {
        let view = segment_view(segment, buffers, self.remaps);
        Ok(self.worker.execute_each(&view, self.emit)?)
    }

    /// Decodes a segment, and executes the batches that it makes; what is left waits for more.
    fn decode(&mut self, segment: &Segment, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        let mut encoded = Encoded { segment, buffers, taken: 0 };
        while let Some(batch) = self.decoder()?.next_batch(&mut encoded)? {
            if segment.rows == 0 {
                self.rows += batch.num_rows() as u64;
            }
            if self.execute_batch(&batch)? == Verdict::Enough {
                return Ok(Verdict::Enough);
            }
        }
        Ok(Verdict::Continue)
    }

    fn execute_batch(&mut self, batch: &RecordBatch) -> Result<Verdict, BoxError> {
        let batch = BatchSegment::of(batch)?;
        self.execute(batch.segment(), &mut batch.buffers())
    }

    fn decoder(&mut self) -> Result<&mut Box<dyn SegmentDecoder>, BoxError> {
        self.decoder.as_mut().ok_or_else(|| "encoded segments of a table that has none".into())
    }
}

impl HostConsumer<Chunk> for CpuConsumer<'_> {
    fn consume(&mut self, chunk: &FedChunk<Chunk>, buffers: &[&[u8]]) -> Result<Verdict, BoxError> {
        let mut left = buffers;
        for segment in &chunk.payload.segments {
            let (buffers, behind) = left.split_at(segment.extents().count().min(left.len()));
            left = behind;
            let verdict = match segment.is_encoded() {
                true => self.decode(segment, buffers)?,
                false => self.execute(segment, &mut buffers.iter().copied())?,
            };
            if verdict == Verdict::Enough {
                return Ok(Verdict::Enough);
            }
        }
        let rest = self.decoder.as_mut().map(|decoder| decoder.rest()).transpose()?.flatten();
        let Some(batch) = rest else { return Ok(Verdict::Continue) };
        self.rows += batch.num_rows() as u64;
        self.execute_batch(&batch)
    }
}
