//! The one door through which every kernel goes.

use std::ffi::c_void;
use std::ptr;

use crate::api;
use crate::error::{GpuError, Result};
use crate::event::{Event, EventFlags};
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

impl Grid {
    /// Enough blocks of `threads` threads for one thread an item, without dynamic shared
    /// memory; one block when there are no items.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when the items need more than 2^31 - 1 blocks, or a
    /// block has no threads.
    pub fn for_items(items: u64, threads: u32) -> Result<Self> {
        if threads == 0 {
            return Err(GpuError::invalid("Grid::for_items", "a block of 0 threads"));
        }
        let blocks = items.div_ceil(u64::from(threads)).max(1);
        match u32::try_from(blocks) {
            Ok(blocks) if blocks <= BLOCKS_MAX => Ok(Self { blocks, threads, shared_bytes: 0 }),
            _ => Err(GpuError::invalid(
                "Grid::for_items",
                format!("{items} items need {blocks} blocks; let each thread loop instead"),
            )),
        }
    }
}

/// The arguments of a launch, in the order of the kernel's parameters. Values are copied
/// when pushed and again by the driver at launch, so a list may be reused.
#[derive(Debug, Clone, Default)]
pub struct LaunchArgs {
    /// Argument bytes, each starting at a 16-byte boundary: the strictest alignment a
    /// parameter can have.
    storage: Vec<u128>,
    /// First storage element and size in bytes of each argument.
    arguments: Vec<(usize, usize)>,
    /// Scratch of `pointers`, kept to allocate once.
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

    /// Forgets the arguments and keeps the memory.
    pub fn clear(&mut self) -> &mut Self {
        self.storage.clear();
        self.arguments.clear();
        self
    }

    /// Arguments pushed so far.
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// A 32-bit unsigned integer.
    pub fn push_u32(&mut self, value: u32) -> &mut Self {
        self.push_bytes(&value.to_ne_bytes())
    }

    /// A 32-bit signed integer.
    pub fn push_i32(&mut self, value: i32) -> &mut Self {
        self.push_bytes(&value.to_ne_bytes())
    }

    /// A 64-bit unsigned integer.
    pub fn push_u64(&mut self, value: u64) -> &mut Self {
        self.push_bytes(&value.to_ne_bytes())
    }

    /// A 64-bit signed integer.
    pub fn push_i64(&mut self, value: i64) -> &mut Self {
        self.push_bytes(&value.to_ne_bytes())
    }

    /// A double.
    pub fn push_f64(&mut self, value: f64) -> &mut Self {
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

/// What a [`LaunchHook`] is told.
#[derive(Debug)]
pub struct LaunchRecord<'a> {
    /// The kernel.
    pub function: &'a Function,
    /// Its shape.
    pub grid: Grid,
    /// Where it was queued.
    pub stream: &'a Stream,
}

/// Told of every launch on a device that has it set: for traces and tests. Called in the
/// launching thread, after the kernel was queued, so it must be quick.
pub trait LaunchHook: Send + Sync {
    /// A kernel was queued.
    fn launched(&self, record: &LaunchRecord<'_>);
}

/// Two events around a launch.
#[derive(Debug)]
pub struct LaunchTiming {
    start: Event,
    end: Event,
}

impl LaunchTiming {
    /// Waits for the kernel and returns the milliseconds it took on the device. When other
    /// streams kept the device busy, that includes the wait for room.
    ///
    /// # Errors
    /// [`GpuError::Driver`] with the kernel's fault, if it had one.
    pub fn elapsed_ms(&self) -> Result<f32> {
        self.end.synchronize()?;
        self.start.elapsed_ms(&self.end)
    }

    /// Whether the kernel is done, so that [`LaunchTiming::elapsed_ms`] would not wait.
    ///
    /// # Errors
    /// [`GpuError::Driver`] with the kernel's fault, if it had one.
    pub fn is_complete(&self) -> Result<bool> {
        self.end.is_complete()
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
    device.count_launch();
    tracing::trace!(kernel = function.name(), ?grid, "launch");
    if let Some(hook) = device.launch_hook() {
        hook.launched(&LaunchRecord { function, grid, stream });
    }
    Ok(())
}

/// As [`launch`], between two timing events.
///
/// # Errors
/// As [`launch`].
///
/// # Safety
/// As [`launch`].
pub unsafe fn launch_timed(
    function: &Function,
    grid: Grid,
    stream: &Stream,
    args: &mut LaunchArgs,
) -> Result<LaunchTiming> {
    let device = function.device();
    let start = device.event(EventFlags::TIMING)?;
    let end = device.event(EventFlags::TIMING)?;
    start.record(stream)?;
    // SAFETY: this function's contract is that of `launch`.
    unsafe { launch(function, grid, stream, args) }?;
    end.record(stream)?;
    Ok(LaunchTiming { start, end })
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

    #[test]
    fn a_grid_covers_its_items() {
        assert_eq!(Grid::for_items(0, 128).unwrap().blocks, 1);
        assert_eq!(Grid::for_items(128, 128).unwrap().blocks, 1);
        assert_eq!(Grid::for_items(129, 128).unwrap().blocks, 2);
        assert!(Grid::for_items(1 << 40, 128).is_err());
        assert!(Grid::for_items(1, 0).is_err());
    }

    proptest! {
        #[test]
        fn arguments_keep_their_bytes_and_are_aligned(
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..100), 1..12),
        ) {
            let mut args = LaunchArgs::new();
            args.push_u64(7).clear();
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
