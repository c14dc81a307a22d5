//! Short-lived threads, on systems that may refuse them.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use crate::error::{GpuError, Result};

/// Calls `work` on up to `threads` threads concurrently, the calling one among them, and waits for
/// all. If the system has fewer threads, those do the work: each call must take its share from a
/// common store until nothing is left.
pub(crate) fn share(threads: usize, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 1..threads {
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, &work) {
                tracing::debug!(%error, "fewer threads than wanted share the work");
                break;
            }
        }
        work();
    });
}

/// The result of a call of `work`, with its start and end.
pub(crate) struct Timed<R> {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    pub(crate) outcome: R,
}

impl<R> Timed<R> {
    pub(crate) fn seconds(&self) -> f64 {
        (self.ended - self.begun).as_secs_f64()
    }
}

/// Calls `work` on every item concurrently, each on a thread of its own that begins once all are
/// ready.
///
/// # Errors
/// [`GpuError::HostMemory`] when the system has not enough threads; then nothing is done.
pub(crate) fn all_at_once<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Result<Vec<Timed<R>>> {
    // Whether all are there. Not a barrier: that would wait for ever for one that is not.
    let complete = OnceLock::<bool>::new();
    let (complete, work) = (&complete, &work);
    thread::scope(|scope| {
        let start = |item| {
            thread::Builder::new().spawn_scoped(scope, move || {
                complete.wait().then(|| {
                    let begun = Instant::now();
                    let outcome = work(item);
                    Timed { begun, ended: Instant::now(), outcome }
                })
            })
        };
        let started = items.into_iter().map(start).collect::<io::Result<Vec<_>>>();
        complete.get_or_init(|| started.is_ok());
        let threads = started.map_err(refused)?;
        Ok(threads
            .into_iter()
            .filter_map(|thread| thread.join().expect("the work does not panic"))
            .collect())
    })
}

/// Seconds from the first beginning to the last end.
pub(crate) fn span_s<R>(timed: &[Timed<R>]) -> f64 {
    let first = timed.iter().map(|it| it.begun).min();
    let last = timed.iter().map(|it| it.ended).max();
    first.zip(last).map_or(0.0, |(first, last)| (last - first).as_secs_f64())
}

/// The error for a thread that could not be had.
pub(crate) fn refused(error: io::Error) -> GpuError {
    GpuError::HostMemory {
        call: "pthread_create",
        bytes: 0,
        source: Arc::new(error),
        remedy: "raise the limit on threads (ulimit -u, the container's pids limit)",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn work_is_shared_until_nothing_is_left() {
        let left = AtomicUsize::new(1000);
        let done = AtomicUsize::new(0);
        let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        share(5, || {
            while take().is_ok() {
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(done.into_inner(), 1000);
    }

    #[test]
    fn all_work_at_the_same_time_and_in_order() {
        let together = std::sync::Barrier::new(4);
        let timed = all_at_once(0..4, |number| {
            together.wait();
            number * 2
        })
        .unwrap();
        assert!(timed.iter().map(|it| it.outcome).eq([0, 2, 4, 6]));
        assert!(span_s(&timed) >= timed.iter().map(Timed::seconds).fold(0.0, f64::max));
        assert!(all_at_once([(); 0], |()| ()).unwrap().is_empty());
    }
}
