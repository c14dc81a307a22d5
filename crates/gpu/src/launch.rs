//! The single seam through which every kernel is launched.

use std::ffi::c_void;
use std::ptr;

use crate::api;
use crate::error::{GpuError, Result};
use crate::module::Function;
use crate::stream::Stream;

/// The most blocks that a one-dimensional grid may have.
const BLOCKS_MAX: u32 = i32::MAX as u32;

/// The shape of a launch: one dimension of blocks, one of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks, 1 to 2^31 - 1.
    pub blocks: u32,
    /// Threads a block.
    pub threads: u32,
    /// Dynamic shared memory a block, in bytes. Above 48 KiB the function must have been
    /// told before: [`Function::set_max_dynamic_shared_bytes`].
    pub shared_bytes: u32,
}

/// The arguments of a launch, in the order of the kernel's parameters. Values are copied when
/// pushed and again by the driver at launch, so a list may be reused.
#[derive(Debug, Clone, Default)]
pub struct LaunchArgs {
    /// Argument bytes, each starting at a 16-byte boundary: the strictest alignment a
    /// parameter can have.
    storage: Vec<u128>,
    /// First storage element and size in bytes of each argument.
    arguments: Vec<(usize, usize)>,
    /// Scratch of `pointers`, reused between calls.
    pointers: Vec<*mut c_void>,
}

// SAFETY: `pointers` is scratch that is rewritten before each use; it owns nothing and
// points into `storage`, which moves with the value.
unsafe impl Send for LaunchArgs {}
// SAFETY: the scratch is only written and read through `&mut self`.
unsafe impl Sync for LaunchArgs {}

impl LaunchArgs {
    /// No arguments yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Arguments pushed so far.
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// A 64-bit unsigned integer.
    pub fn push_u64(&mut self, value: u64) -> &mut Self {
        self.push_bytes(&value.to_ne_bytes())
    }

    /// A device address.
    pub fn push_ptr(&mut self, device_address: u64) -> &mut Self {
        self.push_u64(device_address)
    }

    /// A struct passed by value, as its bytes; any scalar as well.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.arguments.push((self.storage.len(), bytes.len()));
        for piece in bytes.chunks(size_of::<u128>()) {
            let mut element = [0; size_of::<u128>()];
            element[..piece.len()].copy_from_slice(piece);
            self.storage.push(u128::from_ne_bytes(element));
        }
        self
    }

    /// The address of each argument, valid until the next call on this list.
    fn pointers(&mut self) -> *mut *mut c_void {
        let base = self.storage.as_mut_ptr();
        self.pointers.clear();
        // `wrapping_add`, as an argument of 0 bytes at the end points one past the storage.
        self.pointers.extend(
            self.arguments.iter().map(|&(element, _)| base.wrapping_add(element).cast::<c_void>()),
        );
        self.pointers.as_mut_ptr()
    }

    /// Whether the sizes are those of the kernel's parameters.
    fn require_sizes(&self, function: &Function) -> Result<()> {
        let sizes = self.arguments.iter().map(|&(_, bytes)| bytes);
        let expected = &function.info().parameter_bytes;
        if sizes.clone().eq(expected.iter().copied()) {
            return Ok(());
        }
        Err(GpuError::invalid(
            "launch",
            format!(
                "kernel `{}` has parameters of {expected:?} bytes, the arguments have {:?}",
                function.name(),
                sizes.collect::<Vec<_>>()
            ),
        ))
    }
}

/// Queues `function` in `stream` with `args`. The number and sizes of the arguments are
/// checked against the kernel's parameters, the shape against its limits.
///
/// # Errors
/// [`GpuError::InvalidArgument`] when a check fails, [`GpuError::Driver`] when the driver
/// refuses. A fault of the running kernel surfaces at a later call on its device.
///
/// # Safety
/// The kernel must be right for these arguments: every address it reaches through them
/// must be memory of its device (or registered host memory), large enough, alive, and
/// touched by nobody else unordered, until the stream has done the kernel.
pub unsafe fn launch(
    function: &Function,
    grid: Grid,
    stream: &Stream,
    args: &mut LaunchArgs,
) -> Result<()> {
    require_shape(function, grid, stream)?;
    args.require_sizes(function)?;
    let device = function.device();
    device.bind()?;
    // SAFETY: function and stream are alive and of the current context; the pointer array
    // has one live value for each parameter, of its size, which the driver copies before
    // it returns. The addresses inside are the caller's promise.
    let code = unsafe {
        api::cuLaunchKernel(
            function.raw(),
            grid.blocks,
            1,
            1,
            grid.threads,
            1,
            1,
            grid.shared_bytes,
            stream.raw(),
            args.pointers(),
            ptr::null_mut(),
        )
    };
    function.check("cuLaunchKernel", code)?;
    tracing::trace!(kernel = function.name(), ?grid, "launch");
    Ok(())
}

fn require_shape(function: &Function, grid: Grid, stream: &Stream) -> Result<()> {
    let refuse = |reason: String| {
        Err(GpuError::invalid("launch", format!("kernel `{}`: {reason}", function.name())))
    };
    if stream.device().ordinal() != function.device().ordinal() {
        return refuse(format!(
            "it is loaded on device {}, the stream is of device {}",
            function.device().ordinal(),
            stream.device().ordinal()
        ));
    }
    let threads_max = function.info().max_threads_per_block;
    if grid.threads == 0 || grid.threads > threads_max {
        return refuse(format!("{} threads a block, of 1 to {threads_max}", grid.threads));
    }
    if grid.blocks == 0 || grid.blocks > BLOCKS_MAX {
        return refuse(format!("{} blocks, of 1 to {BLOCKS_MAX}", grid.blocks));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arguments_keep_their_bytes_and_are_aligned(
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..100), 1..12),
        ) {
            let mut args = LaunchArgs::new();
            for value in &values {
                args.push_bytes(value);
            }
            prop_assert_eq!(args.len(), values.len());
            let pointers = args.pointers();
            for (index, value) in values.iter().enumerate() {
                // SAFETY: `pointers` has one entry for each argument, and each points to
                // the argument's bytes; the list is not touched meanwhile.
                let stored = unsafe {
                    let address = (*pointers.add(index)).cast::<u8>();
                    prop_assert_eq!(address as usize % 16, 0);
                    std::slice::from_raw_parts(address, value.len())
                };
                prop_assert_eq!(stored, value.as_slice());
            }
        }
    }
}
