//! Joins by partitions, where a build does not fit memory.
//!
//! ```text
//! rows of the build ──────────────► partitions ─┐
//!                                               ├─ pair by pair ─► probe ─► steps after ─► sink
//! source ─► steps before the probe ► partitions ─┘
//! ```
//!
//! Which stages these are says [`headrace_ir::divide`]. A row meets the rows of its own partition alone, so
//! each pair is a pipeline like any other, with a build that fits. Several pairs
//! are joined at a time, each by one thread. A partition that is too large still is divided again; one
//! key whose rows are too large alone is joined piece by piece where that means the same. Partial
//! states of groups, and first rows of an order, are put together at the end.
//!
//! When one key's rows are joined piece by piece, rows without a match go on to the next piece.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arrow_array::RecordBatch;
use headrace_columns::hash::LEVELS;
use headrace_flow::RaceReport;
use headrace_format::batches::ProducerError;
use headrace_io::{MemoryBudget, MemoryUse, Reservation};
use headrace_ir::{
    AggregateOutput, Input, NamedExpr, Pipeline, Probe, ProbeKind, Sink, Source, Step,
};
use headrace_pipeline::bind::bind_merge;
use headrace_pipeline::build::BuildOptions;
use headrace_pipeline::partial::PartialMerge;
use headrace_pipeline::state::Output;
use headrace_pipeline::{BuildTable, ExecError, WhyNot};
use headrace_spill::{Blocks, Part};
use parking_lot::Mutex;

use crate::builds::build_of;
use crate::error::RunError;
use crate::graph::{Graph, StageResult};
use crate::parts::{Divider, Dividing, Gathered, file_bytes};
use crate::report::StepRows;
use crate::run::{Run, Streamed, Streaming, ms_since, on_cpu};
use crate::settings::{Processor, Settings};
use crate::table::StreamTable;
use crate::task::{Done, Emit, Outlet, Scope};

/// With less memory for each pair, fewer are joined at a time.
const PAIR_BYTES_MIN: u64 = 8 << 20;

/// What a row of a build takes beside its values: a place in the table, a link, the end of its key.
const BUILD_ROW_BYTES: u64 = 32;

impl Run<'_> {
    /// The rows of a pipeline that ends in a build or in partitions: in memory if so many bytes are
    /// enough, divided by their keys if not.
    pub(crate) fn divided(
        &self,
        graph: &Graph<'_>,
        pipeline: &Pipeline,
        settings: &Settings,
        held_bytes_max: u64,
    ) -> Result<(Streamed, Gathered), RunError> {
        let (keys, payload) = pipeline.build_columns().unwrap_or_default();
        let (keys, payload) = (keys.to_vec(), payload.to_vec());
        let fields = keys.iter().map(NamedExpr::field).collect();
        let sink = Sink::Partition { keys, payload };
        let rows = Pipeline { sink, ..pipeline.clone() };
        let memory = self.runner.operator_memory();
        let threads = settings.threads.max(1);
        let dividing = Dividing { keys: fields, level: 0, threads, held_bytes_max };
        let divider =
            Divider::new(dividing, &memory, memory.limit_bytes() / 2, self.runner.spill_folder())?;
        let emit = |batch| divider.push(batch);
        let mut streamed =
            self.stream_over(graph, &rows, settings, Outlet::from(&emit as Emit<'_>));
        if let Ok(streamed) = &mut streamed
            && let Output::Batches(rest) = &mut streamed.done.output
        {
            let _ = std::mem::take(rest).into_iter().all(|batch| divider.push(batch));
        }
        // What stopped the run is the better explanation of its end.
        let gathered = divider.finish();
        match (streamed, gathered) {
            (Ok(mut streamed), Ok(gathered)) => {
                if let Gathered::Divided(parts) = &gathered {
                    streamed.done.spilled_bytes += file_bytes(parts);
                }
                Ok((streamed, gathered))
            }
            (_, Err(error)) | (Err(error), _) => Err(error),
        }
    }

    /// Streams a pipeline over the partitions of a stage, whose first step probes the same partition of
    /// another.
    pub(crate) fn join_partitions(
        &self,
        graph: &Graph<'_>,
        pipeline: &Pipeline,
        rows: usize,
        settings: &Settings,
        emit: Emit<'_>,
    ) -> Result<Streamed, RunError> {
        let mut tail = pipeline.clone();
        let Some(Step::Probe(probe)) = tail.steps.first().cloned() else {
            return Err(internal("a join without a probe"));
        };
        let partitions = |stage: usize| match graph.result(stage) {
            Some(StageResult::Partitions(parts)) => Ok(Arc::clone(parts)),
            _ => Err(internal("a join of rows that are not divided")),
        };
        let (build, rows) = (partitions(probe.build)?, partitions(rows)?);
        let ending = Ending::of(self, graph, &mut tail)?;
        let one = match settings.processor {
            // A kernel is not made for each of them.
            Processor::Auto => on_cpu(settings),
            _ => settings.clone(),
        };
        let memory = self.runner.operator_memory();
        let pairs_bytes = memory.limit_bytes() / 4 * 3;
        let threads = (pairs_bytes / PAIR_BYTES_MIN).clamp(1, one.threads.max(1) as u64);
        let pairs = Pairs {
            run: self,
            builds: graph.builds()?,
            plan: graph.stage(probe.build)?,
            probe: &probe,
            tail: &tail,
            settings: Settings { threads: 1, ..one },
            share_bytes: pairs_bytes / threads,
            memory,
            ending: &ending,
            emit: &limited(&tail.sink, emit),
            spilled_bytes: AtomicU64::new(0),
            rows_in: AtomicU64::new(0),
            steps: Mutex::default(),
            processor: OnceLock::new(),
            enough: AtomicBool::new(false),
        };
        pairs.join_all(&build, &rows, threads as usize)?;
        let spilled_bytes = pairs.spilled_bytes.load(Ordering::Relaxed);
        let scope = Scope { rows: pairs.rows_in.load(Ordering::Relaxed), ..Scope::default() };
        let steps = std::mem::take(&mut *pairs.steps.lock());
        let (processor, why_not) = pairs.processor.get().cloned().unwrap_or(("cpu", None));
        let started = Instant::now();
        ending.finish(self, settings, emit)?;
        let done = Done {
            output: Output::Batches(Vec::new()),
            scope,
            race: RaceReport::default(),
            bind_ms: 0.0,
            finish_ms: ms_since(started),
            spilled_bytes,
            groups_brought: 0,
            gpus: Vec::new(),
            steps,
        };
        Ok(Streamed { done, processor, why_not })
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
    fn of(run: &Run<'_>, graph: &Graph<'_>, tail: &mut Pipeline) -> Result<Self, RunError> {
        let registers = tail.registers(&graph.program().stages)?;
        match &mut tail.sink {
            Sink::Rows { .. } | Sink::Partition { .. } | Sink::Windows(_) => Ok(Self::Rows),
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
                let fields = columns.iter().map(NamedExpr::field).collect();
                let source = Source::of_stage(Input::Batches(0), &tail.source.table, fields);
                let columns = source.all_columns();
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
                let table =
                    StreamTable::of_source(&again.source, batches.into_inner().into_iter().map(Ok));
                let streaming = Streaming {
                    pipeline: &again,
                    table: &table,
                    builds: &[],
                    settings: &on_cpu(settings),
                    groups: run.groups,
                };
                run.stream(&streaming, emit.into())?.emit_rest(emit)
            }
        }
    }
}

/// All pairs of a join, and what joining them takes.
struct Pairs<'a> {
    run: &'a Run<'a>,
    builds: Vec<Arc<BuildTable>>,
    /// The stage of the build.
    plan: &'a Pipeline,
    probe: &'a Probe,
    tail: &'a Pipeline,
    settings: Settings,
    memory: Arc<MemoryBudget>,
    /// What one thread may take of it.
    share_bytes: u64,
    ending: &'a Ending,
    emit: Emit<'a>,
    spilled_bytes: AtomicU64,
    rows_in: AtomicU64,
    steps: Mutex<Vec<StepRows>>,
    /// That of the first pair.
    processor: OnceLock<(&'static str, Option<WhyNot>)>,
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
        let panicked = |_| Err(RunError::Thread("joining partitions panicked".into()));
        let mut joined = headrace_io::on_threads(threads, work).into_iter();
        joined.try_for_each(|joined| joined.unwrap_or_else(panicked))
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
        let columns = source.all_columns();
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
        let (keys, _) = self.plan.build_columns().unwrap_or_default();
        let keys = keys.iter().map(NamedExpr::field).collect();
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
        let mut builds = self.builds.clone();
        builds[self.probe.build] = Arc::clone(table);
        let batches = rows.batches().map(|batch| batch.map_err(ProducerError::from));
        let table = StreamTable::of_source(&pipeline.source, batches);
        let (builds, settings, groups) = (&builds[..], &self.settings, self.run.groups);
        let streaming = Streaming { pipeline, table: &table, builds, settings, groups };
        let streamed = self.run.stream(&streaming, emit.into())?;
        self.spilled_bytes.fetch_add(streamed.done.spilled_bytes, Ordering::Relaxed);
        self.rows_in.fetch_add(streamed.done.scope.rows, Ordering::Relaxed);
        self.count_steps(&streamed.done.steps);
        let _ = self.processor.set((streamed.processor, streamed.why_not.clone()));
        Ok(streamed)
    }

    /// Adds up the rows of all pairs, in the order of steps that the first had.
    fn count_steps(&self, steps: &[StepRows]) {
        let mut all = self.steps.lock();
        if all.is_empty() {
            *all = steps.to_vec();
            return;
        }
        for sum in all.iter_mut() {
            let rows = steps.iter().find(|step| step.step == sum.step).and_then(|step| step.rows);
            sum.rows = sum.rows.zip(rows).map(|(sum, rows)| sum + rows);
        }
    }

    /// The build of a partition, with the memory that it takes.
    fn build_of(&self, rows: &Blocks) -> Result<(Reservation, Arc<BuildTable>), RunError> {
        let mut held = self.memory.reserve(MemoryUse::Operators, memory_bytes(rows))?;
        let batches = rows.batches().collect::<Result<Vec<_>, _>>()?;
        let options =
            BuildOptions { nulls_equal: self.probe.null_equal, ..BuildOptions::default() };
        let table = build_of(self.plan, &batches, options)?;
        // What it was made from goes.
        held.resize(table.bytes.min(held.bytes()))?;
        Ok((held, Arc::new(table)))
    }
}

/// What making a build of a partition takes: its batches, their columns, and the table of these.
fn memory_bytes(rows: &Blocks) -> u64 {
    4 * rows.memory_bytes() + BUILD_ROW_BYTES * rows.rows()
}
