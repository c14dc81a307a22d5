//! The builds and partitions of a run: found in the cache or made, several at a time.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use headrace_cuda::GroupsLeft;
use headrace_io::{MemoryBudget, MemoryUse};
use headrace_ir::{Field, Input, NamedExpr, Pipeline, Probe, Sink, Step};
use headrace_pipeline::build::BuildOptions;
use headrace_pipeline::state::Output;
use headrace_pipeline::{BuildTable, ExecError};
use headrace_spill::batch_bytes;
use parking_lot::Mutex;

use crate::build_cache::{BuildKey, HeldBuild};
use crate::cpu;
use crate::error::{ErrorClass, RunError};
use crate::graph::{Graph, Made, StageResult};
use crate::parts::Gathered;
use crate::report::StageReport;
use crate::run::{Run, Streamed, ms_since, on_cpu};
use crate::settings::Settings;
use crate::table::StreamTable;
use crate::task::{Emit, OnDevice, Outlet, Task, groups_of};

/// Of an operator's memory, rows that become a build, or are kept for several readers, may take this part: the build is
/// made beside them.
pub const HELD_SHARE: u64 = 8;

/// How long making took.
#[derive(Default)]
pub struct Making {
    /// Builds.
    pub builds_ms: f64,
    /// Everything.
    pub all_ms: f64,
}

impl std::ops::AddAssign for Making {
    fn add_assign(&mut self, other: Self) {
        self.builds_ms += other.builds_ms;
        self.all_ms += other.all_ms;
    }
}

impl Run<'_> {
    /// Takes the builds that earlier runs have left: what they were made of is not made again.
    pub fn find_kept(&self, graph: &mut Graph<'_>) -> Result<(), RunError> {
        for stage in graph.all_builds() {
            let key = self.key(graph, stage);
            if let Some(made) = self.kept_build(graph, stage, key.as_ref())? {
                graph.keep(&[stage], vec![made])?;
            }
        }
        Ok(())
    }

    /// Makes the builds and partitions that can be, group by group: stages that are ready together are made together.
    pub fn make_all(&self, graph: &mut Graph<'_>) -> Result<Making, RunError> {
        let mut making = Making::default();
        loop {
            let group = graph.next_group();
            if group.is_empty() {
                return Ok(making);
            }
            let started = Instant::now();
            let made = self.make_group(graph, &group)?;
            let is_build = graph.program().probed();
            making.all_ms += ms_since(started);
            if group.iter().any(|&stage| is_build[stage]) {
                making.builds_ms += ms_since(started);
            }
            graph.keep(&group, made)?;
        }
    }

    fn make_group(&self, graph: &Graph<'_>, group: &[usize]) -> Result<Vec<Made>, RunError> {
        let keys: Vec<_> = group.iter().map(|&stage| self.key(graph, stage)).collect();
        let mut found = Vec::with_capacity(group.len());
        for (&stage, key) in group.iter().zip(&keys) {
            found.push(self.kept_build(graph, stage, key.as_ref())?);
        }
        let missing: Vec<_> = (0..group.len()).filter(|&at| found[at].is_none()).collect();
        // Builds are of very different sizes: each may use all threads, so that the last one has them.
        let threads = self.request.settings.threads.max(1);
        for some in missing.chunks(threads) {
            let stages: Vec<_> = some.iter().map(|&at| group[at]).collect();
            for (&at, made) in some.iter().zip(self.make_together(graph, &stages, threads)?) {
                if let (Some(key), Some(held)) = (&keys[at], &made.held) {
                    self.runner.build_cache().put(Arc::clone(key), held);
                }
                found[at] = Some(made);
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// A build of an earlier run. Its tables are not read again, but a file that is not what it
    /// was is the same error as if it were.
    fn kept_build(
        &self,
        graph: &Graph<'_>,
        stage: usize,
        key: Option<&Arc<BuildKey>>,
    ) -> Result<Option<Made>, RunError> {
        let Some(held) = key.and_then(|key| self.runner.build_cache().get(key)) else {
            return Ok(None);
        };
        for stage in graph.program().chain(stage) {
            if let Input::Table(table) = graph.stage(stage)?.source.input {
                self.request.tables[table].source().check_unchanged()?;
            }
        }
        let table = graph.stage(stage)?.source.table.clone();
        let processor = "cpu".to_string();
        let report = StageReport { table, processor, is_cached: true, ..StageReport::default() };
        Ok(Some(Made::build(held, report)))
    }

    fn make_together(
        &self,
        graph: &Graph<'_>,
        stages: &[usize],
        threads: usize,
    ) -> Result<Vec<Made>, RunError> {
        if let [stage] = stages {
            return Ok(vec![self.make(graph, *stage, threads)?]);
        }
        headrace_io::scope(|scope| {
            let make = |stage| self.make(graph, stage, threads);
            let start = |&stage| (stage, scope.spawn_deep(move || make(stage)).ok());
            let handles: Vec<_> = stages.iter().map(start).collect();
            let joined = handles.into_iter().map(|(stage, handle)| {
                let panicked = |_| Err(RunError::Thread(format!("making stage {stage} panicked")));
                // Where no thread is had, this one makes it.
                handle.map_or_else(|| make(stage), |made| made.join().unwrap_or_else(panicked))
            });
            joined.collect()
        })
    }

    /// A stage's key in the build cache; `None` if one of its inputs must not be cached.
    fn key(&self, graph: &Graph<'_>, number: usize) -> Option<Arc<BuildKey>> {
        let new = || {
            let stage = graph.program().stage(number)?;
            let table = match stage.source.input {
                Input::Table(table) | Input::Batches(table) => Some(&*self.request.tables[table]),
                Input::Values(_) | Input::Stage(_) | Input::Union(_) => None,
                // Temporary files are one run's.
                Input::Partitions(_) => return None,
            };
            let inputs = graph.program().inputs(number).map(|input| self.key(graph, input));
            let asked = || (nulls_equal(graph, number), graph.program().passed_on(number));
            let text = || BuildKey::text(stage, asked());
            let text = match self.known {
                Some(known) => known.text(graph.program(), number, text),
                None => text().into(),
            };
            BuildKey::of(text, table, inputs.collect::<Option<_>>()?)
        };
        graph.key(number, new)
    }

    fn make(&self, graph: &Graph<'_>, number: usize, threads: usize) -> Result<Made, RunError> {
        let stage = &*without_unmade(graph.stage(number)?, graph);
        let (settings, started) = (self.request.settings, Instant::now());
        if matches!(stage.sink, Sink::Partition { .. }) {
            let (streamed, gathered) = self.divided(graph, stage, settings, 0)?;
            let report = streamed.report(&stage.source, started);
            return match gathered {
                Gathered::Divided(parts) => Ok(Made::partitions(parts, report)),
                Gathered::Held(..) => {
                    Err(ExecError::Internal("rows that are not divided".into()).into())
                }
            };
        }
        let options = BuildOptions {
            nulls_equal: nulls_equal(graph, number),
            passed_on: graph.program().passed_on(number),
            threads,
            ..BuildOptions::default()
        };
        let may_divide = graph.program().divides_for(number).is_some();
        // Input that comes once cannot be read again if the build does not fit.
        let comes_once = stage.source.input.comes_once();
        let held_bytes_max = match may_divide && comes_once {
            true => self.runner.memory().operator_bytes / HELD_SHARE,
            false => match self.build(graph, stage, options) {
                Err(error) if error.class() != ErrorClass::OutOfMemory => return Err(error),
                Err(_) if may_divide => 0,
                Err(_) if may_leave_out(graph, number) => {
                    let table = stage.source.table.clone();
                    return Ok(Made::left_out(StageReport { table, ..StageReport::default() }));
                }
                made => return made,
            },
        };
        let (streamed, gathered) = self.divided(graph, stage, &on_cpu(settings), held_bytes_max)?;
        let report = streamed.report(&stage.source, started);
        match gathered {
            Gathered::Held(batches, _memory) => {
                self.keep(build_of(stage, &batches, options)?, report)
            }
            Gathered::Divided(parts) => Ok(Made::partitions(parts, report)),
        }
    }

    /// Reserves the memory of a build that was just made.
    fn keep(&self, table: BuildTable, report: StageReport) -> Result<Made, RunError> {
        let held = HeldBuild::new(table, self.runner.budget())?;
        Ok(Made::build(held, report))
    }

    /// Makes a build: on the CPU, whatever runs the streamed pipeline, or of the rows that a GPU finds among groups that are
    /// there.
    fn build(
        &self,
        graph: &Graph<'_>,
        stage: &Pipeline,
        options: BuildOptions,
    ) -> Result<Made, RunError> {
        let (settings, started) = (self.request.settings, Instant::now());
        let builds = &graph.builds()?[..];
        let no_rows = |_: RecordBatch| true;
        let on_host = |table: &StreamTable, settings: &Settings, groups: &Arc<MemoryBudget>| {
            let done = cpu::run(&Task {
                pipeline: stage,
                table,
                builds,
                build_options: BuildOptions { source_rows: table.source().rows(), ..options },
                settings,
                runner: self.runner,
                groups,
                threads: options.threads,
                limit: self.limit.as_ref(),
                token: self.request.token,
                outlet: Outlet::from(&no_rows as Emit<'_>),
            })?;
            let streamed = Streamed { done, processor: "cpu", why_not: None };
            let report = streamed.report(&stage.source, started);
            match streamed.done.output {
                Output::Build(mut build) => {
                    build.name.clone_from(&stage.source.table);
                    self.keep(build, report)
                }
                Output::Batches(_) => {
                    let name = &stage.source.table;
                    Err(ExecError::Internal(format!("build {name} yielded rows")).into())
                }
            }
        };
        let on_device = |lefts: &[&GroupsLeft<'_>]| {
            let options = BuildOptions { source_rows: Some(groups_of(lefts)), ..options };
            self.build_of_groups(stage, builds, options, lefts)
        };
        self.over_source(graph, &stage.source, settings, on_host, on_device)
    }

    /// A build of rows that a GPU finds among groups.
    fn build_of_groups(
        &self,
        stage: &Pipeline,
        builds: &[Arc<BuildTable>],
        options: BuildOptions,
        lefts: &[&GroupsLeft<'_>],
    ) -> OnDevice<Made> {
        let started = Instant::now();
        let (keys, payload) = stage.build_columns().unwrap_or_default();
        let sink = Sink::Partition { keys: keys.to_vec(), payload: payload.to_vec() };
        let rows = Pipeline { sink, ..stage.clone() };
        let memory = self.runner.budget().reserve_nothing(MemoryUse::Operators);
        let held = Mutex::new((Vec::new(), memory, Ok(())));
        let emit = |batch: RecordBatch| {
            let (batches, memory, refused) = &mut *held.lock();
            *refused = memory.resize(memory.bytes() + batch_bytes(&batch));
            batches.push(batch);
            refused.is_ok()
        };
        let streamed =
            match self.over_groups(&rows, builds, lefts, Outlet::from(&emit as Emit<'_>))? {
                Ok(streamed) => streamed,
                Err(why) => return Ok(Err(why)),
            };
        let report = streamed.report(&stage.source, started);
        let (batches, _memory, refused) = held.into_inner();
        refused?;
        Ok(Ok(self.keep(build_of(stage, &batches, options)?, report)?))
    }
}

/// A build of batches whose columns are the keys and the payload of a stage.
pub fn build_of(
    stage: &Pipeline,
    batches: &[RecordBatch],
    options: BuildOptions,
) -> Result<BuildTable, ExecError> {
    let (keys, payload) = stage.build_columns().unwrap_or_default();
    let fields = |columns: &[NamedExpr]| columns.iter().map(NamedExpr::field).collect::<Vec<_>>();
    let (keys, payload): (Vec<Field>, Vec<Field>) = (fields(keys), fields(payload));
    BuildTable::from_batches(&stage.source.table, &keys, &payload, batches, options)
}

/// Whether a build is probed where NULL equals NULL.
fn nulls_equal(graph: &Graph<'_>, build: usize) -> bool {
    probes_of(graph, build).any(|probe| probe.null_equal)
}

/// Whether all that probe a build can do without.
fn may_leave_out(graph: &Graph<'_>, build: usize) -> bool {
    probes_of(graph, build).all(|probe| probe.is_optional)
}

/// The probes that ask a build, of all stages.
fn probes_of<'g>(graph: &'g Graph<'_>, build: usize) -> impl Iterator<Item = &'g Probe> {
    graph.program().all().flat_map(Pipeline::probes).filter(move |probe| probe.build == build)
}

/// A stage without its optional probes whose build is not in memory.
fn without_unmade<'g>(stage: &'g Pipeline, graph: &Graph<'_>) -> Cow<'g, Pipeline> {
    let is_left_out = |step: &Step| match step {
        Step::Probe(probe) => {
            let is_made = matches!(graph.result(probe.build), Some(StageResult::Build(_)));
            probe.is_optional && !is_made
        }
        _ => false,
    };
    let mut stage = Cow::Borrowed(stage);
    if stage.steps.iter().any(is_left_out) {
        stage.to_mut().steps.retain(|step| !is_left_out(step));
    }
    stage
}
