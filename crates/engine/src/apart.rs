//! Work of a statement on threads of its own, so that whoever waits for it can stop waiting at any moment.
//!
//! The planner, and functions of very large values, may compute for seconds without a pause, in which nobody
//! hears Ctrl-C. So they compute elsewhere: who drops the future or the stream is free at once, and the work
//! ends at its next pause. A limit of time ends a statement in the same way. A process that ends with its statement
//! saves the threads.
//!
//! It must never know what a statement is.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use datafusion::common::{DataFusionError, Result};
use futures::future::{AbortHandle, Abortable};
use futures::stream::{BoxStream, unfold};
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

use crate::error::Told;
use crate::failure::Class;

/// Batches that are made ahead of who takes them.
const AHEAD: usize = 1;

/// How a statement is waited for.
#[derive(Clone, Debug)]
pub struct Waiting {
    is_apart: bool,
    /// Until when it may take.
    deadline: Option<Arc<Deadline>>,
}

#[derive(Debug)]
struct Deadline {
    limit: Duration,
    passed: watch::Receiver<bool>,
    /// Its end ends the thread that waits.
    _ended: Sender<()>,
}

impl Waiting {
    /// So long from `started`; 0 is for ever. Only what is computed apart can be left before it ends.
    pub fn new(is_apart: bool, started: Instant, limit: Duration) -> Self {
        let deadline = (!limit.is_zero()).then(|| Arc::new(Deadline::of(started, limit)));
        Self { is_apart: is_apart || deadline.is_some(), deadline }
    }

    /// Does `work`.
    ///
    /// # Errors
    /// The work's; that it takes too long.
    pub async fn work<T, F>(&self, work: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        if self.is_apart { self.or(apart(work)).await } else { work().await }
    }

    /// The items of a stream.
    pub fn stream<T: Send + 'static>(
        self,
        items: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        if !self.is_apart {
            return items;
        }
        let bounded = unfold(Some((received(items), self)), |state| async {
            let (mut received, waiting) = state?;
            match waiting.or(async { Ok(received.next().await) }).await {
                Ok(item) => item.map(|item| (item, Some((received, waiting)))),
                Err(error) => Some((Err(error), None)),
            }
        });
        bounded.boxed()
    }

    /// What `work` is, unless it takes too long.
    async fn or<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(deadline) = &self.deadline else { return work.await };
        tokio::select! {
            biased;
            done = work => done,
            error = deadline.passed() => Err(error),
        }
    }
}

impl Deadline {
    fn of(started: Instant, limit: Duration) -> Self {
        let (tell, passed) = watch::channel(false);
        let (ended, end) = channel::<()>();
        let left = limit.saturating_sub(started.elapsed());
        // A thread of its own: those of the runtime may all compute, and tell no time then.
        std::thread::spawn(move || {
            if end.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                let _ = tell.send(true);
            }
        });
        Self { limit, passed, _ended: ended }
    }

    /// The error, when it is due.
    async fn passed(&self) -> DataFusionError {
        let mut passed = self.passed.clone();
        if passed.wait_for(|passed| *passed).await.is_err() {
            return std::future::pending().await;
        }
        let cause =
            format!("the statement took longer than statement_timeout, {}", shown(self.limit));
        let hint = "SET statement_timeout = 0 takes the limit away";
        Told::error(Class::TimedOut, cause, Some(hint))
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
async fn apart<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Result<T>
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

/// The items of a stream that is made on a thread for work that blocks.
fn received<T: Send + 'static>(items: BoxStream<'static, Result<T>>) -> Received<Result<T>> {
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
    Received { receive, _abort: AbortOnDrop(handle) }
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
        let waiting = Waiting::new(false, started, Duration::from_millis(50));
        let slow = || async {
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        };
        let error = waiting.work(slow).await.unwrap_err().to_string();
        assert!(error.contains("statement_timeout, 50 ms"), "{error}");
        let item = |_| {
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        };
        let mut items = waiting.stream(iter(0..1).map(item).boxed());
        assert!(items.next().await.unwrap().is_err() && items.next().await.is_none());
        assert!(started.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test]
    async fn who_waits_apart_may_leave_at_any_moment() {
        let started = Instant::now();
        let waiting = Waiting::new(true, started, Duration::ZERO);
        let slow = || async {
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        };
        let left = tokio::time::timeout(Duration::from_millis(50), waiting.work(slow)).await;
        assert!(left.is_err() && started.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test]
    async fn without_a_limit_all_comes() {
        for is_apart in [false, true] {
            let waiting = Waiting::new(is_apart, Instant::now(), Duration::ZERO);
            assert_eq!(waiting.work(|| async { Ok(7) }).await.unwrap(), 7);
            let items = waiting.stream(iter(0..9).map(Ok).boxed());
            let items: Vec<i32> = items.map(|item| item.unwrap()).collect().await;
            assert_eq!(items, (0..9).collect::<Vec<_>>());
        }
    }
}
