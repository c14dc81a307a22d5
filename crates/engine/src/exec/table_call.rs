//! A call of a function of a table in CUDA, as a node of a plan.
//!
//! ```text
//! rows (a plan) ─► a thread ─► GPU service: one launch ─► a thread ─► batches
//! twin (a plan) ─────────────────────────────────────────────────► batches, where no service takes the call
//! ```
//!
//! Which of the two answers is known before a row is sent: a service that refuses says so at once. The twin runs also where the
//! service is lost before the first row of the answer, unless the function cost it its GPU.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use datafusion::arrow::compute::cast;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties};
use datafusion::physical_plan::distribution_requirements::InputDistributionRequirements;
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};
use headrace_flow::CancelToken;
use headrace_format::batches::without_views;
use headrace_pipeline::WhyNot;
use headrace_runner::{Fallback, RunReport, Settings, StageReport};
use headrace_service::client::{Connection, RowSender};
use headrace_service::protocol::TableCall;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::served::{self, Called};
use super::stream::{CHANNEL_BATCHES, CancelOnDrop, Guarded};
use crate::error::{Told, blocking, forbidden, run_error};
use crate::failure::Class;
use crate::functions::cuda_table::CudaTable;
use crate::rule::types::scalar;

/// How long is waited for rows, or for room for them, before it is asked whether anybody wants them.
const OFFER: Duration = Duration::from_millis(50);

/// Rows of a message.
const BATCH_ROWS: usize = 64 << 10;

/// A call; one output partition.
#[derive(Clone, Debug)]
pub struct TableCallExec {
    settings: Settings,
    function: Arc<CudaTable>,
    values: Vec<ScalarValue>,
    /// Its rows, then those of its twin, if it has one.
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    report: Arc<Mutex<Option<RunReport>>>,
}

impl TableCallExec {
    /// A call with values, of rows, or of a twin.
    pub fn new(
        settings: Settings,
        function: Arc<CudaTable>,
        values: Vec<ScalarValue>,
        rows: Arc<dyn ExecutionPlan>,
        twin: Option<Arc<dyn ExecutionPlan>>,
    ) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&function.outputs)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        ));
        let inputs = [rows].into_iter().chain(twin).collect();
        Self { settings, function, values, inputs, properties, report: Arc::default() }
    }

    /// What the last run did; `None` before its end.
    pub fn report(&self) -> Option<RunReport> {
        self.report.lock().clone()
    }

    fn name_of_function(&self) -> &str {
        &self.function.function.name
    }

    /// The answer of the twin, or why there is none. `why`: what the service said, if there is one.
    fn by_twin(
        &self,
        why: Option<WhyNot>,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let asked = why.as_ref().map(ToString::to_string);
        let Some(twin) = self.inputs.get(1) else {
            let told = self.function.function.without_twin(asked.as_deref());
            return Err(match (self.settings.fallback, &self.function.twin) {
                (Fallback::Forbid, Some(_)) => {
                    let why = asked.unwrap_or_else(|| "no GPU service is used".into());
                    let name = self.name_of_function();
                    forbidden(&WhyNot::new(format!(
                        "{name}() is CUDA code, and its TWIN may not answer: {why}"
                    )))
                }
                (Fallback::Forbid, None) => forbidden(&WhyNot::new(told)),
                (Fallback::Allow, _) => {
                    let (cause, hint) = told.split_once("\nhint: ").unwrap_or((&told, ""));
                    Told::error(Class::Fallback, cause, Some(hint))
                }
            });
        };
        let streamed = StageReport {
            table: self.name_of_function().to_string(),
            processor: "planner".into(),
            processor_why_not: Some(format!("the TWIN of {}() answers", self.name_of_function())),
            ..StageReport::default()
        };
        let report = RunReport { streamed, served_why_not: asked, ..RunReport::default() };
        *self.report.lock() = Some(report);
        twin.execute(0, context)
    }

    async fn start(
        self,
        context: Arc<TaskContext>,
        token: CancelToken,
    ) -> Result<SendableRecordBatchStream> {
        let (settings, asking) = (self.settings.clone(), token.clone());
        let found = blocking(move || Ok(served::service(&settings, &asking))).await?;
        let connection = match found {
            Some(Ok(connection)) => connection,
            Some(Err(why)) => return self.by_twin(Some(why), context),
            None => return self.by_twin(None, context),
        };
        let rows = self.inputs[0].execute(0, Arc::clone(&context))?;
        let (sender, mut receiver) = mpsc::channel(CHANNEL_BATCHES);
        self.spawn(connection, rows, sender, token)?;
        // The first message decides who answers.
        let first = receiver.recv().await;
        if let Some(Message::NotThere(why)) = first {
            return self.by_twin(Some(why), context);
        }
        let schema = Arc::clone(&self.function.outputs);
        let inbox = Inbox { node: self, receiver, next: first, is_over: false };
        let batches = futures::stream::unfold(inbox, |mut inbox| async {
            inbox.batch().await.transpose().map(|batch| (batch, inbox))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    /// Calls on a thread, whose rows another one sends.
    fn spawn(
        &self,
        connection: Connection,
        mut rows: SendableRecordBatchStream,
        sender: mpsc::Sender<Message>,
        token: CancelToken,
    ) -> Result<()> {
        let values = self.values.iter().map(scalar).collect::<Result<Vec<_>, _>>();
        let asked = TableCall {
            function: (*self.function.function).clone(),
            parameters: values.map_err(|why| DataFusionError::Plan(why.to_string()))?,
            timeout_ms: self.settings.function_timeout_ms,
            session: Some(std::process::id()),
        };
        let (node, runtime) = (self.clone(), Handle::current());
        let body = move || {
            let sent = RowSender::default();
            let failed = Mutex::new(None);
            std::thread::scope(|scope| {
                let feeder = scope.spawn(|| {
                    let fed = node.feed(&mut rows, &runtime, &sent, &token);
                    if let Err(error) = fed {
                        // Of a call that lacks rows there is no answer.
                        *failed.lock() = Some(error);
                        token.cancel();
                    }
                });
                let emit = |batch: RecordBatch| match node.conform(&batch) {
                    Ok(batch) => sender.blocking_send(Message::Batch(batch)).is_ok(),
                    Err(error) => {
                        let _ = sender.blocking_send(Message::Failed(error));
                        false
                    }
                };
                let called = served::call(connection, asked, &sent, &node.settings, &token, &emit);
                let ended = feeder.join();
                let last = match (failed.lock().take(), called) {
                    (Some(error), _) => Message::Failed(error),
                    _ if ended.is_err() => Message::Failed(DataFusionError::Execution(
                        "the thread that sends a table to a function panicked".into(),
                    )),
                    (None, Ok(Called::Ran(report))) => Message::Done(report),
                    (None, Ok(Called::NotThere(why))) => Message::NotThere(why),
                    (None, Err(error)) => Message::Failed(run_error(error)),
                };
                let _ = sender.blocking_send(last);
            });
        };
        headrace_io::on_thread(body).map_err(DataFusionError::from)
    }

    /// Sends all rows, and how the code is to be launched over so many.
    fn feed(
        &self,
        rows: &mut SendableRecordBatchStream,
        runtime: &Handle,
        sent: &RowSender,
        token: &CancelToken,
    ) -> Result<()> {
        let is_over = || token.is_cancelled() || sent.is_abandoned();
        let waker = Waker::from(Arc::new(Parked(std::thread::current())));
        let mut count = 0;
        loop {
            let next = {
                let _entered = runtime.enter();
                rows.poll_next_unpin(&mut Context::from_waker(&waker))
            };
            let batch = match next {
                Poll::Ready(None) => break,
                Poll::Ready(Some(batch)) => without_views(batch?)?,
                Poll::Pending if is_over() => return Ok(()),
                Poll::Pending => {
                    std::thread::park_timeout(OFFER);
                    continue;
                }
            };
            count += batch.num_rows() as u64;
            for first in (0..batch.num_rows()).step_by(BATCH_ROWS) {
                let mut part = batch.slice(first, BATCH_ROWS.min(batch.num_rows() - first));
                // A service that has said its last word takes no more.
                while let Err(back) = sent.offer(part, OFFER) {
                    if is_over() {
                        return Ok(());
                    }
                    part = back;
                }
            }
            if is_over() {
                return Ok(());
            }
        }
        sent.launch(self.function.launch(count, &self.values)?);
        Ok(())
    }

    /// A batch in the types of the plan.
    fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let schema = &self.function.outputs;
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        let columns = columns.collect::<Result<_, _>>()?;
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}

/// A thread that waits for rows.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

enum Message {
    Batch(RecordBatch),
    /// No service takes the call; nothing came before this.
    NotThere(WhyNot),
    Failed(DataFusionError),
    Done(Box<RunReport>),
}

/// The reading end of the channel.
struct Inbox {
    node: TableCallExec,
    receiver: mpsc::Receiver<Message>,
    next: Option<Message>,
    is_over: bool,
}

impl Inbox {
    /// The next batch; `None` at the end. A thread that ends without saying so has panicked.
    async fn batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.is_over {
            return Ok(None);
        }
        let message = match self.next.take() {
            Some(message) => Some(message),
            None => self.receiver.recv().await,
        };
        self.is_over = !matches!(message, Some(Message::Batch(_)));
        match message {
            Some(Message::Batch(batch)) => Ok(Some(batch)),
            Some(Message::Done(report)) => {
                *self.node.report.lock() = Some(*report);
                Ok(None)
            }
            Some(Message::Failed(error)) => Err(error),
            Some(Message::NotThere(why)) => Err(forbidden(&why)),
            None => exec_err!("the thread that calls {}() panicked", self.node.name_of_function()),
        }
    }
}

impl DisplayAs for TableCallExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if t != DisplayFormatType::TreeRender {
            f.write_str("TableCallExec: ")?;
        }
        let values: Vec<_> = self.values.iter().map(ToString::to_string).collect();
        write!(f, "{}({})", self.name_of_function(), values.join(", "))?;
        let report = self.report();
        match report.as_ref().and_then(|report| report.served.as_ref()) {
            Some(served) => {
                let device = served.device.as_deref().unwrap_or("no GPU");
                write!(f, ", ran in the gpu-service: process {}, {device}", served.pid)
            }
            None if report.is_some() => f.write_str(", its TWIN answered"),
            None if self.inputs.len() > 1 => f.write_str(", in the gpu-service, or its TWIN"),
            None => f.write_str(", in the gpu-service alone"),
        }
    }
}

impl ExecutionPlan for TableCallExec {
    fn name(&self) -> &str {
        "TableCallExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition; self.inputs.len()])
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
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
        if children.len() != self.inputs.len() {
            return internal_err!("a call of a table has its rows, and those of its twin");
        }
        Ok(Arc::new(Self { inputs: children, ..(*self).clone() }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        self.replace_children(children, mode)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { report: Arc::default(), ..(*self).clone() }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("TableCallExec has one partition, not {partition}");
        }
        let token = CancelToken::new();
        let guard = CancelOnDrop(token.clone());
        let schema = self.schema();
        let started = futures::stream::once(self.clone().start(context, token)).try_flatten();
        let stream = RecordBatchStreamAdapter::new(Arc::clone(&schema), started);
        Ok(Box::pin(Guarded::new(schema, Box::pin(stream), guard)))
    }
}
