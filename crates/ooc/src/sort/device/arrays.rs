//! Records in device memory, and their sort.

use headrace_gpu::{DeviceBuffer, Stream};

use super::kernels::Kernels;
use super::shape::{DIGITS, told_bytes};
use crate::{DeviceRoom, Result};

/// Two arrays of records, between which they move, and the counters.
#[derive(Debug)]
pub(super) struct Arrays {
    /// The records, and their other place.
    pub records: DeviceBuffer,
    spare: DeviceBuffer,
    /// For wide records, the arrays hold their numbers.
    pub wide: Option<DeviceBuffer>,
    /// By digit and value: the number of records.
    pub counts: DeviceBuffer,
    starts: DeviceBuffer,
    told: DeviceBuffer,
}

impl Arrays {
    /// Bytes of device memory for this many records of a width.
    pub fn bytes(kernels: &Kernels, records: u64, record_bytes: u64) -> u64 {
        let moved = kernels.sorted.shape.record_bytes() as u64;
        let wide = if kernels.is_wide() { records * record_bytes } else { 0 };
        // Each of the buffers is rounded up to 2 MiB.
        2 * records * moved + wide + told_bytes(&kernels.sorted.shape, records) as u64 + (16 << 20)
    }

    /// For up to this many records.
    pub fn new(
        room: &DeviceRoom,
        kernels: &Kernels,
        records: u64,
        record_bytes: u64,
    ) -> Result<Arrays> {
        let moved_bytes = (records * kernels.sorted.shape.record_bytes() as u64) as usize;
        let counts_bytes = kernels.sorted.shape.digits() * DIGITS * 8;
        let wide_bytes = kernels.is_wide().then_some((records * record_bytes) as usize);
        Ok(Arrays {
            records: room.pool.alloc(moved_bytes)?,
            spare: room.pool.alloc(moved_bytes)?,
            wide: wide_bytes.map(|bytes| room.pool.alloc(bytes)).transpose()?,
            counts: room.pool.alloc(counts_bytes)?,
            starts: room.pool.alloc(counts_bytes)?,
            told: room.pool.alloc(told_bytes(&kernels.sorted.shape, records))?,
        })
    }

    /// Resets the counters for other records.
    pub fn clear(&mut self, stream: &Stream) -> Result<()> {
        // SAFETY: the buffer is this value's, which is borrowed until the stream is done.
        unsafe { stream.fill_async(&self.counts, 0, self.counts.bytes(), 0)? };
        Ok(stream.synchronize()?)
    }

    /// Sorts the first `records` records, which were all taken and counted.
    pub fn sort(&mut self, stream: &Stream, kernels: &Kernels, records: u64) -> Result<()> {
        let mut counts = vec![0u64; kernels.sorted.shape.digits() * DIGITS];
        stream.download(&self.counts, 0, bytemuck::cast_slice_mut(&mut counts))?;
        let sweeps = kernels.sorted.sweeps(&mut counts, records);
        stream.upload(&self.starts, 0, bytemuck::cast_slice(&counts))?;
        for digit in sweeps {
            let starts = self.starts.ptr() + (digit * DIGITS * 8) as u64;
            // SAFETY: all buffers are this value's, which is borrowed until the stream is done, and as large as the
            // kernel needs for so many records.
            unsafe {
                stream.fill_async(&self.told, 0, told_bytes(&kernels.sorted.shape, records), 0)?;
                let arrays = (&self.records, &self.spare);
                kernels.sweep(stream, arrays, records, 8 * digit, (starts, &self.told))?;
            }
            std::mem::swap(&mut self.records, &mut self.spare);
        }
        Ok(stream.synchronize()?)
    }
}
