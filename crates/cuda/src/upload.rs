//! Tables of a chunk on their way to the device, by a kernel that reads them out of pinned memory.
//!
//! A copy engine works on one copy at a time: what is small and wanted now would wait there for the
//! chunks that were queued before, megabytes each, and its slot with it.
//!
//! More slots only made that queue longer.

use std::ops::Range;

use headrace_gpu::{DeviceBuffer, Function, Grid, Source, Stream};
use headrace_pipeline::ExecError;

use crate::error::CudaError;
use crate::headers::HEADERS;
use crate::pinned::PinnedLease;
use crate::words::queue_words;

/// Name of the kernel.
pub(crate) const UPLOAD_KERNEL_NAME: &str = "headrace_upload";

/// Threads of a block of it, and blocks at most: what is more than they copy at once is no table.
const BLOCK_THREADS: usize = 256;
const BLOCKS_MAX: usize = 64;

const WORD_BYTES: usize = 8;

/// The kernel's source.
pub(crate) fn upload_source() -> Source<'static> {
    Source { name: "upload.cu", text: include_str!("../kernels/upload.cu"), headers: &HEADERS }
}

/// Queues a copy, by the kernel that is given, of a range of bytes of `from` to the same place of `to`: whole words of 8 bytes.
///
/// # Errors
/// [`ExecError::Internal`] for parts of words or a range outside of either, [`CudaError::Gpu`].
///
/// # Safety
/// Nobody may touch the bytes, here or there, until the stream has done it.
pub(crate) unsafe fn queue_upload(
    upload: &Function,
    stream: &Stream,
    from: &PinnedLease,
    to: &DeviceBuffer,
    range: Range<usize>,
) -> Result<(), CudaError> {
    let (at, room) = (range.start, from.as_slice().len().min(to.bytes()));
    if range.end > room || !at.is_multiple_of(WORD_BYTES) || !range.len().is_multiple_of(WORD_BYTES)
    {
        return Err(ExecError::Internal(format!("upload of bytes {range:?} of {room}")).into());
    }
    let words = range.len() / WORD_BYTES;
    if words == 0 {
        return Ok(());
    }
    let params = [from.device_address() + at as u64, to.ptr() + at as u64, words as u64];
    let grid = Grid {
        blocks: words.div_ceil(BLOCK_THREADS).min(BLOCKS_MAX) as u32,
        threads: BLOCK_THREADS as u32,
        shared_bytes: 0,
    };
    // SAFETY: the struct is filled field by field as `upload.cu` declares it; both ranges are inside
    // their memory, and nobody else's until then by the caller's promise.
    unsafe { queue_words(upload, stream, grid, &params) }
}
