//! The kernels on a device.

use headrace_gpu::{DeviceBuffer, Function, Grid, LaunchArgs, Source, Stream, launch};

use super::shape::{Call, Kernel, Sorted, THREADS};
use crate::sort::{Order, RecordLayout};
use crate::{DeviceRoom, Result};

/// Kernels for records of a shape, loaded on a device.
#[derive(Debug)]
pub(super) struct Kernels {
    pub sorted: Sorted,
    take: Function,
    sweep: Function,
    /// For wide records.
    gather: Option<Function>,
}

impl Kernels {
    /// Compiles and loads the kernels for a layout.
    pub fn load(device: &DeviceRoom, layout: &RecordLayout, order: Order) -> Result<Kernels> {
        let sorted = Sorted::of(layout, order);
        let text = sorted.shape.source();
        let module = device.module(&Source { name: "radix.cu", text: &text, headers: &[] })?;
        let function = |kernel| module.function(sorted.name(kernel));
        let sweep = function(Kernel::Sweep)?;
        sweep.set_max_dynamic_shared_bytes(sorted.shared_bytes())?;
        let gather = sorted.is_wide().then(|| function(Kernel::Gather)).transpose()?;
        Ok(Kernels { sorted, take: function(Kernel::Take)?, sweep, gather })
    }

    /// Whether the sorted items are numbers of records that lie elsewhere.
    pub fn is_wide(&self) -> bool {
        self.sorted.is_wide()
    }

    /// Queues the taking of `records` records at `from`, the first of which has the number `first`, to their place
    /// in the array `to`, and the counting of their digits.
    ///
    /// # Safety
    /// `from` has as many records, `to` room for those and `first` before them, `counts` for all digits; all stay, and
    /// nobody else touches that part of `to`, until the stream is done.
    pub unsafe fn take(
        &self,
        stream: &Stream,
        (from, records): (u64, u64),
        to: &DeviceBuffer,
        first: u64,
        counts: &DeviceBuffer,
    ) -> Result<()> {
        if records == 0 {
            return Ok(());
        }
        let call = self.sorted.take((from, records), to.ptr(), first, counts.ptr());
        // SAFETY: the struct is the kernel's; the memory is the caller's promise.
        unsafe { self.launch(stream, &call) }
    }

    /// Queues the move of all records from one array to the other in the order of the digit that begins with bit
    /// `shift` of their keys.
    ///
    /// # Safety
    /// Both arrays have `records` records, `starts` says for each digit how many of them have smaller ones, `told` has
    /// [`told_bytes`](super::shape::told_bytes) of zeros; all stay, and nobody else touches them, until the stream is done.
    pub unsafe fn sweep(
        &self,
        stream: &Stream,
        (from, to): (&DeviceBuffer, &DeviceBuffer),
        records: u64,
        shift: usize,
        (starts, told): (u64, &DeviceBuffer),
    ) -> Result<()> {
        let arrays = (from.ptr(), to.ptr());
        let call = self.sorted.sweep(arrays, records, shift, (starts, told.ptr()));
        // SAFETY: the struct is the kernel's; the memory is the caller's promise.
        unsafe { self.launch(stream, &call) }
    }

    /// Queues the gathering of output bytes, for numbered records.
    ///
    /// # Safety
    /// `order` are the sorted numbers of the records in `from`, `to` has room for the bytes; all stay until the stream
    /// is done.
    pub unsafe fn gather(
        &self,
        stream: &Stream,
        order: &DeviceBuffer,
        from: &DeviceBuffer,
        to: u64,
        (first_byte, bytes): (u64, u64),
    ) -> Result<()> {
        let memory = (order.ptr(), from.ptr(), to);
        let Some(call) = self.sorted.gather(memory, (first_byte, bytes)) else { return Ok(()) };
        // SAFETY: the struct is the kernel's; the memory is the caller's promise.
        unsafe { self.launch(stream, &call) }
    }

    /// # Safety
    /// As [`headrace_gpu::launch`].
    unsafe fn launch(&self, stream: &Stream, call: &Call) -> Result<()> {
        let function = match call.kernel {
            Kernel::Take => &self.take,
            Kernel::Sweep => &self.sweep,
            Kernel::Gather => self.gather.as_ref().expect("it is loaded for wide records"),
        };
        let (blocks, shared_bytes) = (call.blocks, call.shared_bytes);
        let grid = Grid { blocks, threads: THREADS, shared_bytes };
        let mut list = LaunchArgs::new();
        list.push_bytes(bytemuck::cast_slice(&call.args));
        // SAFETY: the caller's promise.
        unsafe { launch(function, grid, stream, &mut list)? };
        Ok(())
    }
}
