//! Threads that several processes have together: the sessions of one database cluster.
//!
//! A run holds a lock in a file that all of them have, as long as it works: of as many bytes as it wants
//! threads. From the locks of the others, looked at again and again, follows how many threads it may have. Nobody
//! waits for anybody, and the kernel drops the lock of a process that is killed.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headrace_flow::ConsumerLimit;
use headrace_io::ByteLock;
use parking_lot::Mutex;

/// How long what was seen of the others counts: a chunk or two.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// How many times as long as a look took the next one waits at least: of many locks, which many look at.
const LOOK_PAUSE: u32 = 16;

/// Bytes for the locks of one run, which are more than any machine has cores.
const RUN_BYTES: u64 = 1 << 16;

/// Runs of one process at a time.
const PROCESS_RUNS: u64 = 64;

/// What runs of several processes have together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadShare {
    /// A file that all of them have, and that is made if there is none.
    pub file: PathBuf,
    /// Threads of all runs together; a run alone has as many as it wants, and each has one at least.
    pub threads: usize,
}

/// A run that works.
#[derive(Debug)]
pub struct SharingRun {
    lock: ByteLock,
    wanted: usize,
    all: usize,
    /// What it may have, until when.
    next_look: Mutex<Instant>,
    threads: AtomicUsize,
}

impl SharingRun {
    /// Tells the others that a run begins that wants so many threads.
    ///
    /// # Errors
    /// There can be no such file, or no locks of it.
    pub fn begin(share: &ThreadShare, wanted: usize) -> io::Result<Self> {
        let wanted = wanted.max(1);
        let bytes = (wanted as u64).min(RUN_BYTES - 1);
        // Numbers of processes are each one's own, and less than 2^22.
        let first = u64::from(std::process::id()) * PROCESS_RUNS;
        let ranges = (first..first + PROCESS_RUNS).map(|run| run * RUN_BYTES);
        let ranges = ranges.map(|start| start..start + bytes);
        let lock = ByteLock::take(&share.file, ranges)?.ok_or(io::ErrorKind::WouldBlock)?;
        let (all, threads) = (share.threads, AtomicUsize::new(wanted));
        let next_look = Mutex::new(Instant::now() + LOOK_INTERVAL);
        let run = Self { lock, wanted, all, next_look, threads };
        run.look();
        Ok(run)
    }

    fn look(&self) {
        // What cannot be seen now is as it was.
        let Ok(others) = self.lock.others() else { return };
        let wanted = |lock: &Range<u64>| (lock.end - lock.start) as usize;
        let threads = share(self.all, self.wanted, others.iter().map(wanted));
        self.threads.store(threads, Ordering::Relaxed);
    }
}

impl ConsumerLimit for SharingRun {
    fn consumers(&self) -> usize {
        // Whoever comes meanwhile is content with what is known.
        let now = Instant::now();
        if let Some(mut next_look) = self.next_look.try_lock()
            && now >= *next_look
        {
            self.look();
            *next_look = Instant::now() + LOOK_INTERVAL.max(LOOK_PAUSE * now.elapsed());
        }
        self.threads.load(Ordering::Relaxed)
    }
}

/// The threads of a run that wants `own`, of `all` that it and others have: what those that want little leave
/// goes to the others. Rounded up, so that of runs that want the same none has more than another, and no core is
/// without work.
fn share(all: usize, own: usize, others: impl Iterator<Item = usize>) -> usize {
    let mut wanted: Vec<usize> = others.collect();
    if wanted.is_empty() {
        return own;
    }
    wanted.push(own);
    wanted.sort_unstable();
    let (mut left, mut runs) = (all, wanted.len());
    for wants in wanted {
        if wants.saturating_mul(runs) > left {
            return own.min(left.div_ceil(runs)).max(1);
        }
        (left, runs) = (left - wants, runs - 1);
    }
    own
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn cores_are_divided_by_what_runs_want() {
        let of = |all, own, others: &[usize]| share(all, own, others.iter().copied());
        assert_eq!(of(16, 16, &[]), 16);
        assert_eq!(of(2, 8, &[]), 8, "alone it has what it wants");
        assert_eq!(of(16, 16, &[16]), 8);
        assert_eq!(of(16, 16, &[16, 16]), 6, "rounded up");
        assert_eq!(of(16, 16, &[16; 15]), 1);
        assert_eq!(of(2, 2, &[2; 15]), 1);
        assert_eq!(of(16, 16, &[2, 16]), 7, "what one leaves the others have");
        assert_eq!(of(16, 2, &[16, 16]), 2);
        assert_eq!(of(16, 4, &[4, 4]), 4, "there is enough for all");
        assert_eq!(of(0, 4, &[4]), 1);
    }

    #[test]
    fn runs_have_less_while_others_work_and_more_after() {
        let folder = tempfile::tempdir().unwrap();
        let share = ThreadShare { file: folder.path().join("runs"), threads: 8 };
        let first = SharingRun::begin(&share, 8).unwrap();
        assert_eq!(first.consumers(), 8);
        let second = SharingRun::begin(&share, 8).unwrap();
        assert_eq!(second.consumers(), 4, "known from the beginning");
        std::thread::sleep(20 * LOOK_INTERVAL);
        assert_eq!(first.consumers(), 4);
        drop(first);
        std::thread::sleep(20 * LOOK_INTERVAL);
        assert_eq!(second.consumers(), 8);
    }

    #[test]
    fn without_a_file_there_is_no_share() {
        let file = PathBuf::from("/nonexistent/runs");
        assert!(SharingRun::begin(&ThreadShare { file, threads: 2 }, 2).is_err());
    }
}
