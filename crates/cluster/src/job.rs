//! The node that has a part of a plan run by the cluster.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties, displayable,
};
use datafusion_proto::physical_plan::AsExecutionPlan;
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures::{StreamExt, TryStreamExt};
use headrace_engine::exec::conform;
use parking_lot::Mutex;
use prost::Message;

use crate::client::{Job, fetched};
use crate::codec::ClusterCodec;
use crate::settings::{MESSAGE_BYTES_MAX, Scheduler};
use crate::stages;

/// The rest of a message: the settings beside a plan.
const REST_BYTES: usize = 1 << 20;

/// The node. It has no children here: what it sends runs elsewhere.
#[derive(Clone, Debug)]
pub struct ClusterExec {
    scheduler: Scheduler,
    plan: Arc<dyn ExecutionPlan>,
    /// Those of the plan that it stands for.
    properties: Arc<PlanProperties>,
    /// What its stages did when it ran last.
    stages: Arc<Mutex<Vec<String>>>,
    metrics: ExecutionPlanMetricsSet,
}

/// Whether a plan can be sent.
///
/// # Errors
/// Why not.
pub fn check_sent(plan: &Arc<dyn ExecutionPlan>) -> Result<(), String> {
    let bytes = sent(plan).map_err(|error| format!("it cannot be sent: {error}"))?.encoded_len();
    match bytes + REST_BYTES > MESSAGE_BYTES_MAX {
        true => Err(format!("its plan takes {bytes} bytes, more than a message may")),
        false => Ok(()),
    }
}

fn sent(plan: &Arc<dyn ExecutionPlan>) -> Result<PhysicalPlanNode> {
    PhysicalPlanNode::try_from_physical_plan(Arc::clone(plan), &ClusterCodec::default())
}

impl ClusterExec {
    /// A node that sends a plan, in place of one of one partition. Their columns may differ in how their values lie.
    pub fn new(
        scheduler: Scheduler,
        plan: Arc<dyn ExecutionPlan>,
        in_place_of: &Arc<dyn ExecutionPlan>,
    ) -> Self {
        let properties = Arc::clone(in_place_of.properties());
        Self {
            scheduler,
            plan,
            properties,
            stages: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    async fn start(self) -> Result<SendableRecordBatchStream> {
        let mut plan = Vec::new();
        sent(&self.plan)?.try_encode(&mut plan)?;
        let mut job = Job::submit(&self.scheduler, plan).await?;
        let places = job.done().await?;
        // An answer is one also where nobody knows how it was found.
        let stages = match job.stages().await {
            Ok(told) => stages::lines(&told),
            Err(error) => vec![format!("stages: not known: {error}")],
        };
        *self.stages.lock() = stages;
        let access = self.scheduler.access.clone();
        let rows = futures::stream::iter(places)
            .then(move |place| fetched(place, access.clone()))
            .try_flatten();
        // It is over when its rows are read, or nobody reads them.
        let rows = rows.inspect(move |_| {
            let _job = &job;
        });
        let rows_out = MetricBuilder::new(&self.metrics).output_rows(0);
        let (schema, fields) = (self.schema(), self.plan.schema().fields().len());
        let rows = rows.and_then(move |batch| {
            rows_out.add(batch.num_rows());
            let made = match batch.num_columns() == fields {
                true => conform(&batch, &[], &schema),
                false => exec_err!("the cluster's rows have other columns than were planned"),
            };
            std::future::ready(made)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

impl DisplayAs for ClusterExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterExec: scheduler={}", self.scheduler.address)?;
        let plan = displayable(self.plan.as_ref()).indent(false).to_string();
        plan.lines().try_for_each(|line| write!(f, "\n          {line}"))?;
        self.stages.lock().iter().try_for_each(|line| write!(f, "\n          {line}"))
    }
}

impl ExecutionPlan for ClusterExec {
    fn name(&self) -> &str {
        "ClusterExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            stages: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
            ..self.as_ref().clone()
        }))
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("ClusterExec has one partition, not {partition}");
        }
        let started = futures::stream::once(self.clone().start()).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), started)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
