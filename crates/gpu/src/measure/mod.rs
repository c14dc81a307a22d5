//! How fast bytes move on this machine: the measured ceilings for comparison.
//!
//! Every figure is the best of a few samples of some hundreds of mebibytes, in GB/s of 10^9 bytes,
//! because a ceiling is what the machine can do and disturbed samples are lower. The machine should
//! be idle. The device times copies between host and device; the host's clock times all others.
//!
//! | figure | what is copied | counted |
//! |---|---|---|
//! | [`h2d`], [`d2h`] | pinned host memory to or from the device | bytes copied |
//! | [`h2d_all`] | pinned memory to several devices at the same time | bytes copied, in all |
//! | [`device_memory`] | within the device's memory | bytes read + bytes written |
//! | [`host_copy`] | within host memory, several threads | bytes copied; traffic beside it |
//!
//! Threads on any core touch the buffers, so on a machine with several NUMA nodes their pages lie
//! where those threads ran.

mod host;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::error::{GpuError, Result};
use crate::pinned::PinnedBuffer;
use crate::pool::{DeviceBuffer, DevicePool};
use crate::stream::Stream;
use crate::threads::{all_at_once, span_s};

pub use host::{HostCopySpeed, host_copy};

/// Large enough that the cost of starting a copy does not show.
const COPY_BYTES: usize = 64 << 20;
const COPIES_PER_SAMPLE: usize = 4;
const SAMPLES: u32 = 3;

/// Much larger than any L2 cache, so that a copy is one of memory.
const DEVICE_COPY_BYTES: usize = 512 << 20;

/// Several devices at once are compared by the host's clock: longer samples hide the start of the
/// threads.
const COPIES_PER_CONCURRENT_SAMPLE: usize = 16;

/// The speed of a kind of copy: the best of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CopySpeed {
    /// GB/s (GB = 10^9 bytes).
    pub gb_per_s: f64,
    /// Bytes counted in one sample.
    pub bytes: u64,
    /// Samples taken.
    pub samples: u32,
}

/// Copies to several devices at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllDevices {
    /// Ordinals, in the order asked for.
    pub ordinals: Vec<usize>,
    /// What each device received while all were busy, in GB/s, in the same order.
    pub per_device_gb_per_s: Vec<f64>,
    /// Bytes of all devices by the time the slowest took, in GB/s: the machine's own
    /// ceiling for these devices together.
    pub total_gb_per_s: f64,
}

/// GB/s of copies from pinned host memory to `device`. Takes 64 MiB of each memory and
/// some tens of milliseconds.
///
/// # Errors
/// [`GpuError::OutOfMemory`] without room for the two buffers, [`GpuError::Driver`] for the
/// driver's faults.
pub fn h2d(device: &Arc<Device>) -> Result<CopySpeed> {
    one_way(device, Direction::HostToDevice)
}

/// GB/s of copies from `device` to pinned host memory; otherwise as [`h2d`].
///
/// # Errors
/// As [`h2d`].
pub fn d2h(device: &Arc<Device>) -> Result<CopySpeed> {
    one_way(device, Direction::DeviceToHost)
}

/// GB/s of copies within the device's memory, reads and writes counted: the bound for a kernel that
/// streams through memory. Takes up to 1 GiB of device memory, less if less is free.
///
/// # Errors
/// [`GpuError::OutOfMemory`] without room for the two buffers, [`GpuError::Driver`] for the
/// driver's faults.
pub fn device_memory(device: &Arc<Device>) -> Result<CopySpeed> {
    let (free_bytes, _) = device.free_and_total_memory()?;
    let quarter = usize::try_from(free_bytes / 4).unwrap_or(usize::MAX);
    // Whole blocks of the pool's, or their rounding would pass the budget.
    let bytes = (quarter / COPY_BYTES * COPY_BYTES).clamp(COPY_BYTES, DEVICE_COPY_BYTES);
    let pool = DevicePool::new(device, 2 * bytes as u64);
    let (source, target) = (pool.alloc(bytes)?, pool.alloc(bytes)?);
    let stream = device.stream()?;
    // SAFETY: both buffers live past the synchronisation inside `timed`.
    let copy = || unsafe { stream.copy_d2d_async(&target, 0, &source, 0, bytes) };
    timed(&stream, 1, copy)?;
    best_of(2 * COPIES_PER_SAMPLE * bytes, || timed(&stream, COPIES_PER_SAMPLE, copy))
}

/// GB/s of copies from pinned host memory to all of `devices` at the same time, one
/// thread and one buffer for each.
///
/// # Errors
/// [`GpuError::InvalidArgument`] for no device, [`GpuError::HostMemory`] without a thread
/// for each, else as [`h2d`].
pub fn h2d_all(devices: &[Arc<Device>]) -> Result<AllDevices> {
    if devices.is_empty() {
        return Err(GpuError::invalid("measure::h2d_all", "no device was given"));
    }
    let rigs = devices
        .iter()
        .map(|device| Rig::new(device, Direction::HostToDevice))
        .collect::<Result<Vec<_>>>()?;
    let mut best: Option<AllDevices> = None;
    for _ in 0..SAMPLES {
        let sample = all_once(&rigs)?;
        if best.as_ref().is_none_or(|best| sample.total_gb_per_s > best.total_gb_per_s) {
            best = Some(sample);
        }
    }
    Ok(best.expect("SAMPLES is not 0"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    HostToDevice,
    DeviceToHost,
}

/// A buffer on each side of the link and the stream between them.
struct Rig {
    direction: Direction,
    stream: Stream,
    host: PinnedBuffer,
    device: DeviceBuffer,
}

impl Rig {
    /// The buffers, after a first copy that wakes the link from power saving.
    fn new(device: &Arc<Device>, direction: Direction) -> Result<Self> {
        let rig = Self {
            direction,
            stream: device.stream()?,
            host: PinnedBuffer::new(device, COPY_BYTES)?,
            device: DevicePool::new(device, COPY_BYTES as u64).alloc(COPY_BYTES)?,
        };
        let queued = rig.queue(1);
        queued.and(rig.stream.synchronize())?;
        Ok(rig)
    }

    /// Queues `copies` copies. The rig must be synchronised before it is dropped.
    fn queue(&self, copies: usize) -> Result<()> {
        for _ in 0..copies {
            let (host, device) = (self.host.ptr().as_ptr(), self.device.ptr());
            match self.direction {
                // SAFETY: both ranges are COPY_BYTES long and belong to the rig, whose
                // users synchronise the stream before they look at or drop it.
                Direction::HostToDevice => unsafe {
                    self.stream.copy_h2d_raw(device, host, COPY_BYTES)
                },
                // SAFETY: as above; nobody reads the host's side.
                Direction::DeviceToHost => unsafe {
                    self.stream.copy_d2h_raw(host, device, COPY_BYTES)
                },
            }?;
        }
        Ok(())
    }
}

fn one_way(device: &Arc<Device>, direction: Direction) -> Result<CopySpeed> {
    let rig = Rig::new(device, direction)?;
    best_of(COPIES_PER_SAMPLE * COPY_BYTES, || {
        timed(&rig.stream, COPIES_PER_SAMPLE, || rig.queue(1))
    })
}

/// The best of [`SAMPLES`] samples of `bytes` bytes, each of which tells its seconds.
fn best_of(bytes: usize, mut sample_s: impl FnMut() -> Result<f64>) -> Result<CopySpeed> {
    let mut best_gb_per_s = 0f64;
    for _ in 0..SAMPLES {
        best_gb_per_s = best_gb_per_s.max(gb_per_s(bytes, sample_s()?));
    }
    Ok(CopySpeed { gb_per_s: best_gb_per_s, bytes: bytes as u64, samples: SAMPLES })
}

/// Seconds on the device for `times` times what `queue` puts into the stream. Waits for
/// the stream, also after an error: queued copies still use their buffers.
fn timed(stream: &Stream, times: usize, queue: impl Fn() -> Result<()>) -> Result<f64> {
    let device = stream.device();
    let start = device.event()?;
    let end = device.event()?;
    let queued = start
        .record(stream)
        .and_then(|()| (0..times).try_for_each(|_| queue()))
        .and_then(|()| end.record(stream));
    queued.and(stream.synchronize())?;
    Ok(f64::from(start.elapsed_ms(&end)?) / 1e3)
}

/// One sample of all rigs at the same time.
fn all_once(rigs: &[Rig]) -> Result<AllDevices> {
    let timed = all_at_once(rigs, |rig| {
        let queued = rig.queue(COPIES_PER_CONCURRENT_SAMPLE);
        queued.and(rig.stream.synchronize())
    })?;
    for copies in &timed {
        copies.outcome.clone()?;
    }
    let bytes = COPIES_PER_CONCURRENT_SAMPLE * COPY_BYTES;
    Ok(AllDevices {
        ordinals: rigs.iter().map(|rig| rig.stream.device().ordinal()).collect(),
        per_device_gb_per_s: timed.iter().map(|it| gb_per_s(bytes, it.seconds())).collect(),
        total_gb_per_s: gb_per_s(bytes * rigs.len(), span_s(&timed)),
    })
}

/// GB/s; 0 for no time at all, which no real copy takes.
fn gb_per_s(bytes: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / 1e9 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_best_sample_counts_and_an_error_ends_it() {
        let mut seconds = [0.5, 0.25, 1.0].into_iter();
        let speed = best_of(1_000_000_000, || Ok(seconds.next().unwrap())).unwrap();
        assert_eq!(speed, CopySpeed { gb_per_s: 4.0, bytes: 1_000_000_000, samples: 3 });
        let failed = best_of(1, || Err(GpuError::invalid("test", "refused")));
        assert!(matches!(failed, Err(GpuError::InvalidArgument { .. })));
    }

    #[test]
    fn no_device_is_an_error() {
        assert!(matches!(h2d_all(&[]), Err(GpuError::InvalidArgument { .. })));
    }

    #[test]
    fn figures_survive_a_round_trip_through_json() {
        let all = AllDevices {
            ordinals: vec![0, 1],
            per_device_gb_per_s: vec![53.0, 52.0],
            total_gb_per_s: 105.0,
        };
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<AllDevices>(&text).unwrap(), all);
    }
}
