//! A GPU's work on a chunk: nothing but taking it, or summing it.

use headrace_flow::{BoxError, ChunkSpec, DeviceProgram, DeviceSlice, SlotChunk, Verdict};
use headrace_gpu::{DeviceBuffer, GpuError, Stream};

use super::kernels::Kernels;
use crate::transfer::consumer::verdict;
use crate::transfer::stop::StopSignal;
use crate::transfer::{Checksum, Progress};

/// Bytes of a chunk's checksum in device memory.
pub(super) const SUM_BYTES: usize = 16;

/// Kernels, and zeroed memory for the checksums of all chunks of the race.
#[derive(Debug)]
pub(super) struct Sums<'a> {
    pub kernels: &'a Kernels,
    pub memory: &'a DeviceBuffer,
}

/// The program of one lane.
#[derive(Debug)]
pub(super) struct Take<'a> {
    pub chunks: &'a [ChunkSpec],
    pub signal: &'a StopSignal,
    pub progress: &'a Progress,
    pub sums: Option<Sums<'a>>,
    /// Chunks that this lane has finished.
    pub done: Vec<usize>,
}

// SAFETY: it has no output.
unsafe impl DeviceProgram for &mut Take<'_> {
    fn launch(
        &mut self,
        stream: &Stream,
        SlotChunk { chunk, .. }: SlotChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), BoxError> {
        let Some(sums) = &self.sums else { return Ok(()) };
        for (read, buffer) in self.chunks[chunk].reads.iter().zip(buffers) {
            let sum = sums.memory.ptr() + (chunk * SUM_BYTES) as u64;
            let data = (buffer.address, buffer.bytes as u64);
            // SAFETY: the race leaves the buffer alone until the work that is in the stream now
            // is done; the memory of the sums outlives the lane, which is synchronised at the end
            // of the race, and each chunk has its own.
            unsafe { sums.kernels.checksum(stream, data, read.offset / 8, sum)? };
        }
        Ok(())
    }

    fn retire(&mut self, SlotChunk { chunk, .. }: SlotChunk) -> Result<Verdict, BoxError> {
        self.done.push(chunk);
        self.progress.add(self.chunks[chunk].bytes());
        Ok(verdict(self.signal))
    }
}

/// The checksums of the chunks that a lane has finished.
pub(super) fn download(
    stream: &Stream,
    memory: &DeviceBuffer,
    done: &[usize],
) -> Result<Vec<(usize, Checksum)>, GpuError> {
    let mut bytes = vec![0u8; memory.bytes()];
    stream.download(memory, 0, &mut bytes)?;
    let word = |at: usize| {
        let mut word = [0u8; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    };
    let sum = |chunk: usize| Checksum {
        plain: word(chunk * SUM_BYTES),
        mixed: word(chunk * SUM_BYTES + 8),
    };
    Ok(done.iter().map(|&chunk| (chunk, sum(chunk))).collect())
}
