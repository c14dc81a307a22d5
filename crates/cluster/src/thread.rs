//! Rows that a thread makes: what blocks must not run where tasks are driven.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use headrace_flow::CancelToken;
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, Receiver};

/// Batches that wait for their reader.
const CHANNEL_BATCHES: usize = 4;

enum Said {
    Batch(RecordBatch),
    Failed(DataFusionError),
    Done,
}

/// Where a thread puts its rows; `false`: nobody wants more.
pub type Emit<'a> = &'a (dyn Fn(Result<RecordBatch>) -> bool + Send + Sync);

/// The rows that `work` emits on a thread of its own. Who drops the stream cancels it.
///
/// # Errors
/// No thread can be had; what fails later comes through the stream.
pub fn rows(
    schema: SchemaRef,
    work: impl FnOnce(&CancelToken, Emit<'_>) -> Result<()> + Send + 'static,
) -> Result<SendableRecordBatchStream> {
    let (sender, receiver) = mpsc::channel(CHANNEL_BATCHES);
    let token = CancelToken::new();
    let guard = CancelOnDrop(token.clone());
    headrace_io::on_thread(move || {
        // The first failure of a batch is the end: the run that it stopped says only that it was stopped.
        let failed = Mutex::new(None);
        let emit = |batch: Result<RecordBatch>| match batch {
            Ok(batch) => sender.blocking_send(Said::Batch(batch)).is_ok(),
            Err(error) => {
                failed.lock().get_or_insert(error);
                false
            }
        };
        let done = work(&token, &emit);
        let last = match failed.into_inner().map_or(done, Err) {
            Ok(()) => Said::Done,
            Err(error) => Said::Failed(error),
        };
        let _ = sender.blocking_send(last);
    })?;
    let batches = futures::stream::unfold(Some((receiver, guard)), next);
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
}

type Reading = Option<(Receiver<Said>, CancelOnDrop)>;

async fn next(reading: Reading) -> Option<(Result<RecordBatch>, Reading)> {
    let (mut receiver, guard) = reading?;
    match receiver.recv().await {
        Some(Said::Batch(batch)) => Some((Ok(batch), Some((receiver, guard)))),
        Some(Said::Failed(error)) => Some((Err(error), None)),
        Some(Said::Done) => None,
        // The rows so far are not all of them.
        None => Some((exec_err!("a thread of a task panicked"), None)),
    }
}

/// Cancels work when nobody wants its rows any more.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// No rows.
pub fn nothing(schema: &SchemaRef) -> SendableRecordBatchStream {
    let none = futures::stream::empty();
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), none))
}
