//! The early end of a run: first by request, then by force.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use headrace_flow::CancelToken;

/// How often the watcher checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Consumers have this long to end the race with a full report; a device that does not answer would
/// prevent it.
const POLITE: Duration = Duration::from_millis(500);

/// Why a run ended before its last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Early {
    /// It was interrupted.
    Interrupted,
    /// Its time was up.
    TimeLimit,
}

impl Early {
    pub fn text(self) -> &'static str {
        match self {
            Early::Interrupted => "interrupted",
            Early::TimeLimit => "the time limit was reached",
        }
    }
}

/// Shared by the watcher and the consumers.
#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    why: OnceLock<Early>,
}

impl StopSignal {
    fn stop(&self, why: Early) {
        // The first reason stays.
        let _ = self.why.set(why);
    }

    /// The reason to stop, if the run must stop.
    pub fn asked(&self) -> Option<Early> {
        self.why.get().copied()
    }
}

/// Watches the clock and the interruption while `work` runs; `work` must heed `signal` and `token`.
pub(crate) fn watched<T>(
    cancel: Option<&Arc<AtomicBool>>,
    time_limit: Option<Duration>,
    signal: &StopSignal,
    token: &CancelToken,
    work: impl FnOnce() -> T,
) -> T {
    if cancel.is_none() && time_limit.is_none() {
        return work();
    }
    if cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        // Before the first byte moves, not some milliseconds later.
        signal.stop(Early::Interrupted);
    }
    let done = AtomicBool::new(false);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            headrace_io::block_signals();
            let mut asked_at: Option<Instant> = None;
            while !done.load(Ordering::Acquire) {
                if cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                    signal.stop(Early::Interrupted);
                } else if time_limit.is_some_and(|limit| start.elapsed() >= limit) {
                    signal.stop(Early::TimeLimit);
                }
                if signal.asked().is_some() {
                    let since = *asked_at.get_or_insert_with(Instant::now);
                    if since.elapsed() >= POLITE {
                        token.cancel();
                    }
                }
                std::thread::park_timeout(LOOK_INTERVAL);
            }
        });
        // Set also when `work` panics: the scope would wait for the watcher for ever.
        let _done = SetOnDrop(&done);
        work()
    })
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
