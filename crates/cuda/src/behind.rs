//! Work behind the queries: full kernels are compiled while hasty ones run.
//!
//! Jobs of all devices share a few threads of the process. NVRTC is torn down when the process ends, so the end waits for
//! the jobs that run and drops those that wait.

use std::collections::VecDeque;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::thread;

use parking_lot::{Condvar, Mutex};

/// Cores of the machine for each thread here: a job compiles several kernels at a time.
const CORES_A_THREAD: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

struct Jobs {
    waiting: VecDeque<Job>,
    /// Threads that are there.
    threads: usize,
    has_ended: bool,
}

static JOBS: Mutex<Jobs> =
    Mutex::new(Jobs { waiting: VecDeque::new(), threads: 0, has_ended: false });
/// A thread is gone: nothing waited for it.
static GONE: Condvar = Condvar::new();

/// Begins a job, or has it wait for the others.
pub(crate) fn begin(job: impl FnOnce() + Send + 'static) {
    static AT_EXIT: Once = Once::new();
    // SAFETY: the function may be called at any time, and unwinds never.
    AT_EXIT.call_once(|| _ = unsafe { libc::atexit(end) });
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
    }
}

/// Waits until no job waits or runs.
pub fn settle() {
    let mut jobs = JOBS.lock();
    while jobs.threads > 0 {
        GONE.wait(&mut jobs);
    }
}

extern "C" fn end() {
    let mut jobs = JOBS.lock();
    jobs.has_ended = true;
    jobs.waiting.clear();
    drop(jobs);
    settle();
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
