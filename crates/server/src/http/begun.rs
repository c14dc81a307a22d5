//! Statements whose answers have begun.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use headrace_engine::failure::Failure;

use crate::statement::Running;

/// A statement whose first rows are there.
pub struct Begun {
    pub running: Running,
    first: Option<RecordBatch>,
}

/// Waits for the first rows: what fails before is a failure of the request.
pub async fn begun(mut running: Running) -> Result<Begun, Failure> {
    let first = running.next().await.transpose()?;
    Ok(Begun { running, first })
}

impl Begun {
    /// The next rows.
    pub async fn next(&mut self) -> Option<Result<RecordBatch, Failure>> {
        match self.first.take() {
            Some(first) => Some(Ok(first)),
            None => self.running.next().await,
        }
    }
}

/// A stream that can be a body.
pub fn boxed(
    chunks: impl Stream<Item = Bytes> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Arc<std::io::Error>>> + Send + 'static {
    chunks.map(Ok)
}
