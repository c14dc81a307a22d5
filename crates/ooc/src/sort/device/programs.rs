//! The device's work on chunks of the input and of the output.

use headrace_flow::{BoxError, DeviceOutput, DeviceProgram, DeviceSlice, OutputSpec, SlotChunk};
use headrace_gpu::{DeviceBuffer, Stream};

use super::arrays::Arrays;
use super::kernels::Kernels;

/// Takes the records of chunks to their places in the array.
pub(super) struct Taker<'a> {
    pub kernels: &'a Kernels,
    pub arrays: &'a Arrays,
    /// By chunk: the number of records before it.
    pub firsts: &'a [u64],
    /// Of the input.
    pub record_bytes: u64,
}

// SAFETY: it has no output; the arrays are borrowed longer than the lane, which is synchronised at the end of the race.
unsafe impl DeviceProgram for Taker<'_> {
    fn launch(
        &mut self,
        stream: &Stream,
        at: SlotChunk,
        buffers: &[DeviceSlice],
    ) -> Result<(), BoxError> {
        let mut first = self.firsts[at.chunk];
        for buffer in buffers {
            let records = buffer.bytes as u64 / self.record_bytes;
            let Arrays { records: to, wide, counts, .. } = self.arrays;
            if let Some(wide) = wide {
                let place = (first * self.record_bytes) as usize;
                // SAFETY: the slot's memory is the chunk's until its work is done, and is no part of the array, in
                // which each chunk has a part of its own.
                unsafe { stream.copy_d2d_from(wide, place, buffer.address, buffer.bytes)? };
            }
            // SAFETY: as before; the arrays have room for the records of all chunks.
            unsafe { self.kernels.take(stream, (buffer.address, records), to, first, counts)? };
            first += records;
        }
        Ok(())
    }
}

/// Delivers sorted records.
pub(super) struct Giver<'a> {
    pub kernels: &'a Kernels,
    pub arrays: &'a Arrays,
    /// By chunk: its position in the output.
    pub outputs: &'a [OutputSpec],
    /// The position of the arrays in the output.
    pub first_byte: u64,
    /// By slot: where wide records are assembled.
    pub gathered: Vec<DeviceBuffer>,
    /// Where the bytes of the last launched chunk lie.
    pub address: u64,
}

// SAFETY: what it puts out lies in the arrays, which are borrowed longer than the lane and are written by nobody
// meanwhile, or in memory of its own for each slot, which is not written before the slot has another chunk.
unsafe impl DeviceProgram for Giver<'_> {
    fn launch(
        &mut self,
        stream: &Stream,
        at: SlotChunk,
        _: &[DeviceSlice],
    ) -> Result<(), BoxError> {
        let OutputSpec { offset, bytes, .. } = self.outputs[at.chunk];
        let Arrays { records, wide, .. } = self.arrays;
        let part = (offset - self.first_byte, bytes);
        let Some(wide) = wide else {
            self.address = records.ptr() + part.0;
            return Ok(());
        };
        self.address = self.gathered[at.slot].ptr();
        // SAFETY: the arrays have the records of the whole output, the slot's memory has room for a chunk.
        unsafe { self.kernels.gather(stream, records, wide, self.address, part)? };
        Ok(())
    }

    fn output(
        &mut self,
        chunk: usize,
        _: &[DeviceSlice],
    ) -> Result<Option<DeviceOutput>, BoxError> {
        Ok(Some(DeviceOutput { address: self.address, to: self.outputs[chunk] }))
    }
}
