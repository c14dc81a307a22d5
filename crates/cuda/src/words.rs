//! Kernels of their own whose parameters are words: all that are not generated.

use headrace_gpu::{Function, Grid, LaunchArgs, Stream, launch};

use crate::error::CudaError;

/// The bytes of words.
pub fn word_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Queues a kernel whose parameter struct has a field of 8 bytes for each word.
///
/// # Errors
/// [`CudaError::Gpu`] when the driver refuses.
///
/// # Safety
/// The words must be what the kernel declares, field by field. What their addresses point to must be valid and
/// ordered with the stream until it has done the kernel.
pub(crate) unsafe fn queue_words(
    function: &Function,
    stream: &Stream,
    grid: Grid,
    words: &[u64],
) -> Result<(), CudaError> {
    let mut args = LaunchArgs::new();
    args.push_bytes(&word_bytes(words));
    // SAFETY: the caller's promise.
    unsafe { launch(function, grid, stream, &mut args) }?;
    Ok(())
}
