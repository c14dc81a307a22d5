//! A whole program: builds first, then the streamed pipeline.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use arrow_array::RecordBatch;
use headrace_flow::{CancelToken, ConsumerLimit};
use headrace_format::arrow::ir_type;
use headrace_io::MemoryBudget;
use headrace_ir::{Pipeline, Program, Scalar, Source, Step};
use headrace_pipeline::build::BuildOptions;
use headrace_pipeline::state::Output;
use headrace_pipeline::{ExecError, WhyNot};

use crate::builds::{Built, Slot, slot_tables};
use crate::error::{ErrorClass, RunError};
use crate::report::RunReport;
use crate::runner::Runner;
use crate::settings::{Fallback, Processor, Settings};
use crate::share::SharingRun;
use crate::table::StreamTable;
use crate::task::{Done, Emit, Task};
use crate::{cpu, cuda};

/// A program and all that it runs over.
pub struct Request<'a> {
    /// The program.
    pub program: &'a Program,
    /// A value for each of its parameters.
    pub parameters: &'a [Scalar],
    /// Its tables, by [`Source::table_id`].
    pub tables: &'a [Arc<StreamTable>],
    /// Rows of each child plan.
    pub children: &'a [Vec<RecordBatch>],
    /// How it is run.
    pub settings: &'a Settings,
    /// Ends it early.
    pub token: &'a CancelToken,
}

/// A pipeline of a run, about to be streamed.
#[derive(Clone, Copy)]
pub struct Streaming<'a> {
    /// The pipeline.
    pub pipeline: &'a Pipeline,
    /// Its table.
    pub table: &'a StreamTable,
    /// The run's builds.
    pub builds: &'a [Slot],
    /// How.
    pub settings: &'a Settings,
}

/// What came of it.
pub struct Streamed {
    /// What was done, and what is to be put out still.
    pub done: Done,
    /// The processor.
    processor: &'static str,
    /// Why not the one that comes first.
    why_not: Option<WhyNot>,
}

impl Streamed {
    /// Puts out what was left for the end.
    pub fn emit_rest(self, emit: Emit<'_>) -> Result<(), RunError> {
        match self.done.output {
            Output::Batches(batches) => {
                let _ = batches.into_iter().all(emit);
                Ok(())
            }
            Output::Build(_) => {
                Err(ExecError::Internal("a streamed pipeline that ends in a build".into()).into())
            }
        }
    }
}

impl Runner {
    /// Runs a program on the calling thread and threads of its own; finished batches go to `emit`
    /// in the sink's columns while it runs.
    ///
    /// # Errors
    /// [`RunError`]; rows that were emitted before it are not the answer. A program that does not
    /// fit its tables is refused before anything is read.
    pub fn run(&self, request: &Request<'_>, emit: Emit<'_>) -> Result<RunReport, RunError> {
        self.run_within(self.groups(), request, emit)
    }

    /// The same over rows of another run, which goes on meanwhile: its groups may be all that runs' memory has
    /// room for, so these have a share of their own.
    ///
    /// # Errors
    /// As [`run`](Self::run)'s.
    pub fn run_above(&self, request: &Request<'_>, emit: Emit<'_>) -> Result<RunReport, RunError> {
        self.run_within(&self.groups_above(), request, emit)
    }

    /// The same with groups that an account pays for.
    pub(crate) fn run_within(
        &self,
        groups: &Arc<MemoryBudget>,
        request: &Request<'_>,
        emit: Emit<'_>,
    ) -> Result<RunReport, RunError> {
        check(request)?;
        if let Some(distinct) = request.program.without_distinct()? {
            return self.run_distinct(request, &distinct, emit);
        }
        let program = lowered(request.program, request.parameters)?;
        let Settings { share, threads, .. } = request.settings;
        let sharing = share.as_ref().and_then(|share| {
            // Where nobody can be told, and nobody is seen, the run has what it wants.
            SharingRun::begin(share, *threads).ok()
        });
        let limit = sharing.map(|run| Arc::new(run) as _);
        Run { request, program: &program, runner: self, groups, limit }.run(emit)
    }
}

/// A program that travelled may meet other tables than those it was made for.
fn check(request: &Request<'_>) -> Result<(), RunError> {
    let internal = |cause: String| RunError::Exec(ExecError::Internal(cause));
    request.program.validate()?;
    for source in request.program.sources() {
        let Some(table) = request.tables.get(source.table_id) else {
            return Err(internal(format!(
                "there is no table {} ({})",
                source.table_id, source.table
            )));
        };
        check_columns(source, table).map_err(internal)?;
    }
    Ok(())
}

/// A program as the processors take it.
pub fn lowered<'a>(
    program: &'a Program,
    parameters: &[Scalar],
) -> Result<Cow<'a, Program>, RunError> {
    let program = program.with_values(parameters)?;
    if let Cow::Owned(joined) = program.without_grouping_sets()? {
        return Ok(Cow::Owned(joined));
    }
    Ok(program)
}

fn check_columns(source: &Source, table: &StreamTable) -> Result<(), String> {
    let (schema, kind) = (table.source().schema(), table.source().kind());
    if kind != source.kind {
        let (wanted, name) = (source.kind, &source.table);
        return Err(format!("{name} is handed over as {kind:?}, the program wants {wanted:?}"));
    }
    for (field, &ordinal) in source.columns.iter().zip(&source.ordinals) {
        let found = schema.fields().get(ordinal).and_then(|column| ir_type(column.data_type()));
        if found.as_ref() != Some(&field.data_type) {
            let found = found.map_or("nothing of the kind".into(), |found| found.to_string());
            return Err(format!(
                "column {ordinal} of {} is {found}, the program wants {} as {}",
                source.table, field.name, field.data_type
            ));
        }
    }
    Ok(())
}

/// Why the GPU did not run a pipeline that the CPU can run all the same: it does not take it, has
/// too little memory for it, or does not work.
fn gpu_refusal(error: &RunError) -> Option<WhyNot> {
    match (error, error.class()) {
        // What the rows alone tell comes from the run itself.
        (RunError::WhyNot(reason) | RunError::Exec(ExecError::WhyNot(reason)), _) => {
            Some(reason.clone())
        }
        (_, ErrorClass::OutOfMemory | ErrorClass::Device) => {
            // Remedies follow on lines of their own; EXPLAIN has room for the cause.
            let text = error.to_string();
            Some(WhyNot::new(text.lines().next().unwrap_or("the GPU failed")))
        }
        _ => None,
    }
}

/// A request on its way.
pub struct Run<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The request's, with values in place of its parameters.
    pub program: &'a Program,
    /// Caches and devices.
    pub runner: &'a Runner,
    /// How many threads may work at a time.
    pub limit: Option<Arc<dyn ConsumerLimit>>,
    /// What pays for its groups.
    pub groups: &'a Arc<MemoryBudget>,
}

impl Run<'_> {
    fn run(&self, emit: Emit<'_>) -> Result<RunReport, RunError> {
        let started = Instant::now();
        let rows_out = AtomicU64::new(0);
        let emit = |batch: RecordBatch| {
            rows_out.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
            emit(batch)
        };
        let built = self.builds()?;
        let build_ms = started.elapsed().as_secs_f64() * 1e3;
        let builds: Vec<_> = built.iter().map(|b| b.slot.clone()).collect();
        let pipeline = &self.program.pipeline;
        let streaming = Streaming {
            pipeline,
            table: self.table(pipeline),
            builds: &builds,
            settings: self.request.settings,
        };
        let streamed = self.stream_over(&streaming, &emit)?;
        let Streamed { done, processor, why_not } = &streamed;
        let mut report = RunReport {
            table: pipeline.source.table.clone(),
            processor: processor.to_string(),
            processor_why_not: why_not.as_ref().map(|r| r.to_string()),
            rows_in: done.scope.rows,
            wall_ms: started.elapsed().as_secs_f64() * 1e3,
            build_ms,
            builds_made: built.iter().filter(|b| !b.cached).count(),
            builds_cached: built.iter().filter(|b| b.cached).count(),
            builds: built.iter().map(Built::describe).collect(),
            build_bytes: built.iter().map(|b| b.bytes).sum(),
            pruned_batches: done.scope.pruned_batches,
            pruned_rows: done.scope.pruned_rows,
            bind_ms: done.bind_ms,
            finish_ms: done.finish_ms,
            spilled_bytes: done.spilled_bytes,
            race: done.race.clone(),
            ..RunReport::default()
        };
        streamed.emit_rest(&emit)?;
        report.rows_out = rows_out.into_inner();
        Ok(report)
    }

    /// Streams a pipeline over builds some of which may be divided.
    pub fn stream_over(
        &self,
        streaming: &Streaming<'_>,
        emit: Emit<'_>,
    ) -> Result<Streamed, RunError> {
        let is_divided = |step: &Step| match step {
            Step::Probe(probe) => matches!(streaming.builds[probe.build], Slot::Divided(_)),
            _ => false,
        };
        match streaming.pipeline.steps.iter().rposition(is_divided) {
            Some(step) => self.join_partitions(streaming, step, emit),
            None => self.stream(streaming, emit),
        }
    }

    /// Streams a pipeline on the wanted processor, or on the CPU if that is allowed.
    fn stream(&self, streaming: &Streaming<'_>, emit: Emit<'_>) -> Result<Streamed, RunError> {
        let Streaming { pipeline, table, builds, settings } = *streaming;
        let builds = slot_tables(builds)?;
        let task = Task {
            pipeline,
            table,
            builds: &builds,
            build_options: BuildOptions::default(),
            settings,
            runner: self.runner,
            groups: self.groups,
            threads: settings.threads,
            limit: self.limit.as_ref(),
            token: self.request.token,
            emit,
        };
        let (placements, source) = (self.runner.placements(), table.source());
        let on_cpu = |task: &Task<'_>, why_not| {
            let started = Instant::now();
            let done = cpu::run(task)?;
            if settings.processor == Processor::Auto {
                placements.ran_on_cores(pipeline, source, ms_since(started));
            }
            Ok(Streamed { done, processor: "cpu", why_not })
        };
        let is_auto = settings.processor == Processor::Auto;
        if matches!(settings.processor, Processor::Cpu | Processor::Off) {
            return on_cpu(&task, None);
        }
        if is_auto && let Err(reason) = self.runner.choose(pipeline, table, settings) {
            return on_cpu(&task, Some(reason));
        }
        let must = settings.processor == Processor::Cuda && settings.fallback == Fallback::Forbid;
        if !must && let Some(reason) = placements.refusal(pipeline, source) {
            return on_cpu(&task, Some(reason));
        }
        let started = Instant::now();
        let emitted = AtomicBool::new(false);
        let watched = |batch| {
            emitted.store(true, Ordering::Relaxed);
            emit(batch)
        };
        let error = match cuda::run(&Task { emit: &watched, ..task }) {
            Ok(done) => {
                if is_auto {
                    placements.ran_on_gpus(pipeline, source, ms_since(started));
                }
                return Ok(Streamed { done, processor: "cuda", why_not: None });
            }
            Err(error) => error,
        };
        if error.class() == ErrorClass::Unsupported {
            gpu_refusal(&error)
                .iter()
                .for_each(|why| placements.was_refused(pipeline, source, why));
        }
        match gpu_refusal(&error) {
            Some(reason) if !must && !emitted.into_inner() => on_cpu(&task, Some(reason)),
            _ => Err(error),
        }
    }

    /// The table that a pipeline streams.
    pub fn table(&self, pipeline: &Pipeline) -> &StreamTable {
        &self.request.tables[pipeline.source.table_id]
    }
}

fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use headrace_columns::ColumnError;
    use headrace_flow::RaceError;

    use super::*;

    #[test]
    fn what_the_gpu_lacks_the_cpu_does_and_what_is_wrong_stays_wrong() {
        let memory = ColumnError::Memory {
            tier: "pinned host memory",
            what: "slots".into(),
            needed_bytes: 2,
            limit_bytes: 1,
        };
        let reason = gpu_refusal(&ExecError::from(memory).into()).map(|reason| reason.0);
        assert!(reason.is_some_and(|reason| reason.contains("pinned host memory")));
        let source = "the GPU fell off the bus\n  hint: look at dmesg".into();
        let lost = RaceError::Device { chunk: Some(3), stage: "execution", source };
        let reason = gpu_refusal(&lost.into()).map(|reason| reason.0);
        assert!(reason.is_some_and(|r| r.contains("fell off") && !r.contains("hint")));
        let overflow = ColumnError::Overflow { type_name: "Int32".into(), place: "a + b".into() };
        let long = ExecError::WhyNot(WhyNot::new("a text has more than 31 bytes"));
        assert!(gpu_refusal(&long.into()).is_some_and(|reason| reason.0.contains("31 bytes")));
        for error in [RunError::from(ExecError::from(overflow)), RaceError::Cancelled.into()] {
            assert!(gpu_refusal(&error).is_none(), "{error}");
        }
    }
}
