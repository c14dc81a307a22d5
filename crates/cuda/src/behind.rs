//! Work behind the queries: full kernels are compiled while hasty ones run, and programs are rehearsed.
//!
//! Jobs of all devices share a few threads of the process. NVRTC and the driver are torn down when the process ends, so an
//! exit handler waits for running jobs, drops waiting ones, and waits a while for cancelled queries that still use a device.
//! The C library calls exit handlers in reverse order. The libraries may register theirs at their first use, so this one is
//! registered again after it.

use std::collections::VecDeque;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Once};
use std::thread;
use std::time::{Duration, Instant};

use headrace_flow::CancelToken;
use parking_lot::{Condvar, Mutex};

/// Cores of the machine for each thread here: a job compiles several kernels at a time.
const CORES_A_THREAD: usize = 4;

/// How long the end waits for runs: those that were cancelled end with their next chunk.
const RUNS_PATIENCE: Duration = Duration::from_secs(2);

type Job = Box<dyn FnOnce() + Send>;

struct Jobs {
    waiting: VecDeque<Job>,
    /// Threads that are there.
    threads: usize,
    /// Long jobs, each with a thread of its own.
    long: usize,
    /// Runs that use a device.
    runs: usize,
    has_ended: bool,
}

static JOBS: Mutex<Jobs> =
    Mutex::new(Jobs { waiting: VecDeque::new(), threads: 0, long: 0, runs: 0, has_ended: false });
/// A thread or a run is gone.
static GONE: Condvar = Condvar::new();

/// Cancelled when the process ends.
static ENDING: LazyLock<CancelToken> = LazyLock::new(CancelToken::new);

/// Announces the wait at the end of the process.
fn wait_at_exit(once: &Once) {
    // SAFETY: the function may be called at any time and more than once, and unwinds never.
    once.call_once(|| _ = unsafe { libc::atexit(end) });
}

/// A run that uses a device, while this lives: the end of the process waits for it.
#[derive(Debug)]
pub struct RunUnderWay(());

impl RunUnderWay {
    /// Begins; a device is open.
    pub fn begin() -> Self {
        static AT_EXIT: Once = Once::new();
        wait_at_exit(&AT_EXIT);
        JOBS.lock().runs += 1;
        Self(())
    }
}

impl Drop for RunUnderWay {
    fn drop(&mut self) {
        JOBS.lock().runs -= 1;
        GONE.notify_all();
    }
}

/// Begins a job, or has it wait for the others.
pub(crate) fn begin(job: impl FnOnce() + Send + 'static) {
    static AT_EXIT: Once = Once::new();
    wait_at_exit(&AT_EXIT);
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let mut jobs = JOBS.lock();
    if jobs.has_ended {
        return;
    }
    jobs.waiting.push_back(Box::new(job));
    if jobs.threads < cores.div_ceil(CORES_A_THREAD) {
        let named = thread::Builder::new().name("headrace-compile".into());
        // Without a thread the kernels stay as they are.
        match named.spawn(work) {
            Ok(_) => jobs.threads += 1,
            Err(_) if jobs.threads == 0 => jobs.waiting.clear(),
            Err(_) => (),
        }
    }
}

/// Begins a job that lasts, on a thread of its own, or drops it: the end of the process cancels it and waits.
pub fn begin_behind(job: impl FnOnce(&CancelToken) + Send + 'static) {
    static AT_EXIT: Once = Once::new();
    wait_at_exit(&AT_EXIT);
    let mut jobs = JOBS.lock();
    if jobs.has_ended {
        return;
    }
    let named = thread::Builder::new().name("headrace-behind".into());
    let body = move || {
        headrace_io::block_signals();
        // One that panics is lost alone; the panic was told.
        let _ = catch_unwind(AssertUnwindSafe(|| job(&ENDING)));
        JOBS.lock().long -= 1;
        GONE.notify_all();
    };
    if named.spawn(body).is_ok() {
        jobs.long += 1;
    }
}

fn work() {
    headrace_io::block_signals();
    let next = || {
        let mut jobs = JOBS.lock();
        let job = jobs.waiting.pop_front();
        if job.is_none() {
            // Whoever begins a job from now on makes another thread.
            jobs.threads -= 1;
            GONE.notify_all();
        }
        job
    };
    while let Some(job) = next() {
        // One that panics is lost alone; the panic was told.
        let _ = catch_unwind(AssertUnwindSafe(job));
        static AFTER_JOB: Once = Once::new();
        wait_at_exit(&AFTER_JOB);
    }
}

/// Waits until no job waits or runs.
pub fn settle() {
    let mut jobs = JOBS.lock();
    while jobs.threads > 0 || jobs.long > 0 {
        GONE.wait(&mut jobs);
    }
}

extern "C" fn end() {
    let mut jobs = JOBS.lock();
    jobs.has_ended = true;
    jobs.waiting.clear();
    drop(jobs);
    ENDING.cancel();
    settle();
    wait_for_runs(RUNS_PATIENCE);
}

/// Waits until no run uses a device, at most this long.
fn wait_for_runs(patience: Duration) {
    let until = Instant::now() + patience;
    let mut jobs = JOBS.lock();
    while jobs.runs > 0 && !GONE.wait_until(&mut jobs, until).timed_out() {}
}

/// Whether the process ends: no query will use what is compiled.
pub(crate) fn has_ended() -> bool {
    JOBS.lock().has_ended
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_end_waits_for_runs_that_are_under_way() {
        let run = RunUnderWay::begin();
        let ends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(run);
        });
        let began = Instant::now();
        wait_for_runs(Duration::from_secs(60));
        assert_eq!(JOBS.lock().runs, 0);
        assert!(began.elapsed() >= Duration::from_millis(40));
        assert!(ends.join().is_ok());
    }

    #[test]
    fn jobs_are_done_when_all_is_settled_also_after_one_that_panics() {
        let done = Arc::new(AtomicU32::new(0));
        for job in 0..50 {
            let done = Arc::clone(&done);
            begin(move || {
                done.fetch_add(1, Ordering::Relaxed);
                assert_ne!(job, 20, "a job that panics, on purpose");
            });
        }
        settle();
        assert_eq!(done.load(Ordering::Relaxed), 50);
    }
}
