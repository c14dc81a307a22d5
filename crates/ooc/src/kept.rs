//! Chunks that stay in device memory from race to race.

use headrace_flow::{BoxError, DEVICE_ALIGN_BYTES, DeviceSlice, ReadSpec};
use headrace_gpu::{DeviceBuffer, Stream};

use crate::DeviceRoom;

/// Device memory left for others.
const SPARE_BYTES: u64 = 64 << 20;

/// Chunks by number.
#[derive(Debug)]
pub(crate) struct Kept {
    chunks: Vec<Option<DeviceBuffer>>,
    /// Room left for more.
    rest_bytes: u64,
}

impl Kept {
    /// Room for up to this many chunks, once it is known how much memory there is.
    pub fn new(chunks: usize) -> Kept {
        Kept { chunks: (0..chunks).map(|_| None).collect(), rest_bytes: 0 }
    }

    /// What is free now may be used.
    pub fn use_free(&mut self, device: &DeviceRoom) {
        self.rest_bytes = device.free_bytes().saturating_sub(SPARE_BYTES);
    }

    /// Whether a chunk is there.
    pub fn has(&self, chunk: usize) -> bool {
        self.chunks.get(chunk).is_some_and(Option::is_some)
    }

    /// Keeps a chunk that lies in a slot if there is room: its pieces consecutively, each as aligned as there. Called
    /// at the chunk's launch, on the stream of its work.
    ///
    /// # Errors
    /// The driver's.
    pub fn keep(
        &mut self,
        device: &DeviceRoom,
        stream: &Stream,
        chunk: usize,
        buffers: &[DeviceSlice],
    ) -> std::result::Result<(), BoxError> {
        let bytes: usize = buffers.iter().map(|buffer| aligned(buffer.bytes)).sum();
        let needed = bytes as u64;
        if chunk >= self.chunks.len() || needed > self.rest_bytes {
            return Ok(());
        }
        let Ok(kept) = device.pool.alloc(bytes) else {
            // The pool's classes of sizes take more than was asked for: nothing more stays.
            self.rest_bytes = 0;
            return Ok(());
        };
        let mut at = 0;
        for buffer in buffers {
            // SAFETY: the slot's memory is the chunk's until it is retired, after this copy, and the buffer lives
            // as long as the streams that the slots wait for when they are dropped.
            unsafe { stream.copy_d2d_from(&kept, at, buffer.address, buffer.bytes)? };
            at += aligned(buffer.bytes);
        }
        self.rest_bytes -= needed.max(kept.capacity_bytes()).min(self.rest_bytes);
        self.chunks[chunk] = Some(kept);
        Ok(())
    }

    /// Where a chunk's pieces lie: here, or in the slot.
    pub fn addresses(&self, chunk: usize, reads: &[ReadSpec], buffers: &[DeviceSlice]) -> Vec<u64> {
        let Some(kept) = self.chunks.get(chunk).and_then(Option::as_ref) else {
            return buffers.iter().map(|buffer| buffer.address).collect();
        };
        let mut at = kept.ptr();
        let place = |read: &ReadSpec| {
            let here = at;
            at += aligned(read.bytes as usize) as u64;
            here
        };
        reads.iter().map(place).collect()
    }
}

/// Bytes of a piece, padded so that the next one is aligned for any load.
fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(DEVICE_ALIGN_BYTES)
}
