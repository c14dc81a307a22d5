//! A table of hashed groups that is full becomes a larger one.

use headrace_gpu::{Grid, Source, Stream};

use super::CudaExecution;
use crate::device::CudaDevice;
use crate::device_state::GroupBuffers;
use crate::error::CudaError;
use crate::headers::HEADERS;
use crate::words::queue_words;

/// Name of the kernel.
const KERNEL_NAME: &str = "headrace_rehash";

const BLOCK_THREADS: u32 = 256;

/// The kernel's source.
pub fn rehash_source() -> Source<'static> {
    Source { name: "rehash.cu", text: include_str!("../../kernels/rehash.cu"), headers: &HEADERS }
}

/// The parameter struct of `rehash.cu`, field by field.
pub fn rehash_params(
    (slots, slot_mask): (u64, u64),
    (keys, groups): (u64, u64),
    (words, text_keys): (usize, usize),
) -> [u64; 6] {
    [slots, slot_mask, keys, groups, words as u64, text_keys as u64]
}

impl CudaExecution {
    /// Makes the table larger, if there is memory for it; whether it did. Waits for `stream`, in which the kernels so
    /// far come before, and all later ones must come after.
    pub(super) fn grow(&mut self, stream: &Stream) -> Result<bool, CudaError> {
        let (Some(state), Some(loaded)) = (&self.state, self.kernels.first()) else {
            return Ok(false);
        };
        let Some((larger, used)) = state.larger(&self.device, &loaded.kernel.program, stream)?
        else {
            return Ok(false);
        };
        let queued = match &larger.groups {
            // SAFETY: the state is held until the wait below, and nothing else uses it.
            Some(groups) => unsafe { rehash(&self.device, stream, groups, used) },
            None => Ok(()),
        };
        stream.synchronize()?;
        queued?;
        tracing::debug!(bytes = larger.device_bytes(), "a larger table of groups");
        self.state = Some(larger);
        Ok(true)
    }
}

/// Queues what enters the groups of a table in its slots, which are free.
///
/// # Safety
/// The table must live until the stream has done it, and nothing else use it meanwhile.
unsafe fn rehash(
    device: &CudaDevice,
    stream: &Stream,
    table: &GroupBuffers,
    used: u32,
) -> Result<(), CudaError> {
    if used == 0 {
        return Ok(());
    }
    let function = device.function(&rehash_source(), KERNEL_NAME)?;
    let slots = (table.slots.ptr(), table.room.slots() - 1);
    let key = (table.layout.keys.words, table.layout.keys.texts);
    let words = rehash_params(slots, (table.keys.ptr(), used.into()), key);
    let grid = Grid {
        blocks: used.div_ceil(BLOCK_THREADS).min(1 << 16),
        threads: BLOCK_THREADS,
        shared_bytes: 0,
    };
    // SAFETY: the struct is filled field by field as `rehash.cu` declares it; the table is the caller's promise.
    unsafe { queue_words(&function, stream, grid, &words) }
}
