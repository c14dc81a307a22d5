//! The speed of the link from host to device memory, measured.

use std::sync::Arc;

use crate::device::Device;
use crate::error::Result;
use crate::event::EventFlags;
use crate::pinned::PinnedBuffer;
use crate::pool::{DeviceBuffer, DevicePool};
use crate::stream::Stream;

/// Large enough that the cost of starting a copy does not show.
const COPY_BYTES: usize = 64 << 20;
const COPIES_PER_SAMPLE: usize = 4;
const SAMPLES: usize = 3;

/// GB/s (GB = 10^9 bytes) of copies from pinned host memory to `device`: the best of
/// three samples of 256 MiB, timed on the device. The link should be idle otherwise.
/// Takes about 64 MiB of each memory and some tens of milliseconds.
///
/// # Errors
/// [`GpuError::OutOfMemory`](crate::GpuError::OutOfMemory) without room for the two
/// buffers, [`GpuError::Driver`](crate::GpuError::Driver) for the driver's faults.
pub fn measure_h2d_gb_per_s(device: &Arc<Device>) -> Result<f64> {
    let source = PinnedBuffer::new(device, COPY_BYTES)?;
    let pool = DevicePool::new(device, COPY_BYTES as u64);
    let target = pool.alloc(COPY_BYTES)?;
    let stream = device.stream()?;
    // The first copy brings the link out of its power saving.
    stream.upload(&target, 0, &source.as_slice()[..COPY_BYTES])?;
    let mut best_gb_per_s = 0f64;
    for _ in 0..SAMPLES {
        best_gb_per_s = best_gb_per_s.max(sample_gb_per_s(&stream, &source, &target)?);
    }
    Ok(best_gb_per_s)
}

fn sample_gb_per_s(stream: &Stream, source: &PinnedBuffer, target: &DeviceBuffer) -> Result<f64> {
    let device = stream.device();
    let start = device.event(EventFlags::TIMING)?;
    let end = device.event(EventFlags::TIMING)?;
    let queued = queue_copies(stream, source, target, &start, &end);
    // Waited for even after an error: queued copies still use both buffers.
    queued.and(stream.synchronize())?;
    let seconds = f64::from(start.elapsed_ms(&end)?) / 1e3;
    Ok((COPIES_PER_SAMPLE * COPY_BYTES) as f64 / 1e9 / seconds)
}

fn queue_copies(
    stream: &Stream,
    source: &PinnedBuffer,
    target: &DeviceBuffer,
    start: &crate::event::Event,
    end: &crate::event::Event,
) -> Result<()> {
    start.record(stream)?;
    for _ in 0..COPIES_PER_SAMPLE {
        // SAFETY: the caller keeps both buffers, untouched, until it has synchronised the
        // stream.
        unsafe { stream.copy_h2d_async(target, 0, &source.as_slice()[..COPY_BYTES]) }?;
    }
    end.record(stream)
}
