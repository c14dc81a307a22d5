//! The node that merges partial states, and finishes the groups.
//!
//! Each partition merges what comes in its own: all states of a group, or of all groups.

use std::fmt;
use std::io;
use std::sync::Arc;

use ballista_core::error::BallistaError;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, exec_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PhysicalExpr, PlanProperties,
};
use futures::StreamExt;
use headrace_engine::exec::{Output, conform};
use headrace_flow::CancelToken;
use headrace_runner::RunError;
use tokio::sync::mpsc::{self, Receiver};

use crate::failure::told;
use crate::message::{MergeWork, Message};
use crate::outputs::SentOutput;
use crate::place::Place;
use crate::thread::{self, Emit};

/// Batches that wait to be merged.
const CHANNEL_BATCHES: usize = 4;

/// A batch of states; `None`: there are no more. Without that word the states are not all there are.
type States = Result<Option<RecordBatch>>;

/// The node. Its child's rows are partial states.
#[derive(Clone, Debug)]
pub struct PipelineMergeExec {
    work: Arc<MergeWork>,
    schema: SchemaRef,
    outputs: Arc<[Output]>,
    states: Arc<dyn ExecutionPlan>,
    /// Where it runs; `None`: in a plan that is only looked at.
    place: Option<Arc<Place>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl PipelineMergeExec {
    /// A node over partial states.
    ///
    /// # Errors
    /// The columns cannot be read.
    pub fn new(
        work: Arc<MergeWork>,
        states: Arc<dyn ExecutionPlan>,
        place: Option<Arc<Place>>,
    ) -> Result<Self> {
        let schema = work.columns.schema()?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(states.output_partitioning().partition_count()),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let outputs = work.outputs.iter().map(SentOutput::output).collect();
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Self { work, schema, outputs, states, place, properties, metrics })
    }

    /// What others need to have it.
    pub fn message(&self) -> Message {
        Message::Merge(Box::new(self.work.as_ref().clone()))
    }

    fn run(
        &self,
        place: &Place,
        states: &mut Receiver<States>,
        token: &CancelToken,
        emit: Emit<'_>,
    ) -> Result<()> {
        let failed = |error| told(RunError::Exec(error));
        let mut merge = place.runner().merge(&self.work.program, &[], token).map_err(told)?;
        loop {
            match states.blocking_recv() {
                Some(Ok(Some(batch))) => merge.push(&batch).map_err(failed)?,
                Some(Ok(None)) => break,
                Some(Err(error)) => return Err(error),
                None => return exec_err!("partial states ended before their end"),
            }
        }
        let emit = |batch: RecordBatch| emit(conform(&batch, &self.outputs, &self.schema));
        merge.finish(&emit).map_err(failed)
    }
}

/// Reads states for a thread that waits for them.
fn pumped(mut from: SendableRecordBatchStream) -> (SpawnedTask<()>, Receiver<States>) {
    let (sender, receiver) = mpsc::channel(CHANNEL_BATCHES);
    let pump = SpawnedTask::spawn(async move {
        loop {
            let next = from.next().await.transpose().map_err(passing);
            let is_last = !matches!(next, Ok(Some(_)));
            if sender.send(next).await.is_err() || is_last {
                break;
            }
        }
    });
    (pump, receiver)
}

/// An error of states that are fetched. Ballista knows one at the beginning as such, and makes the states again; one in the middle,
/// where an executor is lost, is an error of input: the task is tried again, and meets the former.
fn passing(error: DataFusionError) -> DataFusionError {
    let is_known = |cause: &BallistaError| matches!(cause, BallistaError::FetchFailed(..));
    match error.find_root() {
        DataFusionError::External(cause) if cause.downcast_ref().is_some_and(is_known) => error,
        _ => DataFusionError::IoError(io::Error::other(error.to_string())),
    }
}

impl DisplayAs for PipelineMergeExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sink = headrace_ir::Program::sink_line(&self.work.program.answer.sink);
        write!(f, "PipelineMergeExec: {sink}")
    }
}

impl ExecutionPlan for PipelineMergeExec {
    fn name(&self) -> &str {
        "PipelineMergeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.states]
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
        let (Some(states), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("PipelineMergeExec has one child");
        };
        Ok(Arc::new(Self::new(Arc::clone(&self.work), states, self.place.clone())?))
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
        let Some(place) = self.place.clone() else {
            return internal_err!("PipelineMergeExec runs on executors");
        };
        let (pump, mut states) = pumped(self.states.execute(partition, context)?);
        let rows_out = MetricBuilder::new(&self.metrics).output_rows(partition);
        let node = self.clone();
        thread::rows(Arc::clone(&self.schema), move |token, emit| {
            let counted = |batch: Result<RecordBatch, DataFusionError>| {
                batch.iter().for_each(|batch| rows_out.add(batch.num_rows()));
                emit(batch)
            };
            let done = node.run(&place, &mut states, token, &counted);
            drop(pump);
            done
        })
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
