//! A pipeline as a node of a physical plan.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties};
use datafusion::physical_plan::distribution_requirements::InputDistributionRequirements;
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties};
use headrace_format::batches::{BatchTable, Ready};
use headrace_ir::{AggregateOutput, FirstGroups, Program, Sink};
use headrace_pipeline::WhyNot;
use headrace_runner::{KnownProgram, RunReport, Runner, Settings, StreamTable};
use parking_lot::Mutex;

use super::output::Output;
use super::served;
use super::stream::stream;
use crate::rule::Planned;

/// A pipeline; one output partition.
#[derive(Clone, Debug)]
pub struct PipelineExec {
    runner: Arc<Runner>,
    /// The settings that it was planned under and runs under.
    settings: Settings,
    planned: Arc<Planned>,
    /// What runs of its program have found out.
    known: Arc<KnownProgram>,
    /// Child plans, whose rows are tables.
    children: Vec<Arc<dyn ExecutionPlan>>,
    /// The fragment that was replaced: what runs if the processor refuses the pipeline.
    original: Arc<dyn ExecutionPlan>,
    why_not: Vec<WhyNot>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    report: Arc<Mutex<Option<RunReport>>>,
}

impl PipelineExec {
    /// A node in place of `original`. `why_not` tells why the nodes above are not part of it.
    pub fn new(
        runner: Arc<Runner>,
        settings: Settings,
        planned: Planned,
        original: Arc<dyn ExecutionPlan>,
        why_not: Vec<WhyNot>,
    ) -> Self {
        let emission = match planned.program.answer.sink {
            Sink::Rows { .. } => EmissionType::Incremental,
            _ => EmissionType::Final,
        };
        let equivalence = match planned.program.answer.sink {
            Sink::Sorted { .. } => original.properties().equivalence_properties().clone(),
            _ => EquivalenceProperties::new(original.schema()),
        };
        let properties = Arc::new(PlanProperties::new(
            equivalence,
            Partitioning::UnknownPartitioning(1),
            emission,
            Boundedness::Bounded,
        ));
        let children = planned.children.clone();
        let metrics = ExecutionPlanMetricsSet::new();
        let planned = Arc::new(planned);
        let (known, report) = (Arc::default(), Arc::default());
        Self {
            runner,
            settings,
            planned,
            known,
            children,
            original,
            why_not,
            properties,
            metrics,
            report,
        }
    }

    /// The same, asked for no more groups than come first by columns, as [`AggregateOutput::First`]; `None` where it
    /// has no groups, or the first of the columns is none of its program's.
    pub fn of_first_groups(&self, first: FirstGroups) -> Option<Self> {
        let first = first.by_others(|column| match self.planned.outputs.get(column) {
            Some(Output::Column(column)) => Some(*column),
            None if self.planned.outputs.is_empty() => Some(column),
            _ => None,
        })?;
        let mut planned = Planned { children: self.children.clone(), ..(*self.planned).clone() };
        match &mut planned.program.answer.sink {
            Sink::Aggregate { sets, output: output @ AggregateOutput::Final, .. }
                if sets.is_empty() =>
            {
                *output = AggregateOutput::First(first);
            }
            _ => return None,
        }
        let (runner, original) = (Arc::clone(&self.runner), Arc::clone(&self.original));
        Some(Self::new(runner, self.settings.clone(), planned, original, self.why_not.clone()))
    }

    /// The settings that it was planned under.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What will run a stage of its program, lowered or not, and why not the processor that comes first.
    pub fn processor_of(&self, program: &Program, stage: usize) -> (&'static str, Option<WhyNot>) {
        let tables = self.planned.tables.iter().cloned();
        // Of child plans the columns are enough to tell.
        let tables: Vec<_> = tables.chain(self.children.iter().map(without_rows)).collect();
        let placed = served::place(program, stage, &tables, &self.settings);
        let here = || self.runner.place(program, stage, &tables, &self.settings);
        match placed.unwrap_or_else(here) {
            Ok(()) => ("cuda", None),
            Err(reason) => ("cpu", Some(reason)),
        }
    }

    /// The program with its tables.
    pub fn planned(&self) -> &Arc<Planned> {
        &self.planned
    }

    /// The streamed table.
    pub fn table(&self) -> &str {
        &self.planned.program.answer.source.table
    }

    /// Why the nodes above are not part of the pipeline.
    pub fn why_not(&self) -> &[WhyNot] {
        &self.why_not
    }

    /// What the last run did; `None` before its end.
    pub fn report(&self) -> Option<RunReport> {
        self.report.lock().clone()
    }

    /// PCI address of the GPU that runs it, if one does.
    pub(crate) fn gpu_address(&self) -> Option<String> {
        let program = &self.planned.program;
        let is_cuda = match self.report() {
            // It is another process's.
            Some(report) if report.served.is_some() => false,
            Some(report) => report.placed().iter().any(|stage| stage.processor == "cuda"),
            None => {
                let origins = program.origins(program.stages.len());
                origins.iter().any(|&stage| self.processor_of(program, stage).0 == "cuda")
            }
        };
        if !is_cuda {
            return None;
        }
        let cuda = self.runner.cuda(&self.settings.devices).ok()?;
        Some(cuda.device().info().pcie_id.clone())
    }

    pub(super) fn runner(&self) -> &Arc<Runner> {
        &self.runner
    }

    pub(super) fn known(&self) -> &KnownProgram {
        &self.known
    }

    pub(super) fn original(&self) -> &Arc<dyn ExecutionPlan> {
        &self.original
    }

    pub(super) fn record_output(&self, rows: usize) {
        MetricBuilder::new(&self.metrics).output_rows(0).add(rows);
    }

    /// Keeps a report.
    pub(super) fn record(&self, report: RunReport) {
        *self.report.lock() = Some(report);
    }
}

/// A child plan's columns as a table.
fn without_rows(child: &Arc<dyn ExecutionPlan>) -> Arc<StreamTable> {
    let table = BatchTable::new(child.name(), &child.schema(), Ready(std::iter::empty()));
    Arc::new(StreamTable::new(child.name(), Arc::new(table)))
}

impl ExecutionPlan for PipelineExec {
    fn name(&self) -> &str {
        "PipelineExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.children.iter().collect()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let all = vec![Distribution::UnspecifiedDistribution; self.children.len()];
        InputDistributionRequirements::new(all)
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Their rows may have other types than those before.
        let known = Arc::default();
        Ok(Arc::new(Self { children, known, ..(*self).clone() }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        self.replace_children(children, mode)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            metrics: ExecutionPlanMetricsSet::new(),
            report: Arc::default(),
            ..(*self).clone()
        }))
    }

    fn fetch(&self) -> Option<usize> {
        match &self.planned.program.answer.sink {
            Sink::Rows { limit, .. } | Sink::Sorted { limit, .. } => {
                limit.and_then(|l| usize::try_from(l).ok())
            }
            _ => None,
        }
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let mut planned = (*self.planned).clone();
        let (Sink::Rows { limit, .. } | Sink::Sorted { limit, .. }) =
            &mut planned.program.answer.sink
        else {
            return None;
        };
        *limit = fetch.map(|fetch| fetch as u64);
        let (planned, known) = (Arc::new(planned), Arc::default());
        Some(Arc::new(Self { planned, known, ..self.clone() }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("PipelineExec has one partition, not {partition}");
        }
        Ok(stream(self.clone(), context))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    /// Those of what it replaced: by them the planner chooses the side of a join above that it holds in memory. No answer is
    /// taken from them.
    fn statistics_from_inputs(
        &self,
        _input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        if args.partition().is_some() {
            return Ok(Arc::new(Statistics::new_unknown(&self.schema())));
        }
        let original = StatisticsContext::new().compute(self.original.as_ref(), args)?;
        Ok(Arc::new(Arc::unwrap_or_clone(original).to_inexact()))
    }
}
