//! A whole program: builds first, then the streamed pipeline.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arrow_array::RecordBatch;
use headrace_flow::CancelToken;
use headrace_format::arrow::ir_type;
use headrace_io::Kept;
use headrace_ir::{BuildPlan, BuildSource, Pipeline, Program, Scalar, Sink, Source, Step};
use headrace_pipeline::build::{BuildIndex, BuildOptions};
use headrace_pipeline::state::Output;
use headrace_pipeline::{BuildTable, ExecError, WhyNot};

use crate::builds::{BuildKey, HeldBuild};
use crate::error::{ErrorClass, RunError};
use crate::report::RunReport;
use crate::runner::Runner;
use crate::settings::{Fallback, Processor, Settings};
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

/// The processor that takes a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    Cpu,
    Cuda,
}

struct Built {
    held: Arc<Kept<HeldBuild>>,
    cached: bool,
    bytes: u64,
}

impl Built {
    fn describe(&self) -> String {
        let table = &self.held.table;
        let index = match &table.index {
            BuildIndex::Direct { domain, .. } => format!("direct over {domain} keys"),
            BuildIndex::Hash(_) => "hashed".to_string(),
        };
        let duplicates = if table.unique { "" } else { " with duplicates" };
        let cached = if self.cached { ", cached" } else { "" };
        format!(
            "{}: {} rows{duplicates}, {index}, {}{cached}",
            table.name,
            table.rows,
            headrace_io::decimal_bytes(table.bytes)
        )
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
        let program = checked(request)?;
        Run { request, program: &program, runner: self }.run(emit)
    }
}

/// A program that travelled may meet other tables than those it was made for, and values that
/// its parameters cannot have.
fn checked<'a>(request: &Request<'a>) -> Result<Cow<'a, Program>, RunError> {
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
    lowered(request.program, request.parameters)
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
        (RunError::WhyNot(reason), _) => Some(reason.clone()),
        (_, ErrorClass::OutOfMemory | ErrorClass::Device) => {
            // Remedies follow on lines of their own; EXPLAIN has room for the cause.
            let text = error.to_string();
            Some(WhyNot::new(text.lines().next().unwrap_or("the GPU failed")))
        }
        _ => None,
    }
}

struct Run<'a> {
    request: &'a Request<'a>,
    /// The request's, with values in place of its parameters.
    program: &'a Program,
    runner: &'a Runner,
}

impl Run<'_> {
    fn run(&self, emit: Emit<'_>) -> Result<RunReport, RunError> {
        let started = Instant::now();
        let built = self.builds()?;
        let build_ms = started.elapsed().as_secs_f64() * 1e3;
        let builds: Vec<_> = built.iter().map(|b| Arc::clone(&b.held.table)).collect();
        let (done, chosen, reason) = self.stream(&builds, emit)?;
        let pipeline = &self.program.pipeline;
        let report = RunReport {
            table: pipeline.source.table.clone(),
            processor: match chosen {
                Chosen::Cpu => "cpu".into(),
                Chosen::Cuda => "cuda".into(),
            },
            processor_why_not: reason.map(|r| r.to_string()),
            rows_in: done.scope.rows,
            rows_out: 0,
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
            race: done.race,
        };
        match done.output {
            Output::Batches(batches) => {
                let _ = batches.into_iter().all(emit);
                Ok(report)
            }
            Output::Build(_) => {
                Err(ExecError::Internal("a streamed pipeline that ends in a build".into()).into())
            }
        }
    }

    /// The streamed pipeline on the wanted processor, or on the CPU if that is allowed.
    fn stream(
        &self,
        builds: &[Arc<BuildTable>],
        emit: Emit<'_>,
    ) -> Result<(Done, Chosen, Option<WhyNot>), RunError> {
        let settings = self.request.settings;
        let task = Task {
            pipeline: &self.program.pipeline,
            table: self.table(&self.program.pipeline),
            builds,
            build_options: BuildOptions::default(),
            settings,
            runner: self.runner,
            threads: settings.threads,
            token: self.request.token,
            emit,
        };
        if matches!(settings.processor, Processor::Cpu | Processor::Off) {
            return Ok((cpu::run(&task)?, Chosen::Cpu, None));
        }
        let emitted = AtomicBool::new(false);
        let watched = |batch| {
            emitted.store(true, Ordering::Relaxed);
            emit(batch)
        };
        let error = match cuda::run(&Task { emit: &watched, ..task }) {
            Ok(done) => return Ok((done, Chosen::Cuda, None)),
            Err(error) => error,
        };
        let must = settings.processor == Processor::Cuda && settings.fallback == Fallback::Forbid;
        match gpu_refusal(&error) {
            Some(reason) if !must && !emitted.into_inner() => {
                Ok((cpu::run(&task)?, Chosen::Cpu, Some(reason)))
            }
            _ => Err(error),
        }
    }

    fn table(&self, pipeline: &Pipeline) -> &StreamTable {
        &self.request.tables[pipeline.source.table_id]
    }

    /// All builds: those of earlier runs first, the others in groups that are made at the same
    /// time. A group ends where a build probes one of its members.
    fn builds(&self) -> Result<Vec<Built>, RunError> {
        let keys = self.keys();
        let plans = &self.program.builds;
        let mut built: Vec<Built> = Vec::with_capacity(plans.len());
        while built.len() < plans.len() {
            let first = built.len();
            let same_group = |i: &usize| probed(&plans[*i]).all(|probed| probed < first);
            let end = (first..plans.len()).take_while(same_group).last().map_or(first, |i| i + 1);
            let group = self.build_group(first..end, &built, &keys)?;
            built.extend(group);
        }
        Ok(built)
    }

    fn build_group(
        &self,
        group: Range<usize>,
        before: &[Built],
        keys: &[Option<BuildKey>],
    ) -> Result<Vec<Built>, RunError> {
        let before: Vec<_> = before.iter().map(|built| Arc::clone(&built.held.table)).collect();
        let mut found = Vec::with_capacity(group.len());
        for index in group.clone() {
            found.push(self.kept_build(index, keys[index].as_ref())?);
        }
        let missing: Vec<_> = group.clone().filter(|i| found[i - group.start].is_none()).collect();
        let threads_max = self.request.settings.threads.max(1);
        let threads = (threads_max / missing.len().max(1)).max(1);
        for some in missing.chunks(threads_max) {
            for (&index, made) in some.iter().zip(self.make_builds(some, &before, threads)?) {
                if let Some(key) = &keys[index] {
                    self.runner.builds().put(key.clone(), &made.held);
                }
                found[index - group.start] = Some(made);
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// A build of an earlier run. Its table is not read again, but a file that is not what it
    /// was is the same error as if it were.
    fn kept_build(&self, build: usize, key: Option<&BuildKey>) -> Result<Option<Built>, RunError> {
        let Some(held) = key.and_then(|key| self.runner.builds().get(key)) else {
            return Ok(None);
        };
        if let Some(pipeline) = self.program.builds[build].pipeline() {
            self.table(pipeline).source().check_unchanged()?;
        }
        Ok(Some(Built { held, cached: true, bytes: 0 }))
    }

    fn make_builds(
        &self,
        wanted: &[usize],
        before: &[Arc<BuildTable>],
        threads: usize,
    ) -> Result<Vec<Built>, RunError> {
        if let [index] = wanted {
            return Ok(vec![self.build(*index, before, threads)?]);
        }
        std::thread::scope(|scope| {
            let handles: Vec<_> = wanted
                .iter()
                .map(|&index| scope.spawn(move || self.build(index, before, threads)))
                .collect();
            let joined = handles.into_iter().zip(wanted).map(|(handle, &index)| {
                let name = &self.program.builds[index].name;
                let panicked = |_| Err(RunError::Thread(format!("making build {name} panicked")));
                handle.join().unwrap_or_else(panicked)
            });
            joined.collect()
        })
    }

    /// What makes each build the same as one of an earlier run; `None` for those from child plans, or
    /// from inputs of which nothing is kept, and those that probe such.
    fn keys(&self) -> Vec<Option<BuildKey>> {
        let mut keys: Vec<Option<BuildKey>> = Vec::with_capacity(self.program.builds.len());
        for (index, plan) in self.program.builds.iter().enumerate() {
            let key = match &plan.source {
                BuildSource::Child(_) => None,
                BuildSource::Values(_) => Some(BuildKey::of_values(plan, self.nulls_equal(index))),
                BuildSource::Pipeline(pipeline) => {
                    let probed: Option<Vec<_>> = probed(plan).map(|i| keys[i].clone()).collect();
                    let table = self.table(pipeline);
                    probed.and_then(|p| BuildKey::of(pipeline, table, self.nulls_equal(index), p))
                }
            };
            keys.push(key);
        }
        keys
    }

    /// Whether a build is probed where NULL equals NULL.
    fn nulls_equal(&self, build: usize) -> bool {
        let of_builds = self.program.builds.iter().filter_map(BuildPlan::pipeline);
        of_builds.chain(std::iter::once(&self.program.pipeline)).flat_map(|p| &p.steps).any(
            |step| matches!(step, Step::Probe(probe) if probe.build == build && probe.null_equal),
        )
    }

    fn build(
        &self,
        index: usize,
        before: &[Arc<BuildTable>],
        threads: usize,
    ) -> Result<Built, RunError> {
        let plan = &self.program.builds[index];
        let options = BuildOptions { nulls_equal: self.nulls_equal(index), source_rows: None };
        let (table, bytes) = match &plan.source {
            BuildSource::Pipeline(pipeline) => {
                self.build_from_table(plan, pipeline, before, options, threads)?
            }
            BuildSource::Child(child) => {
                let children = self.request.children;
                let batches = children.get(*child).map(Vec::as_slice).unwrap_or_default();
                let keys = plan.keys.as_slice();
                let table =
                    BuildTable::from_batches(&plan.name, keys, &plan.payload, batches, options)?;
                (table, 0)
            }
            BuildSource::Values(rows) => {
                let table =
                    BuildTable::from_values(&plan.name, &plan.keys, &plan.payload, rows, options)?;
                (table, 0)
            }
        };
        let held = HeldBuild::new(table, self.runner.budget())?;
        Ok(Built { held, cached: false, bytes })
    }

    /// Builds are made on the CPU whatever runs the streamed pipeline.
    fn build_from_table(
        &self,
        plan: &BuildPlan,
        pipeline: &Pipeline,
        before: &[Arc<BuildTable>],
        options: BuildOptions,
        threads: usize,
    ) -> Result<(BuildTable, u64), RunError> {
        assert!(matches!(pipeline.sink, Sink::Build { .. }), "validated programs end so");
        let table = self.table(pipeline);
        let done = cpu::run(&Task {
            pipeline,
            table,
            builds: before,
            build_options: BuildOptions { source_rows: table.source().rows(), ..options },
            settings: self.request.settings,
            runner: self.runner,
            threads,
            token: self.request.token,
            emit: &|_| true,
        })?;
        match done.output {
            Output::Build(mut build) => {
                build.name.clone_from(&plan.name);
                Ok((build, done.race.bytes_by_path.total()))
            }
            Output::Batches(_) => {
                Err(ExecError::Internal(format!("build {} yielded rows", plan.name)).into())
            }
        }
    }
}

/// The builds that a build's own pipeline probes.
fn probed(plan: &BuildPlan) -> impl Iterator<Item = usize> + '_ {
    let steps = plan.pipeline().into_iter().flat_map(|pipeline| &pipeline.steps);
    steps.filter_map(|step| match step {
        Step::Probe(probe) => Some(probe.build),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use headrace_flow::RaceError;

    use super::*;

    #[test]
    fn what_the_gpu_lacks_the_cpu_does_and_what_is_wrong_stays_wrong() {
        let memory = ExecError::Memory {
            tier: "pinned host memory",
            what: "slots".into(),
            needed_bytes: 2,
            limit_bytes: 1,
        };
        let reason = gpu_refusal(&memory.into()).map(|reason| reason.0);
        assert!(reason.is_some_and(|reason| reason.contains("pinned host memory")));
        let source = "the GPU fell off the bus\n  hint: look at dmesg".into();
        let lost = RaceError::Device { chunk: Some(3), stage: "execution", source };
        let reason = gpu_refusal(&lost.into()).map(|reason| reason.0);
        assert!(reason.is_some_and(|r| r.contains("fell off") && !r.contains("hint")));
        let overflow = ExecError::Overflow { type_name: "Int32".into(), place: "a + b".into() };
        for error in [RunError::from(overflow), RaceError::Cancelled.into()] {
            assert!(gpu_refusal(&error).is_none(), "{error}");
        }
    }
}
