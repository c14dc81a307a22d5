//! Threads of the engine's, apart from those that hear clients.

use std::task::{Context, Poll};

use arrow_array::RecordBatch;
use datafusion::common::DataFusionError;
use futures::StreamExt;
use headrace_engine::Query;
use headrace_engine::failure::{Class, Failure};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Ends the task when nobody waits for it.
struct Ended<T>(JoinHandle<T>);

impl<T> Drop for Ended<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where statements are planned and run: what takes a processor for long there keeps nobody from being heard.
#[derive(Clone, Debug)]
pub struct Work(Handle);

impl Work {
    pub fn new(threads: Handle) -> Self {
        Self(threads)
    }

    /// What comes of something that the engine does.
    pub async fn of<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Failure> {
        let mut task = Ended(self.0.spawn(work));
        (&mut task.0).await.map_err(|error| Failure::new(Class::Internal, error.to_string()))
    }

    /// The batches of a query, one of which waits until it is taken. The last is told by `None`: a channel that is closed before has
    /// lost its sender.
    pub fn batches(&self, query: &Query) -> Result<Batches, DataFusionError> {
        let stream = {
            let _here = self.0.enter();
            query.stream()?
        };
        let (sender, batches) = mpsc::channel(1);
        let task = self.0.spawn(async move {
            let mut stream = stream;
            while let Some(batch) = stream.next().await {
                if sender.send(Some(batch)).await.is_err() {
                    return;
                }
            }
            let _ = sender.send(None).await;
        });
        Ok(Batches { batches, _task: Ended(task) })
    }
}

/// Batches that a query makes elsewhere.
pub struct Batches {
    batches: mpsc::Receiver<Option<Result<RecordBatch, DataFusionError>>>,
    _task: Ended<()>,
}

impl Batches {
    /// The next one.
    pub fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<RecordBatch, DataFusionError>>> {
        self.batches.poll_recv(context).map(|batch| {
            let lost = || Some(Err(DataFusionError::Internal("its task has ended".to_string())));
            batch.unwrap_or_else(lost)
        })
    }
}
