//! A whole program: builds and partitions are made first, then the last stage is streamed.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use headrace_columns::values::values_batch;
use headrace_cuda::GroupsLeft;
use headrace_flow::{CancelToken, ConsumerLimit};
use headrace_format::arrow::ir_type;
use headrace_io::MemoryBudget;
use headrace_ir::{Input, Pipeline, Program, Scalar, Sink, Source};
use headrace_pipeline::build::BuildOptions;
use headrace_pipeline::state::Output;
use headrace_pipeline::{BuildTable, ExecError, WhyNot};

use crate::builds::Making;
use crate::error::{ErrorClass, RunError};
use crate::graph::{Graph, Made};
use crate::known::{KnownProgram, Lowered};
use crate::placement::OnCores;
use crate::rehearsal::{CORES_MS_MAX, CORES_MS_MIN};
use crate::report::{Place, RunReport, StageReport};
use crate::runner::Runner;
use crate::settings::{Processor, Settings};
use crate::share::SharingRun;
use crate::table::StreamTable;
use crate::task::{Done, Emit, OnDevice, Outlet, Task};
use crate::{cpu, cuda};

/// A program and all that it runs over.
pub struct Request<'a> {
    /// The program.
    pub program: &'a Program,
    /// A value for each of its parameters.
    pub parameters: &'a [Scalar],
    /// Its tables and batches, by the number in [`Input::Table`] and [`Input::Batches`].
    pub tables: &'a [Arc<StreamTable>],
    /// How it is run.
    pub settings: &'a Settings,
    /// Ends it early.
    pub token: &'a CancelToken,
    /// What earlier runs of it over these tables have found out, if anybody keeps that.
    pub known: Option<&'a KnownProgram>,
}

/// A pipeline about to be streamed over a table.
#[derive(Clone, Copy)]
pub struct Streaming<'a> {
    /// The pipeline.
    pub pipeline: &'a Pipeline,
    /// Its table.
    pub table: &'a StreamTable,
    /// The builds of the run, by stage.
    pub builds: &'a [Arc<BuildTable>],
    /// How.
    pub settings: &'a Settings,
    /// What pays for its groups.
    pub groups: &'a Arc<MemoryBudget>,
}

/// What came of it.
pub struct Streamed {
    /// What was done, and what is to be put out still.
    pub done: Done,
    /// The processor.
    pub processor: &'static str,
    /// Why not the one that comes first.
    pub why_not: Option<WhyNot>,
}

/// Something that was made on a processor.
pub trait Placed {
    /// The same, and why not where its input is.
    #[must_use]
    fn with_why_not(self, why_not: Option<WhyNot>) -> Self;
}

impl Placed for Streamed {
    fn with_why_not(self, why_not: Option<WhyNot>) -> Self {
        Self { why_not: self.why_not.or(why_not), ..self }
    }
}

impl Placed for Made {
    fn with_why_not(mut self, why_not: Option<WhyNot>) -> Self {
        let why_not = why_not.map(|why| why.to_string());
        self.report.processor_why_not = self.report.processor_why_not.take().or(why_not);
        self
    }
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

    /// The stage's report; `started` is when the stage began.
    pub fn report(&self, source: &Source, started: Instant) -> StageReport {
        let Done { scope, race, bind_ms, finish_ms, spilled_bytes, steps, .. } = &self.done;
        StageReport {
            table: source.table.clone(),
            processor: self.processor.to_string(),
            processor_why_not: self.why_not.as_ref().map(ToString::to_string),
            rows_in: scope.rows,
            steps: steps.clone(),
            wall_ms: ms_since(started),
            pruned_batches: scope.pruned_batches,
            pruned_rows: scope.pruned_rows,
            bind_ms: *bind_ms,
            finish_ms: *finish_ms,
            spilled_bytes: *spilled_bytes,
            groups_brought: self.done.groups_brought,
            gpus: self.done.gpus.clone(),
            race: race.clone(),
            ..StageReport::default()
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

    /// The same over batches of another run that goes on meanwhile. That run's groups may take all the
    /// memory that groups share, so this one's have a share of their own.
    ///
    /// # Errors
    /// As [`run`](Self::run)'s.
    pub fn run_above(&self, request: &Request<'_>, emit: Emit<'_>) -> Result<RunReport, RunError> {
        self.run_within(&self.groups_above(), request, emit)
    }

    fn run_within(
        &self,
        groups: &Arc<MemoryBudget>,
        request: &Request<'_>,
        emit: Emit<'_>,
    ) -> Result<RunReport, RunError> {
        let lower = || {
            check(request)?;
            lowered(request.program, request.parameters)
        };
        let known = match request.known.filter(|_| request.parameters.is_empty()) {
            Some(known) => Some(known.lowered(|| lower().map(Cow::into_owned))?),
            None => None,
        };
        let program = match known {
            Some(known) => Cow::Borrowed(&known.program),
            None => lower()?,
        };
        let Settings { share, threads, .. } = request.settings;
        let sharing = share.as_ref().and_then(|share| {
            // Where nobody can be told, and nobody is seen, the run has what it wants.
            SharingRun::begin(share, *threads).ok()
        });
        let limit = sharing.map(|run| Arc::new(run) as _);
        let wants_rehearsal = AtomicBool::new(false);
        let run = Run { request, runner: self, groups, limit, known, wants_rehearsal };
        if !program.has_builds_of_parts() || program.reads_batches() {
            return run.run(program, emit);
        }
        let watched = Outlet::from(emit).watched();
        match watched.through(|outlet| run.run(program, outlet.emit)) {
            // A build of several stages cannot be divided; one of the stage over the whole union can.
            Err(error) if error.class() == ErrorClass::OutOfMemory && !watched.has_left() => {
                let program = request.program.with_values(request.parameters)?;
                run.run(Cow::Owned(program.lowered_in_one()?.into_owned()), emit)
            }
            ran => ran,
        }
    }
}

/// A program that travelled may meet other tables than those it was made for.
fn check(request: &Request<'_>) -> Result<(), RunError> {
    let internal = |cause: String| RunError::Exec(ExecError::Internal(cause));
    request.program.validate()?;
    for source in request.program.sources() {
        let Some(number) = source.input.table() else { continue };
        let Some(table) = request.tables.get(number) else {
            return Err(internal(format!("there is no table {number} ({})", source.table)));
        };
        check_columns(source, table).map_err(internal)?;
    }
    Ok(())
}

/// A program as the processors take it: lowered, with values in place of its parameters.
pub fn lowered<'a>(
    program: &'a Program,
    parameters: &[Scalar],
) -> Result<Cow<'a, Program>, RunError> {
    let program = program.with_values(parameters)?;
    let lowered = match program.lowered()? {
        Cow::Owned(lowered) => Some(lowered),
        Cow::Borrowed(_) => None,
    };
    Ok(lowered.map_or(program, Cow::Owned))
}

fn check_columns(source: &Source, table: &StreamTable) -> Result<(), String> {
    let (schema, comes_once) = (table.source().schema(), table.source().comes_once());
    if comes_once != source.input.comes_once() {
        let how = if comes_once { "as batches that come once" } else { "as a table" };
        return Err(format!("{} is handed over {how}, the program wants otherwise", source.table));
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
pub(crate) fn gpu_refusal(error: &RunError) -> Option<WhyNot> {
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
    /// Caches and devices.
    pub runner: &'a Runner,
    /// How many threads may work at a time.
    pub limit: Option<Arc<dyn ConsumerLimit>>,
    /// What pays for its groups.
    pub groups: &'a Arc<MemoryBudget>,
    /// What earlier runs have found out.
    pub known: Option<&'a Lowered>,
    /// Set once a stage has begun a rehearsal of the program.
    pub wants_rehearsal: AtomicBool,
}

impl Run<'_> {
    fn run(&self, program: Cow<'_, Program>, emit: Emit<'_>) -> Result<RunReport, RunError> {
        let mut graph = Graph::new(program);
        self.find_kept(&mut graph)?;
        let making = self.finish(&mut graph, emit)?;
        let answer = graph.answer();
        let (chain, origins) = (graph.program().chain(answer), graph.program().origins(answer));
        let is_build = graph.program().probed();
        let (program, stages) = graph.into_reports();
        let of_chain = || chain.iter().filter_map(|&stage| stages[stage].as_ref());
        let origins = origins.iter().filter_map(|&stage| stages[stage].as_ref());
        let mut streamed = StageReport::of_origins(origins);
        let last = stages[answer].as_ref();
        streamed.rows_out = last.map_or(0, |report| report.rows_out);
        streamed.wall_ms = making.all_ms + last.map_or(0.0, |report| report.wall_ms);
        streamed.finish_ms = of_chain().map(|report| report.finish_ms).sum();
        streamed.spilled_bytes = of_chain().map(|report| report.spilled_bytes).sum();
        let builds =
            || stages.iter().zip(&is_build).filter(|(_, is)| **is).filter_map(|(r, _)| r.as_ref());
        Ok(RunReport {
            streamed,
            wants_rehearsal: self.wants_rehearsal.load(Ordering::Relaxed),
            build_ms: making.builds_ms,
            builds_made: builds().filter(|build| !build.is_cached).count(),
            builds_cached: builds().filter(|build| build.is_cached).count(),
            builds: builds().map(|build| format!("{}: {}", build.table, build.result)).collect(),
            build_bytes: builds().map(|build| build.race.bytes_by_path.total()).sum(),
            program: Some(program),
            stages,
            ..RunReport::default()
        })
    }

    /// Makes what is to be made and streams the last stage.
    pub(crate) fn finish(&self, graph: &mut Graph<'_>, emit: Emit<'_>) -> Result<Making, RunError> {
        let mut making = Making::default();
        loop {
            making += self.make_all(graph)?;
            let Some(stage) = graph.next_shared() else { break };
            let started = Instant::now();
            let beyond = self.share(graph, stage, emit)?;
            making.all_ms += ms_since(started);
            if let Some(beyond) = beyond {
                // Of that time the rest of the program took all that it says itself.
                making.builds_ms += beyond.builds_ms;
                making.all_ms -= graph.wall_ms(graph.answer());
                return Ok(making);
            }
        }
        self.stream_stage(graph, graph.answer(), self.request.settings, emit.into())?;
        Ok(making)
    }

    /// Streams a stage, whose output goes to `outlet`, and keeps its report.
    pub fn stream_stage(
        &self,
        graph: &Graph<'_>,
        number: usize,
        settings: &Settings,
        outlet: Outlet<'_>,
    ) -> Result<(), RunError> {
        let watched = outlet.watched();
        let (started, stage) = (Instant::now(), graph.stage(number)?);
        let report = watched.through(|outlet| {
            let streamed = self.stream_over(graph, stage, settings, outlet)?;
            let report = streamed.report(&stage.source, started);
            streamed.emit_rest(outlet.emit)?;
            Ok::<_, RunError>(report)
        })?;
        let of_none = stage.sink.rows_of_none();
        if !watched.has_left() && !of_none.is_empty() {
            let columns = stage.sink.output().unwrap_or_default();
            let rows = values_batch(&columns, &of_none).map_err(ExecError::from)?;
            watched.through(|outlet| (outlet.emit)(rows));
        }
        let place = if watched.is_taken() { Place::Device } else { report.place };
        graph.report(number, StageReport { rows_out: watched.rows(), place, ..report });
        Ok(())
    }

    /// Streams a pipeline of a stage over what the stage reads.
    pub fn stream_over(
        &self,
        graph: &Graph<'_>,
        pipeline: &Pipeline,
        settings: &Settings,
        outlet: Outlet<'_>,
    ) -> Result<Streamed, RunError> {
        match &pipeline.sink {
            Sink::Windows(windows) => self.with_windows(windows, settings, outlet, |outlet| {
                self.stream_rows_over(graph, pipeline, settings, outlet)
            }),
            _ => self.stream_rows_over(graph, pipeline, settings, outlet),
        }
    }

    /// The same without window functions.
    fn stream_rows_over(
        &self,
        graph: &Graph<'_>,
        pipeline: &Pipeline,
        settings: &Settings,
        outlet: Outlet<'_>,
    ) -> Result<Streamed, RunError> {
        if let Input::Partitions(rows) = pipeline.source.input {
            return self.join_partitions(graph, pipeline, rows, settings, outlet.emit);
        }
        let builds = &graph.builds()?[..];
        self.over_source(
            graph,
            &pipeline.source,
            settings,
            |table, settings, groups| {
                self.stream(&Streaming { pipeline, table, builds, settings, groups }, outlet)
            },
            |lefts| self.over_groups(pipeline, builds, lefts, outlet),
        )
    }

    /// Does something with the rows that a source reads: `on_host`, or `on_device` where a GPU left the groups of other
    /// stages. These run meanwhile.
    pub fn over_source<T: Placed + Send>(
        &self,
        graph: &Graph<'_>,
        source: &Source,
        settings: &Settings,
        on_host: impl FnOnce(&StreamTable, &Settings, &Arc<MemoryBudget>) -> Result<T, RunError>,
        on_device: impl Fn(&[&GroupsLeft<'_>]) -> OnDevice<T> + Sync,
    ) -> Result<T, RunError> {
        match &source.input {
            Input::Table(number) | Input::Batches(number) => {
                on_host(&self.request.tables[*number], settings, self.groups)
            }
            Input::Values(rows) => {
                let rows = values_batch(&source.columns, rows).map_err(ExecError::from)?;
                let table = StreamTable::of_source(source, std::iter::once(Ok(rows)));
                on_host(&table, &on_cpu(settings), self.groups)
            }
            Input::Stage(stage) if let Some(left) = graph.left(*stage) => {
                // All that read it do so there, or none.
                on_device(&[left])?.map_err(RunError::WhyNot)
            }
            Input::Stage(stage) if let Some(held) = graph.held(*stage) => {
                let table = held.table(graph.stage(*stage)?);
                let (settings, groups) = (on_cpu(settings), self.runner.groups_above());
                Ok(on_host(&table, &settings, &groups)?.with_why_not(held.why_not.clone()))
            }
            Input::Stage(_) | Input::Union(_) => {
                // The groups of the stages may take all the memory that groups share.
                let groups = self.runner.groups_above();
                let on_host = |table: &StreamTable, why_not| {
                    Ok(on_host(table, &on_cpu(settings), &groups)?.with_why_not(why_not))
                };
                self.over_stages(graph, source.input.stages(), on_host, on_device)
            }
            Input::Partitions(_) => {
                Err(ExecError::Internal("partitions that are read as one".into()).into())
            }
        }
    }

    /// Streams a pipeline on the wanted processor, or on the CPU if that is allowed.
    pub fn stream(
        &self,
        streaming: &Streaming<'_>,
        outlet: Outlet<'_>,
    ) -> Result<Streamed, RunError> {
        let Streaming { pipeline, table, builds, settings, groups } = *streaming;
        let task = Task {
            pipeline,
            table,
            builds,
            build_options: BuildOptions::default(),
            settings,
            runner: self.runner,
            groups,
            threads: settings.threads,
            limit: self.limit.as_ref(),
            token: self.request.token,
            outlet,
        };
        let (placements, source) = (self.runner.placements(), table.source());
        let on_cpu = |task: &Task<'_>, mut on_cores: Option<OnCores>| {
            if let Some(OnCores { why, .. }) = &on_cores
                && settings.behind
                && placements.cores_ms(pipeline, source).is_none_or(|ms| ms > CORES_MS_MAX)
            {
                return Err(RunError::WhyNot(why.clone()));
            }
            let started = Instant::now();
            let done = cpu::run(task)?;
            let ms = ms_since(started);
            if settings.processor == Processor::Auto && !settings.behind {
                placements.ran_on_cores(pipeline, source, ms);
            }
            if let Some(OnCores { why, lacks_start: true }) = &mut on_cores
                && ms >= CORES_MS_MIN
                && self.begin_rehearsal(pipeline, table)
            {
                why.0.push_str("; it is tried behind this query");
            }
            Ok(Streamed { done, processor: "cpu", why_not: on_cores.map(|on_cores| on_cores.why) })
        };
        let is_auto = settings.processor == Processor::Auto;
        if matches!(settings.processor, Processor::Cpu | Processor::Off) {
            return on_cpu(&task, None);
        }
        let chosen = match is_auto {
            true => self.runner.choose(pipeline, table, settings),
            false => Ok(0.0),
        };
        let start_ms = match chosen {
            Ok(start_ms) => start_ms,
            Err(on_cores) => return on_cpu(&task, Some(on_cores)),
        };
        let must = settings.is_gpu_or_nothing();
        if !must && let Some(reason) = placements.refusal(pipeline, source) {
            return on_cpu(&task, Some(reason.into()));
        }
        let started = Instant::now();
        let watched = outlet.watched();
        let error = match watched.through(|outlet| cuda::run(&Task { outlet, ..task })) {
            Ok(done) => {
                let ms = ms_since(started);
                let has_started = placements.ran_on_gpus(pipeline, source, ms, start_ms);
                if has_started && self.runner.may_keep(pipeline, table) {
                    self.begin_rehearsal(pipeline, table);
                }
                return Ok(Streamed { done, processor: "cuda", why_not: None });
            }
            Err(error) => error,
        };
        let error = self.runner.functions().with_gpus_lost(error, pipeline);
        if error.class() == ErrorClass::Unsupported {
            gpu_refusal(&error)
                .iter()
                .for_each(|why| placements.was_refused(pipeline, source, why));
        }
        match gpu_refusal(&error) {
            Some(reason) if !must && !watched.has_left() => on_cpu(&task, Some(reason.into())),
            _ => Err(error),
        }
    }
}

impl Run<'_> {
    /// Has the program rehearsed, once for each kind of its pipelines; whether it will be. Only tables of
    /// files can be read again when the client is gone.
    fn begin_rehearsal(&self, pipeline: &Pipeline, table: &StreamTable) -> bool {
        let begins = self.runner.rehearsals().are_on()
            && !self.request.settings.behind
            && self.runner.placements().begin_rehearsal(pipeline, table.source())
            && self.request.tables.iter().all(|table| table.source().description().is_ok());
        self.wants_rehearsal.fetch_or(begins, Ordering::Relaxed);
        begins
    }
}

/// The same settings on the CPU, for rows that are already in host memory.
pub fn on_cpu(settings: &Settings) -> Settings {
    Settings { processor: Processor::Cpu, ..settings.clone() }
}

pub fn ms_since(started: Instant) -> f64 {
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
