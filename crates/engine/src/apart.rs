//! Work of a statement on threads of its own, so that whoever waits for it can stop waiting at any moment.
//!
//! The planner, and functions of very large values, may compute for seconds without a pause, in which nobody
//! hears Ctrl-C. So they compute elsewhere: who drops the future or the stream is free at once, and the work
//! ends at its next pause. A limit of time ends a statement in the same way.
//!
//! It must never know what a statement is.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use datafusion::common::{DataFusionError, Result};
use futures::future::{AbortHandle, Abortable};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

/// Batches that are made ahead of who takes them.
const AHEAD: usize = 1;

/// Until when a statement may take.
#[derive(Clone, Debug)]
pub struct Deadline(Option<Arc<Timer>>);

#[derive(Debug)]
struct Timer {
    limit: Duration,
    passed: watch::Receiver<bool>,
    /// Its end ends the thread that waits.
    _ended: Sender<()>,
}

impl Deadline {
    /// So long from `started`; 0 is for ever.
    pub fn of(started: Instant, limit: Duration) -> Self {
        if limit.is_zero() {
            return Self(None);
        }
        let (tell, passed) = watch::channel(false);
        let (ended, end) = channel::<()>();
        let left = limit.saturating_sub(started.elapsed());
        // A thread of its own: those of the runtime may all compute, and tell no time then.
        std::thread::spawn(move || {
            if end.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                let _ = tell.send(true);
            }
        });
        Self(Some(Arc::new(Timer { limit, passed, _ended: ended })))
    }

    /// The error, when it is due.
    async fn passed(&self) -> DataFusionError {
        let Some(timer) = &self.0 else { return std::future::pending().await };
        let mut passed = timer.passed.clone();
        if passed.wait_for(|passed| *passed).await.is_err() {
            return std::future::pending().await;
        }
        DataFusionError::Execution(format!(
            "the statement took longer than statement_timeout, {}\n\
             hint: SET statement_timeout = 0 takes the limit away",
            shown(timer.limit)
        ))
    }

    /// What `work` is, unless it takes too long.
    pub async fn or<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            done = work => done,
            error = self.passed() => Err(error),
        }
    }
}

/// As PostgreSQL shows it.
fn shown(limit: Duration) -> String {
    match limit.as_millis() {
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Does `work` on a thread for work that blocks.
///
/// # Errors
/// The work's.
pub async fn apart<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>>,
{
    let (handle, registration) = AbortHandle::new_pair();
    let _abort = AbortOnDrop(handle);
    let runtime = Handle::current();
    let done = spawn_blocking(move || runtime.block_on(Abortable::new(work(), registration)));
    match done.await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => Err(DataFusionError::Execution("cancelled".to_string())),
        Err(error) => Err(DataFusionError::ExecutionJoin(Box::new(error))),
    }
}

/// The items of a stream that is made on a thread for work that blocks, until the deadline.
pub fn stream_apart<T: Send + 'static>(
    items: BoxStream<'static, Result<T>>,
    deadline: Deadline,
) -> BoxStream<'static, Result<T>> {
    let (send, receive) = mpsc::channel(AHEAD);
    let (handle, registration) = AbortHandle::new_pair();
    let runtime = Handle::current();
    spawn_blocking(move || {
        let mut items = items;
        let work = async {
            while let Some(item) = items.next().await {
                if send.send(item).await.is_err() {
                    break;
                }
            }
        };
        let _ = runtime.block_on(Abortable::new(work, registration));
        drop(items);
    });
    let received = Received { receive, _abort: AbortOnDrop(handle) };
    let bounded = futures::stream::unfold(Some((received, deadline)), |state| async {
        let (mut received, deadline) = state?;
        match deadline.or(async { Ok(received.next().await) }).await {
            Ok(item) => item.map(|item| (item, Some((received, deadline)))),
            Err(error) => Some((Err(error), None)),
        }
    });
    bounded.boxed()
}

struct Received<T> {
    receive: mpsc::Receiver<T>,
    _abort: AbortOnDrop,
}

impl<T> Stream for Received<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.receive.poll_recv(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::stream::iter;

    #[tokio::test]
    async fn nobody_waits_longer_than_the_limit() {
        let started = Instant::now();
        let deadline = Deadline::of(started, Duration::from_millis(50));
        let slow = || async {
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        };
        let error = deadline.or(apart(slow)).await.unwrap_err().to_string();
        assert!(error.contains("statement_timeout, 50 ms"), "{error}");
        let item = |_| {
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        };
        let mut items = stream_apart(iter(0..1).map(item).boxed(), deadline);
        assert!(items.next().await.unwrap().is_err() && items.next().await.is_none());
        assert!(started.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test]
    async fn without_a_limit_all_comes() {
        let deadline = Deadline::of(Instant::now(), Duration::ZERO);
        let items: Vec<i32> =
            stream_apart(iter(0..9).map(Ok).boxed(), deadline).map(|i| i.unwrap()).collect().await;
        assert_eq!(items, (0..9).collect::<Vec<_>>());
        assert_eq!(apart(|| async { Ok(7) }).await.unwrap(), 7);
    }
}
