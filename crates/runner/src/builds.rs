//! The builds of a program: those that earlier runs made, and the others, several at a time.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use headrace_io::Kept;
use headrace_ir::{BuildPlan, BuildSource, Pipeline, Probe, Sink, SourceKind, Step};
use headrace_pipeline::build::{BuildIndex, BuildOptions, Chains, Heads};
use headrace_pipeline::state::Output;
use headrace_pipeline::{BuildTable, ExecError};
use headrace_spill::Part;

use crate::build_cache::{BuildKey, HeldBuild};
use crate::cpu;
use crate::error::{ErrorClass, RunError};
use crate::parts::{Gathered, file_bytes};
use crate::run::Run;
use crate::task::Task;

/// Of an operator's memory, rows that become a build may take this part: the build is made beside
/// them.
const HELD_SHARE: u64 = 8;

/// A build of a run.
pub struct Built {
    /// Its rows.
    pub slot: Slot,
    /// Name.
    name: String,
    /// Whether an earlier run made it.
    pub cached: bool,
    /// Bytes read to make it.
    pub bytes: u64,
    /// Holds its memory.
    held: Option<Arc<Kept<HeldBuild>>>,
}

/// The rows of a build.
#[derive(Clone)]
pub enum Slot {
    /// In memory, by key.
    Made(Arc<BuildTable>),
    /// In temporary files, divided by key.
    Divided(Arc<Vec<Part>>),
    /// Nowhere: memory does not hold it, and nobody needs it.
    LeftOut,
}

impl Built {
    fn made(held: Arc<Kept<HeldBuild>>, cached: bool, bytes: u64) -> Self {
        let (slot, name) = (Slot::Made(Arc::clone(&held.table)), held.table.name.clone());
        Self { slot, name, cached, bytes, held: Some(held) }
    }

    fn divided(parts: Vec<Part>, name: &str, bytes: u64) -> Self {
        let slot = Slot::Divided(Arc::new(parts));
        Self { slot, name: name.to_string(), cached: false, bytes, held: None }
    }

    fn left_out(name: &str) -> Self {
        let (slot, name) = (Slot::LeftOut, name.to_string());
        Self { slot, name, cached: false, bytes: 0, held: None }
    }

    /// In words: its rows, how keys are found, its size.
    pub fn describe(&self) -> String {
        let table = match &self.slot {
            Slot::Made(table) => table,
            Slot::LeftOut => return format!("{}: more than memory holds, left out", self.name),
            Slot::Divided(parts) => {
                let rows: u64 = parts.iter().map(|part| part.blocks().rows()).sum();
                let bytes = file_bytes(parts);
                let bytes = headrace_io::decimal_bytes(bytes);
                return format!(
                    "{}: {rows} rows, more than memory holds, divided: {bytes}",
                    self.name
                );
            }
        };
        let index = match &table.index {
            BuildIndex::Direct(present) => format!("direct over {} keys", present.domain),
            BuildIndex::Chains(Chains { heads: Heads::Direct { heads, .. }, .. }) => {
                format!("direct over {} keys", heads.len())
            }
            BuildIndex::Chains(_) => "hashed".to_string(),
        };
        let duplicates = if table.unique { "" } else { " with duplicates" };
        let cached = if self.cached { ", cached" } else { "" };
        format!(
            "{}: {} rows{duplicates}, {index}, {}{cached}",
            self.name,
            table.rows,
            headrace_io::decimal_bytes(table.bytes)
        )
    }
}

/// The builds as pipelines take them. Those that are not made no pipeline probes that takes these:
/// something empty stands in their place.
pub fn slot_tables(slots: &[Slot]) -> Result<Vec<Arc<BuildTable>>, ExecError> {
    let table = |slot: &Slot| match slot {
        Slot::Made(table) => Ok(Arc::clone(table)),
        Slot::Divided(_) | Slot::LeftOut => {
            let empty = BuildTable::from_batches("", &[], &[], &[], BuildOptions::default());
            Ok(Arc::new(empty?))
        }
    };
    slots.iter().map(table).collect()
}

impl Run<'_> {
    /// All builds: those of earlier runs first, the others in groups that are made at the same
    /// time. A group ends where a build probes one of its members.
    pub fn builds(&self) -> Result<Vec<Built>, RunError> {
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
        let before: Vec<_> = before.iter().map(|built| built.slot.clone()).collect();
        let mut found = Vec::with_capacity(group.len());
        for index in group.clone() {
            found.push(self.kept_build(index, keys[index].as_ref())?);
        }
        let missing: Vec<_> = group.clone().filter(|i| found[i - group.start].is_none()).collect();
        // Builds are of very different sizes: each may use all threads, so that the last one has them.
        let threads = self.request.settings.threads.max(1);
        for some in missing.chunks(threads) {
            for (&index, made) in some.iter().zip(self.make_builds(some, &before, threads)?) {
                if let (Some(key), Some(held)) = (&keys[index], &made.held) {
                    self.runner.build_cache().put(key.clone(), held);
                }
                found[index - group.start] = Some(made);
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// A build of an earlier run. Its table is not read again, but a file that is not what it
    /// was is the same error as if it were.
    fn kept_build(&self, build: usize, key: Option<&BuildKey>) -> Result<Option<Built>, RunError> {
        let Some(held) = key.and_then(|key| self.runner.build_cache().get(key)) else {
            return Ok(None);
        };
        if let Some(pipeline) = self.program.builds[build].pipeline() {
            self.table(pipeline).source().check_unchanged()?;
        }
        Ok(Some(Built::made(held, true, 0)))
    }

    fn make_builds(
        &self,
        wanted: &[usize],
        before: &[Slot],
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
        self.probes_of(build).any(|probe| probe.null_equal)
    }

    /// The probes that ask a build, of all pipelines.
    fn probes_of(&self, build: usize) -> impl Iterator<Item = &Probe> {
        let of_builds = self.program.builds.iter().filter_map(BuildPlan::pipeline);
        let all = of_builds.chain([&self.program.pipeline]).flat_map(probes);
        all.filter(move |probe| probe.build == build)
    }

    fn build(&self, index: usize, before: &[Slot], threads: usize) -> Result<Built, RunError> {
        let plan = &*without_unmade(&self.program.builds[index], before);
        let options =
            BuildOptions { nulls_equal: self.nulls_equal(index), threads, ..Default::default() };
        let of_batches = |batches: &[RecordBatch]| {
            BuildTable::from_batches(&plan.name, &plan.keys, &plan.payload, batches, options)
        };
        let (table, bytes) = match &plan.source {
            BuildSource::Pipeline(pipeline) if self.may_divide(index) => {
                // Batches come once: they cannot be read again where the build does not fit.
                let comes_once = pipeline.source.kind == SourceKind::Batches;
                let made = (!comes_once)
                    .then(|| self.build_from_table(plan, pipeline, before, options, threads));
                let held_bytes_max = match made {
                    Some(Err(error)) if error.class() == ErrorClass::OutOfMemory => 0,
                    Some(made) => return self.keep(made?),
                    None => self.runner.memory().operator_bytes / HELD_SHARE,
                };
                match self.gather(plan, before, held_bytes_max)? {
                    (Gathered::Held(batches, _memory), bytes) => (of_batches(&batches)?, bytes),
                    (Gathered::Divided(parts), bytes) => {
                        return Ok(Built::divided(parts, &plan.name, bytes));
                    }
                }
            }
            BuildSource::Pipeline(pipeline) => {
                let made = self.build_from_table(plan, pipeline, before, options, threads);
                return match made.and_then(|made| self.keep(made)) {
                    Err(error) if self.may_leave_out(index, &error) => {
                        Ok(Built::left_out(&plan.name))
                    }
                    made => made,
                };
            }
            BuildSource::Child(child) => {
                let children = self.request.children;
                (of_batches(children.get(*child).map(Vec::as_slice).unwrap_or_default())?, 0)
            }
            BuildSource::Values(rows) => {
                let table =
                    BuildTable::from_values(&plan.name, &plan.keys, &plan.payload, rows, options)?;
                (table, 0)
            }
        };
        self.keep((table, bytes))
    }

    /// Whether a build failed for want of memory, and whoever asks it can do without.
    fn may_leave_out(&self, build: usize, error: &RunError) -> bool {
        error.class() == ErrorClass::OutOfMemory
            && self.probes_of(build).all(|probe| probe.is_optional)
    }

    /// Reserves the memory of a build that was just made of so many bytes.
    fn keep(&self, (table, bytes): (BuildTable, u64)) -> Result<Built, RunError> {
        let held = HeldBuild::new(table, self.runner.budget())?;
        Ok(Built::made(held, false, bytes))
    }

    /// Builds are made on the CPU whatever runs the streamed pipeline.
    fn build_from_table(
        &self,
        plan: &BuildPlan,
        pipeline: &Pipeline,
        before: &[Slot],
        options: BuildOptions,
        threads: usize,
    ) -> Result<(BuildTable, u64), RunError> {
        assert!(matches!(pipeline.sink, Sink::Build { .. }), "validated programs end so");
        let before = slot_tables(before)?;
        let table = self.table(pipeline);
        let done = cpu::run(&Task {
            pipeline,
            table,
            builds: &before,
            build_options: BuildOptions { source_rows: table.source().rows(), ..options },
            settings: self.request.settings,
            runner: self.runner,
            groups: self.groups,
            threads,
            limit: self.limit.as_ref(),
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

/// A build without those of its probes that need not be and whose build is not in memory.
fn without_unmade<'p>(plan: &'p BuildPlan, before: &[Slot]) -> Cow<'p, BuildPlan> {
    let is_left_out = |step: &Step| match step {
        Step::Probe(probe) => probe.is_optional && !matches!(before[probe.build], Slot::Made(_)),
        _ => false,
    };
    let mut plan = Cow::Borrowed(plan);
    if plan.pipeline().is_some_and(|pipeline| pipeline.steps.iter().any(is_left_out))
        && let BuildSource::Pipeline(pipeline) = &mut plan.to_mut().source
    {
        pipeline.steps.retain(|step| !is_left_out(step));
    }
    plan
}

/// The builds that a build's own pipeline probes.
fn probed(plan: &BuildPlan) -> impl Iterator<Item = usize> + '_ {
    plan.pipeline().into_iter().flat_map(probes).map(|probe| probe.build)
}

/// The probes of a pipeline.
pub(crate) fn probes(pipeline: &Pipeline) -> impl Iterator<Item = &Probe> {
    pipeline.steps.iter().filter_map(|step| match step {
        Step::Probe(probe) => Some(probe),
        _ => None,
    })
}
