//! The speed of copies within host memory. Needs no GPU.

use serde::{Deserialize, Serialize};

use super::best_of;
use crate::error::{GpuError, Result};
use crate::host_pages::HostPages;
use crate::threads::{all_at_once, span_s};

/// For each thread and side. Together larger than a last-level cache from a few threads on; a
/// single thread's copy is bound by the core in any case.
const BYTES_PER_THREAD: usize = 64 << 20;
const COPIES_PER_SAMPLE: usize = 2;

/// More than any machine has cores; a bound on the memory taken.
const THREADS_MAX: usize = 1024;

/// Copies within host memory by several threads: the best of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HostCopySpeed {
    /// Threads that copied.
    pub threads: usize,
    /// Bytes copied, in GB/s (GB = 10^9 bytes).
    pub gb_per_s: f64,
    /// Memory traffic of the copy in GB/s: each copied byte is read once and written once. (Where
    /// the processor first reads what it overwrites, the real traffic is half as much again.)
    pub traffic_gb_per_s: f64,
}

/// GB/s of `memcpy` by `threads` threads, each between two buffers of its own of 64 MiB.
///
/// # Errors
/// [`GpuError::InvalidArgument`] for no thread or more than 1024,
/// [`GpuError::HostMemory`] without memory for the buffers, or without that many threads.
pub fn host_copy(threads: usize) -> Result<HostCopySpeed> {
    if threads == 0 || threads > THREADS_MAX {
        return Err(GpuError::invalid(
            "measure::host_copy",
            format!("{threads} threads are not between 1 and {THREADS_MAX}"),
        ));
    }
    let mut pairs = (0..threads)
        .map(|_| Ok((HostPages::new(BYTES_PER_THREAD)?, HostPages::new(BYTES_PER_THREAD)?)))
        .collect::<Result<Vec<_>>>()?;
    let bytes = threads * COPIES_PER_SAMPLE * BYTES_PER_THREAD;
    let gb_per_s = best_of(bytes, || sample_s(&mut pairs))?.gb_per_s;
    Ok(HostCopySpeed { threads, gb_per_s, traffic_gb_per_s: 2.0 * gb_per_s })
}

/// Seconds from the first thread's start to the last one's end.
fn sample_s(pairs: &mut [(HostPages, HostPages)]) -> Result<f64> {
    let timed = all_at_once(pairs, |(source, target)| {
        for _ in 0..COPIES_PER_SAMPLE {
            target.as_mut_slice().copy_from_slice(source.as_slice());
            // A copy whose result nobody reads could be left out.
            std::hint::black_box(target.as_slice());
        }
    })?;
    Ok(span_s(&timed))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_copy_has_a_speed_that_a_machine_can_have() {
        let speed = host_copy(2).unwrap();
        assert_eq!(speed.threads, 2);
        assert!((0.1..10_000.0).contains(&speed.gb_per_s), "{speed:?}");
        assert!((speed.traffic_gb_per_s / speed.gb_per_s - 2.0).abs() < 1e-9, "{speed:?}");
    }

    #[test]
    fn senseless_thread_counts_are_refused() {
        assert!(matches!(host_copy(0), Err(GpuError::InvalidArgument { .. })));
        assert!(matches!(host_copy(THREADS_MAX + 1), Err(GpuError::InvalidArgument { .. })));
    }
}
