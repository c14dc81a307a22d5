//! ORDER BY of rows of any number: as a node of a plan, sorted by all cores, by way of temporary files where the
//! memory is too small.
//!
//! ```text
//! child ─► a few rows: sorted at once ──────────────────────────────────────┐
//!   └────► more ─► channel ─► a thread: ooc::sort::table::BatchSort ─► channel ─┴─► rows in order
//! ```
//!
//! The planner's own sort stays where columns cannot be moved one by one (lists of texts with dictionaries), and where
//! only the first rows are wanted.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::compute::{
    SortColumn, SortOptions, concat_batches, lexsort_to_indices, take_record_batch,
};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, exec_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{Distribution, EquivalenceProperties, LexOrdering};
use datafusion::physical_plan::distribution_requirements::InputDistributionRequirements;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};
use futures::TryStreamExt;
use headrace_flow::CancelToken;
use headrace_ir::OrderKey;
use headrace_ooc::OocError;
use headrace_ooc::sort::table::{BatchSort, BatchSortOptions, BatchSortReport};
use headrace_runner::Runner;
use tokio::sync::mpsc;

use super::stream::{CHANNEL_BATCHES, CancelOnDrop, Guarded};
use crate::error::external;
use crate::floats::one_zero;
use crate::planner_memory::{batch_bytes, in_pieces};

/// Rows of so few bytes are sorted at once.
const SMALL_BYTES: usize = 1 << 20;

/// Rows in the order of some expressions; one output partition.
#[derive(Clone, Debug)]
pub struct OrderExec {
    runner: Arc<Runner>,
    threads: usize,
    input: Arc<dyn ExecutionPlan>,
    order: LexOrdering,
    keys: Arc<Keys>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl OrderExec {
    /// A node in place of a sort of the planner.
    ///
    /// # Errors
    /// Why its rows cannot be sorted here.
    pub fn in_place_of(sort: &SortExec, runner: Arc<Runner>, threads: usize) -> Result<Self> {
        let node = Self::new(runner, threads, Arc::clone(sort.input()), sort.expr().clone())?;
        BatchSort::check(&node.keys.schema, &node.keys.order).map_err(external)?;
        Ok(node)
    }

    fn new(
        runner: Arc<Runner>,
        threads: usize,
        input: Arc<dyn ExecutionPlan>,
        order: LexOrdering,
    ) -> Result<Self> {
        let keys = Arc::new(Keys::of(&order, input.schema())?);
        let orderings = [order.iter().cloned().collect::<Vec<_>>()];
        let equivalence = EquivalenceProperties::new_with_orderings(input.schema(), orderings);
        let properties = PlanProperties::new(
            equivalence,
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            input.properties().boundedness,
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Self { runner, threads, input, order, keys, properties, metrics })
    }

    fn sort(&self, token: CancelToken) -> Result<BatchSort, OocError> {
        let options = BatchSortOptions {
            threads: self.threads,
            memory: self.runner.operator_memory(),
            spills: Arc::clone(self.runner.spill_folder()),
            token,
        };
        BatchSort::new(&self.keys.schema, &self.keys.order, options)
    }

    fn record(&self, report: &BatchSortReport) {
        MetricBuilder::new(&self.metrics).output_rows(0).add(report.rows as usize);
        let spilled = MetricBuilder::new(&self.metrics).spilled_bytes(0);
        spilled.add(report.temporary_bytes as usize);
    }
}

impl DisplayAs for OrderExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if t != DisplayFormatType::TreeRender {
            f.write_str("OrderExec: ")?;
        }
        write!(f, "[{}], {} threads", self.order, self.threads)
    }
}

impl ExecutionPlan for OrderExec {
    fn name(&self) -> &str {
        "OrderExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for key in &self.order {
            if f(&key.expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("OrderExec has one child");
        };
        Ok(Arc::new(Self::new(Arc::clone(&self.runner), self.threads, input, self.order.clone())?))
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

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { metrics: ExecutionPlanMetricsSet::new(), ..(*self).clone() }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("OrderExec has one partition, not {partition}");
        }
        let (schema, token) = (self.schema(), CancelToken::new());
        let guard = CancelOnDrop(token.clone());
        let sorted = futures::stream::once(sorted(self.clone(), context, token)).try_flatten();
        let inner = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), sorted));
        Ok(Box::pin(Guarded::new(schema, inner, guard)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// What rows are ordered by: columns, and behind all others those that are computed for it.
#[derive(Debug)]
struct Keys {
    columns: usize,
    computed: Vec<Arc<dyn PhysicalExpr>>,
    order: Vec<OrderKey>,
    /// With the computed ones.
    schema: SchemaRef,
}

impl Keys {
    fn of(ordering: &LexOrdering, input: SchemaRef) -> Result<Self> {
        let columns = input.fields().len();
        let (mut computed, mut fields) = (Vec::new(), input.fields().to_vec());
        let mut order = Vec::new();
        for key in ordering {
            let column = match key.expr.downcast_ref::<Column>() {
                Some(column) => column.index(),
                None => {
                    let name = format!("key {}", computed.len());
                    let data_type = key.expr.return_field(&input)?.data_type().clone();
                    fields.push(Arc::new(Field::new(name, data_type, true)));
                    computed.push(Arc::clone(&key.expr));
                    columns + computed.len() - 1
                }
            };
            let options = key.options;
            order.push(OrderKey {
                column,
                descending: options.descending,
                nulls_first: options.nulls_first,
            });
        }
        let schema = match computed.is_empty() {
            true => input,
            false => Arc::new(Schema::new(fields)),
        };
        Ok(Self { columns, computed, order, schema })
    }

    /// A batch with the columns that are computed for its order.
    fn with_computed(&self, batch: RecordBatch) -> Result<RecordBatch> {
        if self.computed.is_empty() {
            return Ok(batch);
        }
        let mut columns = batch.columns().to_vec();
        for expr in &self.computed {
            columns.push(expr.evaluate(&batch)?.into_array(batch.num_rows())?);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    /// A batch as it is put out.
    fn without_computed(&self, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let columns = batch.columns()[..self.columns].to_vec();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    }
}

/// The rows of a node's child, in order.
async fn sorted(
    node: OrderExec,
    context: Arc<TaskContext>,
    token: CancelToken,
) -> Result<SendableRecordBatchStream> {
    let (schema, keys) = (node.schema(), Arc::clone(&node.keys));
    let mut input = node.input.execute(0, Arc::clone(&context))?;
    let (mut first, mut first_bytes) = (Vec::new(), 0);
    while first_bytes <= SMALL_BYTES {
        match input.try_next().await? {
            Some(batch) => {
                first_bytes += batch_bytes(&batch)?;
                first.push(keys.with_computed(batch)?);
            }
            None => {
                let batch = sorted_at_once(&keys, &first, &schema)?;
                let rows = batch.num_rows() as u64;
                node.record(&BatchSortReport { rows, passes: 1, temporary_bytes: 0 });
                let batches = futures::stream::iter((rows > 0).then_some(Ok(batch)));
                return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)));
            }
        }
    }
    let sort = node.sort(token).map_err(external)?;
    let (to_sort, unsorted) = mpsc::channel(CHANNEL_BATCHES);
    let (emit, receiver) = mpsc::channel(CHANNEL_BATCHES);
    spawn(sort, unsorted, emit)?;
    let mut first = first.into_iter();
    loop {
        let batch = match first.next() {
            Some(batch) => batch,
            None => match input.try_next().await? {
                Some(batch) => keys.with_computed(batch)?,
                None => break,
            },
        };
        // A sort that listens no more says why below.
        if to_sort.send(Some(batch)).await.is_err() {
            break;
        }
    }
    drop(input);
    to_sort.send(None).await.ok();
    let out = Arc::clone(&schema);
    let batches = futures::stream::unfold((receiver, false), move |(mut receiver, ended)| {
        let (node, keys, out) = (node.clone(), Arc::clone(&keys), Arc::clone(&out));
        async move {
            if ended {
                return None;
            }
            match receiver.recv().await {
                Some(Message::Batch(batch)) => {
                    Some((keys.without_computed(&batch, &out), (receiver, false)))
                }
                Some(Message::Done(report)) => {
                    node.record(&report);
                    None
                }
                Some(Message::Failed(error)) => Some((Err(error), (receiver, true))),
                None => Some((exec_err!("the thread of a sort panicked"), (receiver, true))),
            }
        }
    });
    let batches = in_pieces(batches, &context);
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}

enum Message {
    Batch(RecordBatch),
    Failed(DataFusionError),
    Done(BatchSortReport),
}

/// Sorts on a thread that has nothing else to do what comes, until `None`.
fn spawn(
    mut sort: BatchSort,
    mut unsorted: mpsc::Receiver<Option<RecordBatch>>,
    emit: mpsc::Sender<Message>,
) -> Result<()> {
    let body = move || {
        let run = || -> Result<Option<BatchSortReport>, OocError> {
            loop {
                match unsorted.blocking_recv() {
                    Some(Some(batch)) => sort.push(&batch)?,
                    Some(None) => break,
                    // Whoever fed it has failed, or is gone.
                    None => return Ok(None),
                }
            }
            sort.finish(|batch| emit.blocking_send(Message::Batch(batch)).is_ok()).map(Some)
        };
        let last = match run() {
            Ok(Some(report)) => Message::Done(report),
            // Nobody listens.
            Ok(None) | Err(OocError::Cancelled) => return,
            Err(error @ OocError::Budget(_)) => {
                Message::Failed(DataFusionError::ResourcesExhausted(error.to_string()))
            }
            Err(error) => Message::Failed(external(error)),
        };
        emit.blocking_send(last).ok();
    };
    headrace_io::on_thread(body).map_err(DataFusionError::from)
}

/// A few rows in their order, without computed columns.
fn sorted_at_once(keys: &Keys, batches: &[RecordBatch], schema: &SchemaRef) -> Result<RecordBatch> {
    let all = concat_batches(&keys.schema, batches)?;
    let column = |key: &OrderKey| {
        let OrderKey { column, descending, nulls_first } = *key;
        let options = SortOptions { descending, nulls_first };
        SortColumn { values: one_zero(all.column(column)), options: Some(options) }
    };
    let columns: Vec<SortColumn> = keys.order.iter().map(column).collect();
    let order = lexsort_to_indices(&columns, None)?;
    keys.without_computed(&take_record_batch(&all, &order)?, schema)
}
