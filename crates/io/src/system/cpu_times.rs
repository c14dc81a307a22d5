//! Processor time of this process.

use serde::Serialize;

/// Processor time that this process has used, over all threads, including ended ones
/// (getrusage(2)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CpuTimes {
    /// In its own code.
    pub user_ns: u64,
    /// In the kernel on its behalf; excludes kernel threads (except io_uring workers).
    pub system_ns: u64,
}

impl CpuTimes {
    /// Now.
    pub fn of_process() -> CpuTimes {
        // SAFETY: `rusage` is plain data that the call fills in; it cannot fail for RUSAGE_SELF
        // and a valid address, and the zeroes that it would leave are a valid answer.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        CpuTimes { user_ns: nanoseconds(usage.ru_utime), system_ns: nanoseconds(usage.ru_stime) }
    }

    /// Time used since an earlier sample.
    #[must_use]
    pub fn since(&self, earlier: &CpuTimes) -> CpuTimes {
        CpuTimes {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }

    /// Both together.
    pub fn total_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }

    /// Average cores used over a time: 1.0 is one core all the time. 0 for no time.
    pub fn cores(&self, elapsed_ns: u64) -> f64 {
        if elapsed_ns == 0 { 0.0 } else { self.total_ns() as f64 / elapsed_ns as f64 }
    }
}

fn nanoseconds(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let microseconds = u64::try_from(time.tv_usec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(microseconds.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn work_costs_time() {
        let before = CpuTimes::of_process();
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut word = 1u64;
        // The clock of processor time may be coarse, and this process may have to wait for its
        // turn, so it works until it is seen to have worked.
        while CpuTimes::of_process().since(&before).total_ns() < 5_000_000
            && Instant::now() < deadline
        {
            for step in 0..100_000u64 {
                word = std::hint::black_box(word.rotate_left(5) ^ step);
            }
        }
        let used = CpuTimes::of_process().since(&before);
        assert!(used.total_ns() >= 5_000_000, "{used:?}");
        assert_eq!(before.since(&CpuTimes::of_process()).total_ns(), 0);
    }

    #[test]
    fn cores_of_work() {
        let used = CpuTimes { user_ns: 1_500, system_ns: 500 };
        assert_eq!((used.cores(1_000), used.cores(0)), (2.0, 0.0));
        let time = libc::timeval { tv_sec: 2, tv_usec: 7 };
        assert_eq!(nanoseconds(time), 2_000_007_000);
    }
}
