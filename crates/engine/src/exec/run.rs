//! A whole program on a plain thread: builds first, then the streamed pipeline.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::memory_pool::MemoryReservation;
use headrace_flow::CancelToken;
use headrace_ir::{BuildPlan, BuildSource, Program, Sink, Step};
use headrace_pipeline::build::{BuildIndex, BuildOptions};
use headrace_pipeline::state::Output;
use headrace_pipeline::{BuildTable, ExecError, WhyNot};

use super::Engine;
use super::builds::BuildKey;
use super::task::{Done, Emit, RunError, Task};
use super::{cpu, cuda};
use crate::config::{Fallback, HeadraceConfig, Processor};
use crate::explain::bytes_text;
use crate::report::PipelineReport;
use crate::rule::{Planned, TableUse};

/// Everything that a run needs.
pub struct Run {
    /// The program with its tables.
    pub planned: Arc<Planned>,
    /// Settings.
    pub config: HeadraceConfig,
    /// Caches and devices.
    pub engine: Arc<Engine>,
    /// Batches of each child plan.
    pub children: Vec<Vec<RecordBatch>>,
    /// What they hold of the planner's memory.
    pub _children_memory: MemoryReservation,
    /// Ends it early.
    pub token: CancelToken,
}

/// The processor that takes a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    Cpu,
    Cuda,
}

struct Built {
    table: Arc<BuildTable>,
    cached: bool,
    bytes: u64,
}

impl Built {
    fn describe(&self) -> String {
        let table = &self.table;
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
            bytes_text(table.bytes)
        )
    }
}

impl Run {
    /// Runs it; finished batches go to `emit` in the sink's columns.
    pub fn run(&self, emit: Emit<'_>) -> Result<PipelineReport, RunError> {
        let started = Instant::now();
        let built = self.builds()?;
        let build_ms = started.elapsed().as_secs_f64() * 1e3;
        let builds: Vec<_> = built.iter().map(|b| Arc::clone(&b.table)).collect();
        let (done, chosen, reason) = self.stream(&builds, emit)?;
        let pipeline = &self.planned.program.pipeline;
        let report = PipelineReport {
            table: pipeline.source.table.clone(),
            processor: match chosen {
                Chosen::Cpu => "cpu".into(),
                Chosen::Cuda => "cuda".into(),
            },
            processor_why_not: reason.map(|r| r.to_string()),
            rows_in: done.chunks.plan.rows,
            rows_out: 0,
            wall_ms: started.elapsed().as_secs_f64() * 1e3,
            build_ms,
            builds_made: built.iter().filter(|b| !b.cached).count(),
            builds_cached: built.iter().filter(|b| b.cached).count(),
            builds: built.iter().map(Built::describe).collect(),
            build_bytes: built.iter().map(|b| b.bytes).sum(),
            pruned_batches: done.chunks.plan.pruned_batches,
            pruned_rows: done.chunks.plan.pruned_rows,
            bind_ms: done.bind_ms,
            finish_ms: done.finish_ms,
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
        let task = Task {
            pipeline: &self.planned.program.pipeline,
            table: &self.planned.stream,
            builds,
            build_options: BuildOptions::default(),
            config: &self.config,
            engine: &self.engine,
            threads: self.config.threads,
            token: &self.token,
            emit,
        };
        if matches!(self.config.processor, Processor::Cpu | Processor::Off) {
            return Ok((cpu::run(&task)?, Chosen::Cpu, None));
        }
        match cuda::run(&task) {
            Ok(done) => Ok((done, Chosen::Cuda, None)),
            Err(RunError::WhyNot(reason)) => {
                let must = self.config.processor == Processor::Cuda
                    && self.config.fallback == Fallback::Forbid;
                if must {
                    return Err(reason.into());
                }
                Ok((cpu::run(&task)?, Chosen::Cpu, Some(reason)))
            }
            Err(error) => Err(error),
        }
    }

    fn program(&self) -> &Program {
        &self.planned.program
    }

    /// Whether a build is probed where NULL equals NULL.
    fn nulls_equal(&self, build: usize) -> bool {
        self.program().pipeline.steps.iter().any(
            |step| matches!(step, Step::Probe(probe) if probe.build == build && probe.null_equal),
        )
    }

    /// All builds: those of earlier queries first, the others at the same time. No build of
    /// this planner probes another.
    fn builds(&self) -> Result<Vec<Built>, RunError> {
        let keys: Vec<_> = (0..self.program().builds.len()).map(|i| self.key(i)).collect();
        let mut built = Vec::with_capacity(keys.len());
        for (key, table) in keys.iter().zip(&self.planned.builds) {
            built.push(self.kept_build(key.as_ref(), table.as_ref())?);
        }
        let missing: Vec<_> = (0..built.len()).filter(|&i| built[i].is_none()).collect();
        let threads = (self.config.threads / missing.len().max(1)).max(1);
        for group in missing.chunks(self.config.threads.max(1)) {
            for (&index, made) in group.iter().zip(self.build_group(group, threads)?) {
                if let Some(key) = &keys[index] {
                    self.engine.builds().put(key.clone(), &made.table);
                }
                built[index] = Some(made);
            }
        }
        Ok(built.into_iter().flatten().collect())
    }

    /// A build of an earlier query. Its table is not read again, but a file that is not what it
    /// was is the same error as if it were.
    fn kept_build(
        &self,
        key: Option<&BuildKey>,
        table: Option<&TableUse>,
    ) -> Result<Option<Built>, RunError> {
        let (Some(key), Some(table)) = (key, table) else { return Ok(None) };
        let Some(build) = self.engine.builds().get(key) else { return Ok(None) };
        table.table.arrow().files().iter().try_for_each(|file| file.check_unchanged())?;
        Ok(Some(Built { table: build, cached: true, bytes: 0 }))
    }

    fn build_group(&self, group: &[usize], threads: usize) -> Result<Vec<Built>, RunError> {
        if let [index] = group {
            return Ok(vec![self.build(*index, threads)?]);
        }
        std::thread::scope(|scope| {
            let handles: Vec<_> = group
                .iter()
                .map(|&index| scope.spawn(move || self.build(index, threads)))
                .collect();
            handles
                .into_iter()
                .map(|handle| {
                    let panicked = |_| Err(RunError::Thread("a build panicked".into()));
                    handle.join().unwrap_or_else(panicked)
                })
                .collect()
        })
    }

    fn key(&self, build: usize) -> Option<BuildKey> {
        match (&self.program().builds[build].source, &self.planned.builds[build]) {
            (BuildSource::Pipeline(pipeline), Some(table)) => {
                Some(BuildKey::of(pipeline, table, self.nulls_equal(build)))
            }
            _ => None,
        }
    }

    fn build(&self, index: usize, threads: usize) -> Result<Built, RunError> {
        let plan = &self.program().builds[index];
        let options = BuildOptions { nulls_equal: self.nulls_equal(index), source_rows: None };
        let (table, bytes) = match (&plan.source, &self.planned.builds[index]) {
            (BuildSource::Pipeline(_), Some(table)) => {
                self.build_from_table(plan, table, options, threads)?
            }
            (BuildSource::Child(child), _) => {
                let batches = self.children.get(*child).map(Vec::as_slice).unwrap_or_default();
                let keys = plan.keys.as_slice();
                let table =
                    BuildTable::from_batches(&plan.name, keys, &plan.payload, batches, options)?;
                (table, 0)
            }
            _ => return Err(ExecError::Internal(format!("build {} has no rows", plan.name)).into()),
        };
        Ok(Built { table: Arc::new(table), cached: false, bytes })
    }

    /// Builds are made on the CPU whatever runs the streamed pipeline.
    fn build_from_table(
        &self,
        plan: &BuildPlan,
        table: &TableUse,
        options: BuildOptions,
        threads: usize,
    ) -> Result<(BuildTable, u64), RunError> {
        let BuildSource::Pipeline(pipeline) = &plan.source else {
            return Err(ExecError::Internal("a build without a pipeline".into()).into());
        };
        debug_assert!(matches!(pipeline.sink, Sink::Build { .. }));
        let source_rows = Some(table.table.rows());
        let done = cpu::run(&Task {
            pipeline,
            table,
            builds: &[],
            build_options: BuildOptions { source_rows, ..options },
            config: &self.config,
            engine: &self.engine,
            threads,
            token: &self.token,
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
