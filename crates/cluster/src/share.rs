//! The node that runs a program over shares of a table.
//!
//! All shares of a task are one race, whose output is that of the first partition; the others are empty. What a task puts out is
//! kept or made again as a whole, so that nobody sees which partition it came from.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PhysicalExpr, PlanProperties,
};
use futures::TryStreamExt;
use headrace_engine::exec::conform;
use headrace_flow::CancelToken;
use headrace_format::TablePart;
use headrace_ir::{AggregateOutput, Sink};
use headrace_runner::Request;

use crate::failure::{told, told_of};
use crate::message::{Message, ShareWork};
use crate::place::Place;
use crate::shares::{self, ShareRow};
use crate::stages;
use crate::thread::{self, Emit};

/// The node. Its child's rows are shares.
#[derive(Clone, Debug)]
pub struct PipelineShareExec {
    work: Arc<ShareWork>,
    schema: SchemaRef,
    shares: Arc<dyn ExecutionPlan>,
    /// Where it runs; `None`: in a plan that is only looked at.
    place: Option<Arc<Place>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl PipelineShareExec {
    /// A node over shares.
    ///
    /// # Errors
    /// The child has other rows than shares, or the columns cannot be read.
    pub fn new(
        work: Arc<ShareWork>,
        shares: Arc<dyn ExecutionPlan>,
        place: Option<Arc<Place>>,
    ) -> Result<Self> {
        if shares.schema().fields() != shares::schema().fields() {
            return plan_err!("a pipeline over shares of a table has other rows below it");
        }
        let schema = work.columns.schema()?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(shares.output_partitioning().partition_count()),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Self { work, schema, shares, place, properties, metrics })
    }

    /// What others need to have it.
    pub fn message(&self) -> Message {
        Message::Share(Box::new(self.work.as_ref().clone()))
    }

    async fn start(self, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(place) = self.place.clone() else {
            return internal_err!("PipelineShareExec runs on executors");
        };
        let mut rows = Vec::new();
        for partition in 0..self.shares.output_partitioning().partition_count() {
            let batches = self.shares.execute(partition, Arc::clone(&context))?;
            for batch in batches.try_collect::<Vec<_>>().await? {
                rows.extend(shares::rows(&batch)?);
            }
        }
        let (schema, work) = (Arc::clone(&self.schema), Arc::clone(&self.work));
        let rows_out = MetricBuilder::new(&self.metrics).output_rows(0);
        thread::rows(schema, move |token, emit| {
            let counted = |batch: Result<RecordBatch>| {
                batch.iter().for_each(|batch| rows_out.add(batch.num_rows()));
                emit(batch)
            };
            self.run(&place, &work, &rows, token, &counted)
        })
    }

    fn run(
        &self,
        place: &Place,
        work: &ShareWork,
        rows: &[ShareRow],
        token: &CancelToken,
        emit: Emit<'_>,
    ) -> Result<()> {
        let tables = work.tables.iter().map(|table| place.table(table).map_err(told_of));
        let mut tables = tables.collect::<Result<Vec<_>>>()?;
        let ranges = shares::ranges(&work.tables[work.divided].table, rows)?;
        let whole = &tables[work.divided];
        let part = TablePart::new(Arc::clone(whole.source()), ranges);
        tables.push(Arc::new(whole.over(Arc::new(part))));
        let settings = place.settings(&work.settings);
        let (program, tables, settings) = (&work.program, &tables[..], &settings);
        let request = Request { program, parameters: &[], tables, settings, token, known: None };
        let emit = |batch: RecordBatch| emit(self.put(batch));
        let began = Instant::now();
        let report = place.runner().run(&request, &emit).map_err(told)?;
        stages::note(&self.metrics, &report, began.elapsed(), place.address());
        Ok(())
    }

    /// A batch of the program as it leaves the node.
    fn put(&self, batch: RecordBatch) -> Result<RecordBatch> {
        match self.work.program.answer.sink {
            Sink::Aggregate { output: AggregateOutput::Partial, .. } => {
                match batch.schema() == self.schema {
                    true => Ok(batch),
                    false => internal_err!("partial states have other columns than were planned"),
                }
            }
            _ => conform(&batch, &[], &self.schema),
        }
    }
}

impl DisplayAs for PipelineShareExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShareWork { program, tables, divided, .. } = self.work.as_ref();
        let shares = self.shares.output_partitioning().partition_count();
        let sink = headrace_ir::Program::sink_line(&program.answer.sink);
        let name = &tables[*divided].name;
        write!(f, "PipelineShareExec: {name} in {shares} shares, {sink}")?;
        match program.stages.len() {
            0 => Ok(()),
            builds => write!(f, ", builds={builds} made by each executor"),
        }
    }
}

impl ExecutionPlan for PipelineShareExec {
    fn name(&self) -> &str {
        "PipelineShareExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.shares]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(shares), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("PipelineShareExec has one child");
        };
        Ok(Arc::new(Self::new(Arc::clone(&self.work), shares, self.place.clone())?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition > 0 {
            return Ok(thread::nothing(&self.schema));
        }
        let started = futures::stream::once(self.clone().start(context)).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), started)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
