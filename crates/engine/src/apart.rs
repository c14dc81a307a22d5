//! Work of a statement on threads of its own, so that whoever waits for it can stop waiting at any moment.
//!
//! The planner, and functions of very large values, may compute for seconds without a pause, in which nobody
//! hears Ctrl-C. So they compute elsewhere: who drops the future or the stream is free at once, and the work
//! ends at its next pause. A limit of time ends a statement in the same way. A process that ends with its statement
//! saves the threads.
//!
//! It must never know what a statement is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use futures::future::{AbortHandle, Abortable};
use futures::stream::{BoxStream, unfold};
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use crate::error::Told;
use crate::failure::Class;

/// Batches that are made ahead of who takes them.
const AHEAD: usize = 1;

/// The clock of all limits, once there is one.
static CLOCK: Mutex<Option<Handle>> = Mutex::new(None);

/// The clock. Its runtime has one thread, which does nothing else: a runtime whose threads all compute tells no time.
fn clock() -> io::Result<Handle> {
    let mut clock = CLOCK.lock();
    if let Some(clock) = clock.as_ref() {
        return Ok(clock.clone());
    }
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let handle = runtime.handle().clone();
    let thread = std::thread::Builder::new().name("statement-clock".to_string());
    thread.spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(clock.insert(handle).clone())
}

/// The threads that compute a statement.
#[derive(Clone, Debug)]
pub enum Threads {
    /// Whoever waits for it: nobody can leave before its next pause.
    Waiting,
    /// The blocking threads of the runtime that waits.
    Apart,
    /// The blocking threads of another runtime.
    ApartOn(Handle),
}

impl Threads {
    pub fn are_apart(&self) -> bool {
        !matches!(self, Self::Waiting)
    }

    /// The runtime of the threads.
    fn runtime(&self) -> Handle {
        match self {
            Self::ApartOn(runtime) => runtime.clone(),
            Self::Waiting | Self::Apart => Handle::current(),
        }
    }
}

/// How a statement is waited for.
#[derive(Clone, Debug)]
pub struct Waiting {
    threads: Threads,
    /// Until when it may take.
    deadline: Option<Deadline>,
}

#[derive(Clone, Debug)]
struct Deadline {
    limit: Duration,
    ends: Instant,
    clock: Handle,
}

impl Waiting {
    /// So long from `started`; 0 is for ever. Only what is computed apart can be left before it ends.
    ///
    /// # Errors
    /// If there can be no clock.
    pub fn new(threads: Threads, started: Instant, limit: Duration) -> Result<Self> {
        // A limit beyond all times is none.
        let Some(ends) = started.checked_add(limit).filter(|_| !limit.is_zero()) else {
            return Ok(Self { threads, deadline: None });
        };
        let clock = clock().map_err(|error| {
            exec_datafusion_err!("no thread can be started for statement_timeout: {error}")
        })?;
        let threads = if threads.are_apart() { threads } else { Threads::Apart };
        Ok(Self { threads, deadline: Some(Deadline { limit, ends, clock }) })
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
        match self.threads.are_apart() {
            true => self.or(apart(self.threads.runtime(), work)).await,
            false => work().await,
        }
    }

    /// Makes a stream, whose tasks are those of the runtime that computes it.
    ///
    /// # Errors
    /// Those of `stream`.
    pub fn started<T>(&self, stream: impl FnOnce() -> Result<T>) -> Result<T> {
        let Threads::ApartOn(runtime) = &self.threads else { return stream() };
        let _inside = runtime.enter();
        stream()
    }

    /// The items of a stream.
    pub fn stream<T: Send + 'static>(
        self,
        items: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        if !self.threads.are_apart() {
            return items;
        }
        let received = received(&self.threads.runtime(), items);
        let bounded = unfold(Some((received, self)), |state| async {
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
    /// The error, when it is due.
    async fn passed(&self) -> DataFusionError {
        let due = {
            let _on_the_clock = self.clock.enter();
            sleep_until(self.ends.into())
        };
        due.await;
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
async fn apart<T, F>(runtime: Handle, work: impl FnOnce() -> F + Send + 'static) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>>,
{
    let (handle, registration) = AbortHandle::new_pair();
    let _abort = AbortOnDrop(handle);
    let inside = runtime.clone();
    let work = move || inside.block_on(Abortable::new(work(), registration));
    match runtime.spawn_blocking(work).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => Err(DataFusionError::Execution("cancelled".to_string())),
        Err(error) => Err(DataFusionError::ExecutionJoin(Box::new(error))),
    }
}

/// The items of a stream that is made on a thread for work that blocks.
fn received<T: Send + 'static>(
    runtime: &Handle,
    items: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    let (send, receive) = mpsc::channel(AHEAD);
    let (handle, registration) = AbortHandle::new_pair();
    let inside = runtime.clone();
    runtime.spawn_blocking(move || {
        let mut items = items;
        let work = async move {
            while let Some(item) = items.next().await {
                if send.send(Some(item)).await.is_err() {
                    return;
                }
            }
            // Whoever hears of the end finds nothing in use.
            drop(items);
            let _ = send.send(None).await;
        };
        let _ = inside.block_on(Abortable::new(work, registration));
    });
    Received { receive: Some(receive), _abort: AbortOnDrop(handle) }.boxed()
}

struct Received<T> {
    /// `None` tells the end: a channel that is closed before has lost its sender.
    receive: Option<mpsc::Receiver<Option<Result<T>>>>,
    _abort: AbortOnDrop,
}

impl<T> Stream for Received<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(receive) = &mut self.receive else { return Poll::Ready(None) };
        let item = std::task::ready!(receive.poll_recv(context));
        let item = item.unwrap_or_else(|| {
            let cause = "its thread has ended before the answer had".to_string();
            Some(Err(DataFusionError::Internal(cause)))
        });
        if !matches!(item, Some(Ok(_))) {
            self.receive = None;
        }
        Poll::Ready(item)
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
        let waiting = Waiting::new(Threads::Waiting, started, Duration::from_millis(50)).unwrap();
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
        let waiting = Waiting::new(Threads::Apart, started, Duration::ZERO).unwrap();
        let slow = || async {
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        };
        let left = tokio::time::timeout(Duration::from_millis(50), waiting.work(slow)).await;
        assert!(left.is_err() && started.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test]
    async fn without_a_limit_all_comes() {
        for threads in [Threads::Waiting, Threads::Apart] {
            let waiting = Waiting::new(threads, Instant::now(), Duration::ZERO).unwrap();
            assert_eq!(waiting.work(|| async { Ok(7) }).await.unwrap(), 7);
            let items = waiting.stream(iter(0..9).map(Ok).boxed());
            let items: Vec<i32> = items.map(|item| item.unwrap()).collect().await;
            assert_eq!(items, (0..9).collect::<Vec<_>>());
        }
    }
}
