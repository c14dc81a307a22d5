//! Joins with a build that does not fit memory.
//!
//! ```text
//! rows of the build ──────────────► partitions ─┐
//!                                               ├─ pair by pair ─► probe ─► steps after ─► sink
//! source ─► steps before the probe ► partitions ─┘
//! ```
//!
//! Both sides are divided by the join's keys into temporary files; a row meets the rows of its own
//! partition alone, so each pair is a program like any other, with a build that fits. Several pairs
//! are joined at a time, each by one thread. A partition that is too large still is divided again; one
//! key whose rows are too large alone is joined piece by piece where that means the same. Partial
//! states of groups, and first rows of an order, are put together at the end.
//!
//! Of several such builds the one that is probed last is divided last: what comes before it is a
//! pipeline that ends in rows, with a build to be divided of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use headrace_columns::column::arrow_field;
use headrace_columns::hash::LEVELS;
use headrace_format::batches::{BatchTable, ProducerError, Ready};
use headrace_io::{MemoryBudget, MemoryUse, Reservation};
use headrace_ir::{
    AggregateOutput, BuildPlan, Cut, Field, NamedExpr, Pipeline, Probe, ProbeKind, Sink, Source,
    SourceKind, Step,
};
use headrace_pipeline::bind::bind_merge;
use headrace_pipeline::build::BuildOptions;
use headrace_pipeline::partial::PartialMerge;
use headrace_pipeline::{BuildTable, ExecError};
use headrace_spill::{Blocks, Part};
use parking_lot::Mutex;

use crate::builds::{Slot, probes};
use crate::error::RunError;
use crate::parts::{Divider, Dividing, Gathered, file_bytes};
use crate::run::{Run, Streamed, Streaming};
use crate::settings::{Processor, Settings};
use crate::table::StreamTable;
use crate::task::Emit;

/// With less memory for each pair, fewer are joined at a time.
const PAIR_BYTES_MIN: u64 = 8 << 20;

/// What a row of a build takes beside its values: a place in the table, a link, the end of its key.
const BUILD_ROW_BYTES: u64 = 32;

impl Run<'_> {
    /// Whether a build may be divided: one probe asks for it, of the streamed pipeline, and what the
    /// probe means of a row is decided by the rows of equal keys. Others that ask may be left out.
    pub(crate) fn may_divide(&self, build: usize) -> bool {
        let is_of = |probe: &&Probe| probe.build == build;
        let streamed: Vec<_> = probes(&self.program.pipeline).filter(is_of).collect();
        let of_builds = self.program.builds.iter().filter_map(BuildPlan::pipeline);
        let is_alone = of_builds.flat_map(probes).filter(is_of).all(|probe| probe.is_optional);
        let may = |kind: ProbeKind| {
            use ProbeKind::{Anti, Inner, Left, Semi};
            matches!(kind, Inner | Left | Semi | Anti)
        };
        is_alone && matches!(streamed.as_slice(), [probe] if may(probe.kind))
    }

    /// The rows of a build: in memory if so many bytes are enough, divided by their keys if not. And the
    /// bytes that were read.
    pub(crate) fn gather(
        &self,
        plan: &BuildPlan,
        before: &[Slot],
        held_bytes_max: u64,
    ) -> Result<(Gathered, u64), RunError> {
        let rows = plan.rows().ok_or_else(|| internal("rows of a build without a pipeline"))?;
        let settings = Settings { processor: Processor::Cpu, ..self.request.settings.clone() };
        let streaming = Streaming {
            pipeline: &rows,
            table: self.table(&rows),
            builds: before,
            settings: &settings,
        };
        let (streamed, gathered) = self.divided(&streaming, &plan.keys, held_bytes_max)?;
        Ok((gathered, streamed.done.race.bytes_by_path.total()))
    }

    /// What a pipeline that ends in rows gives, its first columns the keys.
    fn divided(
        &self,
        streaming: &Streaming<'_>,
        keys: &[Field],
        held_bytes_max: u64,
    ) -> Result<(Streamed, Gathered), RunError> {
        let memory = self.runner.operator_memory();
        let threads = streaming.settings.threads.max(1);
        let dividing = Dividing { keys: keys.to_vec(), level: 0, threads, held_bytes_max };
        let divider =
            Divider::new(dividing, &memory, memory.limit_bytes() / 2, self.runner.spill_folder())?;
        let streamed = self.stream_over(streaming, &|batch| divider.push(batch));
        // What stopped the run is the better explanation of its end.
        let gathered = divider.finish();
        match (streamed, gathered) {
            (Ok(streamed), Ok(gathered)) => Ok((streamed, gathered)),
            (_, Err(error)) | (Err(error), _) => Err(error),
        }
    }

    /// Streams a pipeline whose step number `step` probes a build that is divided.
    pub(crate) fn join_partitions(
        &self,
        streaming: &Streaming<'_>,
        step: usize,
        emit: Emit<'_>,
    ) -> Result<Streamed, RunError> {
        let Cut { head, mut tail } = streaming.pipeline.cut(&self.program.builds, step)?;
        let Some(Step::Probe(probe)) = tail.steps.first().cloned() else {
            return Err(internal("a join without a probe"));
        };
        let Slot::Divided(build) = &streaming.builds[probe.build] else {
            return Err(internal("a join of a build that is not divided"));
        };
        let plan = &self.program.builds[probe.build];
        let rows = Streaming { pipeline: &head, ..*streaming };
        let (mut streamed, Gathered::Divided(rows)) = self.divided(&rows, &plan.keys, 0)? else {
            return Err(internal("rows that were to be divided and are not"));
        };
        let ending = Ending::of(self, &mut tail)?;
        let settings = match streaming.settings.processor {
            // A kernel is not made for each of them.
            Processor::Auto => Settings { processor: Processor::Cpu, ..streaming.settings.clone() },
            _ => streaming.settings.clone(),
        };
        let memory = self.runner.operator_memory();
        let pairs_bytes = memory.limit_bytes() / 4 * 3;
        let threads = (pairs_bytes / PAIR_BYTES_MIN).clamp(1, settings.threads.max(1) as u64);
        let pairs = Pairs {
            run: self,
            builds: streaming.builds,
            plan,
            probe: &probe,
            tail: &tail,
            settings: Settings { threads: 1, ..settings },
            share_bytes: pairs_bytes / threads,
            memory,
            ending: &ending,
            emit: &limited(&tail.sink, emit),
            spilled_bytes: AtomicU64::new(file_bytes(build) + file_bytes(&rows)),
            enough: AtomicBool::new(false),
        };
        pairs.join_all(build, &rows, threads as usize)?;
        let spilled_bytes = pairs.spilled_bytes.load(Ordering::Relaxed);
        let started = Instant::now();
        ending.finish(self, streaming.settings, emit)?;
        streamed.done.finish_ms += started.elapsed().as_secs_f64() * 1e3;
        streamed.done.spilled_bytes += spilled_bytes;
        Ok(streamed)
    }
}

fn internal(cause: &str) -> RunError {
    ExecError::Internal(cause.into()).into()
}

/// Rows up to a limit of all pairs.
fn limited<'e>(
    sink: &Sink,
    emit: Emit<'e>,
) -> impl Fn(RecordBatch) -> bool + Send + Sync + use<'e> {
    let limit = match sink {
        Sink::Rows { limit, .. } => *limit,
        _ => None,
    };
    let emitted = Mutex::new(0);
    move |batch: RecordBatch| {
        let Some(limit) = limit else { return emit(batch) };
        let mut emitted = emitted.lock();
        let wanted = (limit - *emitted).min(batch.num_rows() as u64);
        *emitted += wanted;
        let is_wanted = *emitted < limit;
        drop(emitted);
        (wanted == 0 || emit(batch.slice(0, wanted as usize))) && is_wanted
    }
}

/// What becomes of what the pairs put out.
enum Ending {
    /// They are the answer.
    Rows,
    /// Partial states.
    Groups(Box<Mutex<PartialMerge>>),
    /// First rows of each, ordered again by a pipeline of their own.
    First(Mutex<Vec<RecordBatch>>, Box<Pipeline>),
}

impl Ending {
    /// For a sink, which is changed where pairs must put out something else.
    fn of(run: &Run<'_>, tail: &mut Pipeline) -> Result<Self, RunError> {
        let registers = tail.registers(&run.program.builds)?;
        match &mut tail.sink {
            Sink::Rows { .. } => Ok(Self::Rows),
            Sink::Aggregate { output: AggregateOutput::Partial, .. } => Ok(Self::Rows),
            Sink::Aggregate { output, .. } => {
                *output = AggregateOutput::Partial;
                let bound = bind_merge(tail, &registers)?;
                let account = run.runner.groups_above();
                let options = run.runner.group_options(&account, 1, run.request.token);
                let merge = PartialMerge::new(&bound, &options)?;
                Ok(Self::Groups(Box::new(Mutex::new(merge))))
            }
            Sink::Sorted { columns, order, limit } => {
                let fields = columns.iter().map(|column| {
                    Field::new(&column.name, column.expr.data_type(), column.expr.nullable())
                });
                let source = Source {
                    kind: SourceKind::Batches,
                    table_id: 0,
                    table: tail.source.table.clone(),
                    ordinals: (0..columns.len()).collect(),
                    columns: fields.collect(),
                };
                let columns = all_columns(&source);
                let sink = Sink::Sorted { columns, order: order.clone(), limit: *limit };
                let again = Pipeline { source, steps: Vec::new(), sink };
                Ok(Self::First(Mutex::default(), Box::new(again)))
            }
            Sink::Build { .. } => Err(internal("a streamed pipeline that ends in a build")),
        }
    }

    /// Takes what a pair puts out.
    fn take(&self, batch: RecordBatch, emit: Emit<'_>) -> Result<bool, RunError> {
        match self {
            Self::Rows => Ok(emit(batch)),
            Self::Groups(merge) => Ok(merge.lock().push(&batch).map(|()| true)?),
            Self::First(batches, _) => {
                batches.lock().push(batch);
                Ok(true)
            }
        }
    }

    /// After the last pair.
    fn finish(self, run: &Run<'_>, settings: &Settings, emit: Emit<'_>) -> Result<(), RunError> {
        match self {
            Self::Rows => Ok(()),
            Self::Groups(merge) => Ok(merge.into_inner().finish(emit)?),
            Self::First(batches, again) => {
                let table = batch_table(&again.source, batches.into_inner().into_iter().map(Ok));
                let settings = Settings { processor: Processor::Cpu, ..settings.clone() };
                let streaming =
                    Streaming { pipeline: &again, table: &table, builds: &[], settings: &settings };
                run.stream_over(&streaming, emit)?.emit_rest(emit)
            }
        }
    }
}

/// The columns of a source, as they are.
fn all_columns(source: &Source) -> Vec<NamedExpr> {
    let column = |(index, field): (usize, &Field)| NamedExpr {
        name: field.name.clone(),
        expr: source.register(index),
    };
    source.columns.iter().enumerate().map(column).collect()
}

/// Batches as the table of a source.
fn batch_table(
    source: &Source,
    batches: impl Iterator<Item = Result<RecordBatch, ProducerError>> + Send + 'static,
) -> StreamTable {
    let fields: Vec<_> = source.columns.iter().map(arrow_field).collect();
    let table = BatchTable::new(&source.table, &Schema::new(fields), Ready(batches));
    StreamTable::new(&source.table, Arc::new(table))
}

/// All pairs of a join, and what joining them takes.
struct Pairs<'a> {
    run: &'a Run<'a>,
    builds: &'a [Slot],
    plan: &'a BuildPlan,
    probe: &'a Probe,
    tail: &'a Pipeline,
    settings: Settings,
    memory: Arc<MemoryBudget>,
    /// What one thread may take of it.
    share_bytes: u64,
    ending: &'a Ending,
    emit: Emit<'a>,
    spilled_bytes: AtomicU64,
    /// Nobody wants more, or something has failed.
    enough: AtomicBool,
}

/// A partition of each side.
#[derive(Clone, Copy)]
struct Pair<'a> {
    build: &'a Blocks,
    rows: &'a Blocks,
    level: u32,
}

impl Pairs<'_> {
    fn join_all(&self, build: &[Part], rows: &[Part], threads: usize) -> Result<(), RunError> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<(), RunError> {
            headrace_io::block_signals();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let (Some(build), Some(rows)) = (build.get(number), rows.get(number)) else {
                    return Ok(());
                };
                let pair = Pair { build: build.blocks(), rows: rows.blocks(), level: 0 };
                let joined = self.join(pair);
                if joined.is_err() {
                    self.enough.store(true, Ordering::Relaxed);
                }
                joined?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let panicked = |_| Err(RunError::Thread("joining partitions panicked".into()));
            let joined = workers.into_iter().map(|worker| worker.join().unwrap_or_else(panicked));
            // All are waited for, whatever the first says.
            joined.collect::<Vec<_>>().into_iter().collect()
        })
    }

    fn join(&self, pair: Pair<'_>) -> Result<(), RunError> {
        let Pair { build, rows, .. } = pair;
        if rows.is_empty() || self.enough.load(Ordering::Relaxed) {
            return Ok(());
        }
        if memory_bytes(build) <= self.share_bytes {
            return self.probe(build, rows);
        }
        if pair.level + 1 < LEVELS {
            let level = pair.level + 1;
            let divided = self.divide(build, level)?;
            // What is one key stays one partition.
            if divided.iter().all(|part| part.blocks().rows() < build.rows()) {
                let rows = self.divide(rows, level)?;
                let mut parts = divided.iter().zip(&rows);
                return parts.try_for_each(|(build, rows)| {
                    self.join(Pair { build: build.blocks(), rows: rows.blocks(), level })
                });
            }
        }
        self.join_pieces(pair)
    }

    /// A partition that cannot be divided: the rows of the other side meet it piece by piece. Where a
    /// row's fate is decided by all pieces, those without a match go on to the next one.
    fn join_pieces(&self, pair: Pair<'_>) -> Result<(), RunError> {
        let kind = self.probe.kind;
        let inner = self.tail_as(ProbeKind::Inner);
        // With the memory that they hold.
        let mut rest: Option<(Vec<Part>, Blocks)> = None;
        for piece in pair.build.pieces(self.share_bytes / 4) {
            let (_held, table) = self.build_of(&piece)?;
            let rows = rest.as_ref().map_or(pair.rows, |(_, rows)| rows);
            match kind {
                ProbeKind::Inner => self.emit_joined(self.tail, &table, pair.rows)?,
                ProbeKind::Left => self.emit_joined(&inner, &table, pair.rows)?,
                ProbeKind::Semi => self.emit_joined(self.tail, &table, rows)?,
                _ => {}
            }
            if kind != ProbeKind::Inner {
                let unmatched = self.unmatched(&table, rows)?;
                let whole = Blocks::of_all(&unmatched);
                rest = Some((unmatched, whole));
            }
        }
        match (kind, rest) {
            (ProbeKind::Left | ProbeKind::Anti, Some((_held, rows))) => {
                let (_, nothing) = self.build_of(&Blocks::default())?;
                self.emit_joined(self.tail, &nothing, &rows)
            }
            _ => Ok(()),
        }
    }

    /// The tail with another kind of join.
    fn tail_as(&self, kind: ProbeKind) -> Pipeline {
        let mut tail = self.tail.clone();
        tail.steps[0] = Step::Probe(Probe { kind, ..self.probe.clone() });
        tail
    }

    /// The rows that have no match in a build.
    fn unmatched(&self, table: &Arc<BuildTable>, rows: &Blocks) -> Result<Vec<Part>, RunError> {
        let source = self.tail.source.clone();
        let columns = all_columns(&source);
        let steps = vec![Step::Probe(Probe { kind: ProbeKind::Anti, ..self.probe.clone() })];
        let pipeline = Pipeline { steps, sink: Sink::Rows { columns, limit: None }, source };
        self.divide_with(0, |divider| {
            let emit = |batch| divider.push(batch);
            self.stream(&pipeline, table, rows, &emit)?.emit_rest(&emit)
        })
    }

    /// Divides what was one partition.
    fn divide(&self, blocks: &Blocks, level: u32) -> Result<Vec<Part>, RunError> {
        self.divide_with(level, |divider| {
            for batch in blocks.batches() {
                if !divider.push(batch?) {
                    break;
                }
            }
            Ok(())
        })
    }

    fn divide_with(
        &self,
        level: u32,
        push: impl FnOnce(&Divider<'_>) -> Result<(), RunError>,
    ) -> Result<Vec<Part>, RunError> {
        let keys = self.plan.keys.clone();
        let dividing = Dividing { keys, level, threads: 1, held_bytes_max: 0 };
        let bytes = self.share_bytes / 4;
        let divider = Divider::new(dividing, &self.memory, bytes, self.run.runner.spill_folder())?;
        push(&divider)?;
        match divider.finish()? {
            Gathered::Divided(parts) => {
                self.spilled_bytes.fetch_add(file_bytes(&parts), Ordering::Relaxed);
                Ok(parts)
            }
            Gathered::Held(..) => Err(internal("rows that were to be divided and are not")),
        }
    }

    /// Makes the build of a partition, and streams the other side's over it.
    fn probe(&self, build: &Blocks, rows: &Blocks) -> Result<(), RunError> {
        let (_held, table) = self.build_of(build)?;
        self.emit_joined(self.tail, &table, rows)
    }

    /// Streams rows through the tail.
    fn emit_joined(
        &self,
        tail: &Pipeline,
        table: &Arc<BuildTable>,
        rows: &Blocks,
    ) -> Result<(), RunError> {
        let failed = OnceLock::new();
        let emit = |batch| {
            let wants_more = match self.ending.take(batch, self.emit) {
                Ok(wants_more) => wants_more,
                Err(error) => {
                    let _ = failed.set(error);
                    false
                }
            };
            if !wants_more {
                self.enough.store(true, Ordering::Relaxed);
            }
            wants_more
        };
        let streamed = self.stream(tail, table, rows, &emit);
        let streamed = streamed.and_then(|streamed| streamed.emit_rest(&emit));
        failed.into_inner().map_or(streamed, Err)
    }

    /// Streams rows over the build of their partition.
    fn stream(
        &self,
        pipeline: &Pipeline,
        table: &Arc<BuildTable>,
        rows: &Blocks,
        emit: Emit<'_>,
    ) -> Result<Streamed, RunError> {
        let mut builds = self.builds.to_vec();
        builds[self.probe.build] = Slot::Made(Arc::clone(table));
        let batches = rows.batches().map(|batch| batch.map_err(ProducerError::from));
        let table = batch_table(&pipeline.source, batches);
        let (builds, settings) = (&builds[..], &self.settings);
        let streaming = Streaming { pipeline, table: &table, builds, settings };
        let streamed = self.run.stream_over(&streaming, emit)?;
        self.spilled_bytes.fetch_add(streamed.done.spilled_bytes, Ordering::Relaxed);
        Ok(streamed)
    }

    /// The build of a partition, with the memory that it takes.
    fn build_of(&self, rows: &Blocks) -> Result<(Reservation, Arc<BuildTable>), RunError> {
        let mut held = self.memory.reserve(MemoryUse::Operators, memory_bytes(rows))?;
        let batches = rows.batches().collect::<Result<Vec<_>, _>>()?;
        let BuildPlan { name, keys, payload, .. } = self.plan;
        let options =
            BuildOptions { nulls_equal: self.probe.null_equal, ..BuildOptions::default() };
        let table = BuildTable::from_batches(name, keys, payload, &batches, options)?;
        // What it was made from goes.
        held.resize(table.bytes.min(held.bytes()))?;
        Ok((held, Arc::new(table)))
    }
}

/// What making a build of a partition takes: its batches, their columns, and the table of these.
fn memory_bytes(rows: &Blocks) -> u64 {
    4 * rows.memory_bytes() + BUILD_ROW_BYTES * rows.rows()
}
