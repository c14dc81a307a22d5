//! Batches from the thread that runs a pipeline to the async stream that a plan wants.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::{DataFusionError, Result, exec_err, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{EmissionType, reset_plan_states};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use futures::{Stream, StreamExt, TryStreamExt};
use headrace_flow::CancelToken;
use headrace_format::batches::{
    BatchStream, BatchTable, ProducerError, schema_without_views, without_views,
};
use headrace_ir::Scalar;
use headrace_pipeline::{ExecError, WhyNot};
use headrace_runner::{
    ErrorClass, Fallback, Request, RunError, RunReport, StageReport, StreamTable, on_cpu,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::fallback::finish_plan;
use super::output::Output;
use super::plan::PipelineExec;
use super::served::{self, Outcome};
use crate::error::{forbidden, run_error};
use crate::floats::one_nan;
use crate::planner_memory::in_pieces;
use crate::rule::types::scalar;

/// Batches in the channel at once: the reader is never far behind, and a reader that stops
/// stops the race.
pub(super) const CHANNEL_BATCHES: usize = 4;

enum Message {
    Batch(RecordBatch),
    /// The processor does not take the pipeline; nothing came before this.
    Refused(WhyNot),
    Failed(DataFusionError),
    Done(Box<RunReport>),
}

/// Starts a pipeline when it is first polled.
pub fn stream(node: PipelineExec, context: Arc<TaskContext>) -> SendableRecordBatchStream {
    let schema = node.schema();
    let token = CancelToken::new();
    let guard = CancelOnDrop(token.clone());
    let started = futures::stream::once(start(node, context, token)).try_flatten();
    let stream = RecordBatchStreamAdapter::new(Arc::clone(&schema), started);
    Box::pin(Guarded::new(schema, Box::pin(stream), guard))
}

async fn start(
    node: PipelineExec,
    context: Arc<TaskContext>,
    token: CancelToken,
) -> Result<SendableRecordBatchStream> {
    let children = node.children().into_iter().map(|child| child_table(child, &context)).collect();
    let run = Run { node: node.clone(), children, token };
    let (sender, mut receiver) = mpsc::channel(CHANNEL_BATCHES);
    let schema = node.schema();
    spawn(run, sender, Arc::clone(&schema))?;
    // The first message decides who answers.
    let first = receiver.recv().await;
    if let Some(Message::Refused(reason)) = first {
        if node.settings().fallback == Fallback::Forbid {
            return Err(forbidden(&reason));
        }
        return by_planner(&node, context, &reason);
    }
    let inbox = Inbox { node, receiver, next: first, rows: 0, ended: false };
    let batches = futures::stream::unfold(inbox, |mut inbox| async {
        inbox.batch().await.transpose().map(|batch| (batch, inbox))
    });
    let batches = in_pieces(batches, &context);
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}

/// What the thread of a pipeline takes along.
struct Run {
    node: PipelineExec,
    /// The rows of each child plan, as a table.
    children: Vec<Arc<StreamTable>>,
    token: CancelToken,
}

impl Run {
    fn run(
        &self,
        emit: &(dyn Fn(RecordBatch) -> bool + Send + Sync),
    ) -> Result<RunReport, RunError> {
        let planned = self.node.planned();
        let mut tables = planned.tables.clone();
        let is_above = !self.children.is_empty();
        tables.extend(self.children.iter().cloned());
        let parameters = values(&planned.subqueries)?;
        let request = Request {
            program: &planned.program,
            parameters: &parameters,
            tables: &tables,
            settings: self.node.settings(),
            token: &self.token,
            known: Some(self.node.known()),
        };
        let report = match served::run(&request, emit)? {
            Outcome::Ran(report) => *report,
            Outcome::Here => self.run_here(&request, is_above, emit)?,
            Outcome::NotThere { why, gpus_are_taken } => {
                // A second process with a context and memory of its own would take longer to begin than the cores to end.
                let on_cores = gpus_are_taken && request.settings.fallback == Fallback::Allow;
                let cores = on_cpu(request.settings);
                let settings = if on_cores { &cores } else { request.settings };
                let request = Request { settings, ..request };
                let report = self.run_here(&request, is_above, emit);
                let report = report.map_err(|error| match error {
                    // It could have run there.
                    RunError::WhyNot(here) if gpus_are_taken => RunError::WhyNot(WhyNot::new(
                        format!("{here}; not in the gpu-service: {why}"),
                    )),
                    error => error,
                })?;
                RunReport { served_why_not: Some(why.to_string()), ..report }
            }
        };
        Ok(report)
    }

    /// Runs a program by this process.
    fn run_here(
        &self,
        request: &Request<'_>,
        is_above: bool,
        emit: &(dyn Fn(RecordBatch) -> bool + Send + Sync),
    ) -> Result<RunReport, RunError> {
        match is_above {
            true => self.node.runner().run_above(request, emit),
            false => {
                let runner = self.node.runner();
                let report = runner.run(request, emit)?;
                if report.wants_rehearsal {
                    runner.rehearse(request);
                }
                Ok(report)
            }
        }
    }
}

/// What subqueries of one value gave: the plan around this one has run them before.
fn values(subqueries: &[Arc<dyn PhysicalExpr>]) -> Result<Vec<Scalar>, RunError> {
    let nothing = RecordBatch::new_empty(Arc::new(Schema::empty()));
    let value = |subquery: &Arc<dyn PhysicalExpr>| match subquery.evaluate(&nothing) {
        Ok(ColumnarValue::Scalar(value)) => scalar(&value).map_err(RunError::WhyNot),
        Ok(ColumnarValue::Array(_)) => {
            Err(ExecError::Internal(format!("{subquery} has many values")).into())
        }
        Err(error) => Err(ExecError::Internal(error.to_string()).into()),
    };
    subqueries.iter().map(value).collect()
}

/// The rows of a child plan as a table that is read once.
fn child_table(child: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Arc<StreamTable> {
    let (child, context, runtime) = (Arc::clone(child), Arc::clone(context), Handle::current());
    let name = child.name().to_string();
    let schema = schema_without_views(&child.schema());
    let rows = ChildRows::Waiting { child, context, runtime };
    Arc::new(StreamTable::new(&name, Arc::new(BatchTable::new(&name, &schema, rows))))
}

/// Rows that tasks of the planner's make: asking for them takes no time.
enum ChildRows {
    /// Nobody has asked yet: what is not wanted yet takes no memory.
    Waiting { child: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>, runtime: Handle },
    /// All partitions at the same time.
    Running(SendableRecordBatchStream),
}

impl ChildRows {
    fn stream(&mut self) -> Result<&mut SendableRecordBatchStream> {
        if let Self::Waiting { child, context, runtime } = self {
            let _entered = runtime.enter();
            *self = Self::Running(all_partitions(child, context)?);
        }
        match self {
            Self::Running(stream) => Ok(stream),
            Self::Waiting { .. } => internal_err!("a child plan that does not start"),
        }
    }
}

fn all_partitions(
    child: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let mut merged = RecordBatchReceiverStream::builder(child.schema(), CHANNEL_BATCHES);
    for partition in 0..child.properties().partitioning.partition_count() {
        let (rows, mut child) = (merged.tx(), child.execute(partition, Arc::clone(context))?);
        merged.spawn(async move {
            // Whoever reads may have enough.
            while let Some(batch) = child.next().await {
                let batch = batch.and_then(|batch| Ok(without_views(batch)?));
                let is_last = batch.is_err();
                if rows.send(batch).await.is_err() || is_last {
                    break;
                }
            }
            Ok(())
        });
    }
    Ok(merged.build())
}

impl BatchStream for ChildRows {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<Result<RecordBatch, ProducerError>>> {
        let stream = match self.stream() {
            Ok(stream) => stream,
            Err(error) => return Poll::Ready(Some(Err(error.into()))),
        };
        let mut context = Context::from_waker(waker);
        stream.poll_next_unpin(&mut context).map(|next| next.map(|batch| Ok(batch?)))
    }
}

/// The reading end of the channel.
struct Inbox {
    node: PipelineExec,
    receiver: mpsc::Receiver<Message>,
    next: Option<Message>,
    rows: usize,
    ended: bool,
}

impl Inbox {
    async fn receive(&mut self) -> Option<Message> {
        match self.next.take() {
            Some(message) => Some(message),
            None => self.receiver.recv().await,
        }
    }

    /// The next batch; `None` at the end. A thread that ends without saying that it is done
    /// has panicked: the rows so far are not the answer.
    async fn batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.ended {
            return Ok(None);
        }
        match self.receive().await {
            Some(Message::Batch(batch)) => {
                self.node.record_output(batch.num_rows());
                self.rows += batch.num_rows();
                // Who has all the rows of a limit asks no more: the report must come before. A limit that the node does not
                // know may be any; rows that come at the end of a run need not wait for the report.
                let is_at_end = self.node.properties().emission_type == EmissionType::Final;
                if is_at_end || self.node.fetch().is_some_and(|limit| self.rows >= limit) {
                    self.finish().await?;
                }
                Ok(Some(batch))
            }
            last => self.end(last).map(|()| None),
        }
    }

    async fn finish(&mut self) -> Result<()> {
        match self.receive().await {
            batch @ Some(Message::Batch(_)) => {
                self.next = batch;
                Ok(())
            }
            last => self.end(last),
        }
    }

    fn end(&mut self, last: Option<Message>) -> Result<()> {
        self.ended = true;
        match last {
            Some(Message::Done(report)) => {
                self.node.record(*report);
                Ok(())
            }
            Some(Message::Refused(reason)) => Err(forbidden(&reason)),
            Some(Message::Failed(error)) => Err(error),
            Some(Message::Batch(_)) => internal_err!("a batch at the end of a pipeline"),
            None => exec_err!("the thread of the pipeline over {} panicked", self.node.table()),
        }
    }
}

/// Runs on a thread that has nothing else to do.
fn spawn(run: Run, sender: mpsc::Sender<Message>, schema: SchemaRef) -> Result<()> {
    let planned = Arc::clone(run.node.planned());
    let body = move || {
        let emit = |batch: RecordBatch| match conform(&batch, &planned.outputs, &schema) {
            Ok(batch) => sender.blocking_send(Message::Batch(batch)).is_ok(),
            Err(error) => {
                let _ = sender.blocking_send(Message::Failed(error));
                false
            }
        };
        let last = match run.run(&emit) {
            Ok(report) => Message::Done(Box::new(report)),
            Err(RunError::WhyNot(reason)) => Message::Refused(reason),
            // Nobody listens to a run that was cancelled.
            Err(error) if error.class() == ErrorClass::Cancelled => return,
            Err(error) => Message::Failed(run_error(error)),
        };
        let _ = sender.blocking_send(last);
    };
    headrace_io::on_thread(body).map_err(DataFusionError::from)
}

/// A batch of a program in the types of the plan (text as the dictionary that the table has, for one).
///
/// # Errors
/// A value that has no place in its type.
pub fn conform(batch: &RecordBatch, outputs: &[Output], schema: &SchemaRef) -> Result<RecordBatch> {
    let made = match outputs.is_empty() {
        true => batch.columns().to_vec(),
        false => outputs.iter().map(|output| output.of(batch)).collect::<Result<_>>()?,
    };
    let columns = made
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            if column.data_type() == field.data_type() {
                Ok(one_nan(column))
            } else {
                cast(column, field.data_type())
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// The replaced fragment, run by the planner's operators.
fn by_planner(
    node: &PipelineExec,
    context: Arc<TaskContext>,
    reason: &WhyNot,
) -> Result<SendableRecordBatchStream> {
    let started = Instant::now();
    // A plan that is run again must not find what its joins kept of the run before.
    let original = reset_plan_states(Arc::clone(node.original()))?;
    let planner_bytes = node.runner().memory().planner_bytes;
    let mut plan = finish_plan(original, context.session_config().options(), planner_bytes)?;
    // The fragment was replaced before a limit was pushed into its pipeline.
    if let Some(limit) = node.fetch() {
        plan = Arc::new(GlobalLimitExec::new(plan, 0, Some(limit)));
    }
    let streamed = StageReport {
        table: node.table().to_string(),
        processor: "planner".into(),
        processor_why_not: Some(reason.to_string()),
        wall_ms: started.elapsed().as_secs_f64() * 1e3,
        ..StageReport::default()
    };
    node.record(RunReport { streamed, ..RunReport::default() });
    plan.execute(0, context)
}

/// Cancels a race when nobody wants its rows any more.
pub(super) struct CancelOnDrop(pub CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A stream that cancels when it is dropped.
pub(super) struct Guarded {
    schema: SchemaRef,
    inner: SendableRecordBatchStream,
    _guard: CancelOnDrop,
}

impl Guarded {
    pub fn new(schema: SchemaRef, inner: SendableRecordBatchStream, guard: CancelOnDrop) -> Self {
        Self { schema, inner, _guard: guard }
    }
}

impl Stream for Guarded {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inner.poll_next_unpin(context)
    }
}

impl RecordBatchStream for Guarded {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
