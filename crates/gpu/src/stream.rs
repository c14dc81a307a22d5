//! Streams: queues of device work, with the copies that go through them.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUmemLocation, CUmemLocationType, CUmemcpyAttributes, CUmemcpySrcAccessOrder,
    CUstream_flags_enum as RawFlags,
};

use crate::api;
use crate::device::Device;
use crate::driver::check_in_drop;
use crate::error::{GpuError, Result};
use crate::pool::DeviceBuffer;

/// Copies from host to device memory that are queued together.
#[derive(Debug, Default)]
pub struct HostCopies {
    to: Vec<u64>,
    from: Vec<u64>,
    bytes: Vec<usize>,
}

impl HostCopies {
    /// Adds a copy of `bytes` host bytes at `from` to the device address `to`; none of 0 bytes.
    pub fn push(&mut self, to: u64, from: *const u8, bytes: usize) {
        if bytes > 0 {
            self.to.push(to);
            self.from.push(from as u64);
            self.bytes.push(bytes);
        }
    }

    /// Whether there is nothing to copy.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Leaves nothing to copy; the lists keep their memory.
    pub fn clear(&mut self) {
        self.to.clear();
        self.from.clear();
        self.bytes.clear();
    }
}

/// A queue of work that the device runs in order; different streams overlap. Never synchronises
/// with the default stream.
///
/// Dropping a stream does not wait for its work.
///
/// # Asynchronous copies
/// A copy call returns once the copy is queued. From pageable memory the driver first stages the
/// bytes, which blocks the caller and runs at a fraction of the link's speed: use
/// [`PinnedBuffer`](crate::PinnedBuffer) or [`RegisteredHost`](crate::RegisteredHost) memory where
/// speed or overlap matters. The copies are `unsafe` because host and device memory must stay as
/// promised until the *stream* is done, which no borrow expresses.
pub struct Stream {
    device: Arc<Device>,
    raw: sys::CUstream,
}

// SAFETY: stream handles may be used from any thread; the driver locks inside.
unsafe impl Send for Stream {}
// SAFETY: as above; no method writes to the handle.
unsafe impl Sync for Stream {}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("device", &self.device.ordinal())
            .field("handle", &self.raw)
            .finish()
    }
}

impl Device {
    /// A new stream that does not synchronise with the default stream.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the driver refuses.
    pub fn stream(self: &Arc<Self>) -> Result<Stream> {
        Stream::new(self)
    }
}

impl Stream {
    fn new(device: &Arc<Device>) -> Result<Self> {
        device.bind()?;
        let mut raw = ptr::null_mut();
        let flags = RawFlags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current and the out-pointer is live.
        let code = unsafe { api::cuStreamCreate(&mut raw, flags) };
        device.check("cuStreamCreate", code)?;
        Ok(Self { device: Arc::clone(device), raw })
    }

    /// The device the stream belongs to.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Waits on the host until all work queued so far is done.
    ///
    /// # Errors
    /// [`GpuError::Driver`] with the fault of any of that work.
    pub fn synchronize(&self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the handle is alive and the context is current.
        let code = unsafe { api::cuStreamSynchronize(self.raw) };
        self.device.check("cuStreamSynchronize", code)
    }

    /// Queues a copy of `src` into `dst` from byte `dst_offset` on.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] when the range is outside `dst` or the buffer is of
    /// another device, [`GpuError::Driver`] when the driver refuses.
    ///
    /// # Safety
    /// Until the stream has done the copy, `src` must stay allocated (and registered, if
    /// it is) and unwritten, `dst` must not be dropped, and no other stream may touch
    /// that range of `dst` unordered.
    pub unsafe fn copy_h2d_async(
        &self,
        dst: &DeviceBuffer,
        dst_offset: usize,
        src: &[u8],
    ) -> Result<()> {
        let address = self.device_address("copy_h2d_async", dst, dst_offset, src.len())?;
        // SAFETY: the range was checked; the rest is this function's own contract.
        unsafe { self.copy_h2d_raw(address, src.as_ptr(), src.len()) }
    }

    /// Queues a copy of `src_offset..src_offset + dst.len()` of `src` into `dst`.
    ///
    /// # Errors
    /// As [`Stream::copy_h2d_async`].
    ///
    /// # Safety
    /// Until the stream has done the copy, `dst` must stay allocated and must be neither
    /// read nor written, through any pointer; `src` must not be dropped, nor written
    /// unordered.
    pub unsafe fn copy_d2h_async(
        &self,
        src: &DeviceBuffer,
        src_offset: usize,
        dst: &mut [u8],
    ) -> Result<()> {
        let address = self.device_address("copy_d2h_async", src, src_offset, dst.len())?;
        // SAFETY: the range was checked; the rest is this function's own contract.
        unsafe { self.copy_d2h_raw(dst.as_mut_ptr(), address, dst.len()) }
    }

    /// Queues a copy of `bytes` bytes within the device's memory. The ranges must not
    /// overlap.
    ///
    /// # Errors
    /// As [`Stream::copy_h2d_async`]; overlapping ranges are refused.
    ///
    /// # Safety
    /// Neither buffer may be dropped, and the ranges not be touched unordered, until the
    /// stream has done the copy.
    pub unsafe fn copy_d2d_async(
        &self,
        dst: &DeviceBuffer,
        dst_offset: usize,
        src: &DeviceBuffer,
        src_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let to = self.device_address("copy_d2d_async", dst, dst_offset, bytes)?;
        let from = self.device_address("copy_d2d_async", src, src_offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        if to.abs_diff(from) < bytes as u64 {
            return Err(GpuError::invalid(
                "copy_d2d_async",
                format!("{bytes} bytes at offset {src_offset} and {dst_offset} overlap"),
            ));
        }
        self.device.bind()?;
        // SAFETY: both ranges lie inside live device buffers of this context.
        let code = unsafe { api::cuMemcpyDtoDAsync_v2(to, from, bytes, self.raw) };
        self.device.check("cuMemcpyDtoDAsync", code)
    }

    /// Queues a copy of `bytes` bytes at the device address `src` into `dst` from byte
    /// `dst_offset` on; the source is not checked.
    ///
    /// # Errors
    /// As [`Stream::copy_h2d_async`], for `dst`.
    ///
    /// # Safety
    /// `src..src + bytes` must be memory of this stream's device that does not overlap the
    /// destination. Neither may be freed, or touched unordered, until the stream has done the
    /// copy.
    pub unsafe fn copy_d2d_from(
        &self,
        dst: &DeviceBuffer,
        dst_offset: usize,
        src: u64,
        bytes: usize,
    ) -> Result<()> {
        let to = self.device_address("copy_d2d_from", dst, dst_offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the destination lies inside a live device buffer of this context; the source is
        // the caller's promise.
        let code = unsafe { api::cuMemcpyDtoDAsync_v2(to, src, bytes, self.raw) };
        self.device.check("cuMemcpyDtoDAsync", code)
    }

    /// Queues the setting of `bytes` bytes of `dst` from `dst_offset` on to `value`.
    ///
    /// # Errors
    /// As [`Stream::copy_h2d_async`].
    ///
    /// # Safety
    /// `dst` must not be dropped, and the range not be touched unordered, until the
    /// stream has done the work.
    pub unsafe fn fill_async(
        &self,
        dst: &DeviceBuffer,
        dst_offset: usize,
        bytes: usize,
        value: u8,
    ) -> Result<()> {
        let address = self.device_address("fill_async", dst, dst_offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the range lies inside a live device buffer of this context.
        let code = unsafe { api::cuMemsetD8Async(address, value, bytes, self.raw) };
        self.device.check("cuMemsetD8Async", code)
    }

    /// As [`Stream::fill_async`], with a 32-bit value: `words` of 4 bytes are set. The
    /// offset must be a multiple of 4.
    ///
    /// # Errors
    /// As [`Stream::copy_h2d_async`].
    ///
    /// # Safety
    /// As [`Stream::fill_async`].
    pub unsafe fn fill_u32_async(
        &self,
        dst: &DeviceBuffer,
        dst_offset: usize,
        words: usize,
        value: u32,
    ) -> Result<()> {
        const OPERATION: &str = "fill_u32_async";
        if !dst_offset.is_multiple_of(4) {
            return Err(GpuError::invalid(
                OPERATION,
                format!("offset {dst_offset} is not a multiple of 4"),
            ));
        }
        let bytes = words
            .checked_mul(4)
            .ok_or_else(|| GpuError::invalid(OPERATION, format!("{words} words are too many")))?;
        let address = self.device_address(OPERATION, dst, dst_offset, bytes)?;
        if words == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: the range lies inside a live device buffer of this context, and its
        // address is a multiple of 4 (buffers are 256-byte aligned).
        let code = unsafe { api::cuMemsetD32Async(address, value, words, self.raw) };
        self.device.check("cuMemsetD32Async", code)
    }

    /// Copies `src` into `dst` and waits: safe but slow.
    ///
    /// # Errors
    /// As [`Stream::copy_h2d_async`], and with the fault of earlier work of the stream.
    pub fn upload(&self, dst: &DeviceBuffer, dst_offset: usize, src: &[u8]) -> Result<()> {
        // SAFETY: both borrows outlive the wait below, which happens even when the copy
        // could not be queued.
        let queued = unsafe { self.copy_h2d_async(dst, dst_offset, src) };
        queued.and(self.synchronize())
    }

    /// Copies from `src` into `dst` and waits: safe but slow.
    ///
    /// # Errors
    /// As [`Stream::copy_h2d_async`], and with the fault of earlier work of the stream.
    pub fn download(&self, src: &DeviceBuffer, src_offset: usize, dst: &mut [u8]) -> Result<()> {
        // SAFETY: as in `upload`; the exclusive borrow keeps others off `dst`.
        let queued = unsafe { self.copy_d2h_async(src, src_offset, dst) };
        queued.and(self.synchronize())
    }

    /// Queues a copy of `bytes` host bytes at `src` to the device address `dst`, unchecked.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the driver refuses.
    ///
    /// # Safety
    /// `dst..dst + bytes` must be device memory of this stream's device, `src` readable
    /// for `bytes`, and both must stay so and unwritten by others until the stream has
    /// done the copy.
    pub unsafe fn copy_h2d_raw(&self, dst: u64, src: *const u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: this function's contract; the context is current.
        let code = unsafe { api::cuMemcpyHtoDAsync_v2(dst, src.cast(), bytes, self.raw) };
        self.device.check("cuMemcpyHtoDAsync", code)
    }

    /// Queues copies as one batch, in which no copy waits for the one before: between single copies
    /// the link idles for some 3 us, 4 % of a copy of 4 MiB. If the driver has no batches (before
    /// CUDA 13.0), or none for this device or such memory, they are queued one by one.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the driver refuses.
    ///
    /// # Safety
    /// As for [`Self::copy_h2d_raw`], for each of the copies; no two overlap.
    pub unsafe fn copy_h2d_batch(&self, copies: &mut HostCopies) -> Result<()> {
        if copies.bytes.is_empty() {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: this function's contract; the context is current.
        if let Some(code) = unsafe { self.try_batch(copies) } {
            return self.device.check("cuMemcpyBatchAsync", code);
        }
        let HostCopies { to, from, bytes } = copies;
        for ((&to, &from), &bytes) in to.iter().zip(&*from).zip(&*bytes) {
            // SAFETY: this function's contract.
            unsafe { self.copy_h2d_raw(to, from as *const u8, bytes)? };
        }
        Ok(())
    }

    /// The outcome of a batch; `None` if the driver has no batches, or none for this device or such
    /// memory. Copies that it queued before it refused are queued again, with the same result.
    ///
    /// # Safety
    /// As for [`Self::copy_h2d_batch`], with the context current.
    unsafe fn try_batch(&self, copies: &mut HostCopies) -> Option<api::Code> {
        let batch_copy = self.device.batch_copy()?;
        let anywhere =
            CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID, id: 0 };
        let mut attributes = CUmemcpyAttributes {
            srcAccessOrder: CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            srcLocHint: anywhere,
            dstLocHint: anywhere,
            flags: 0,
        };
        let mut first_copy = 0;
        let HostCopies { to, from, bytes } = copies;
        // SAFETY: this function's contract; the lists are of one length, and the driver reads
        // them, and the attributes of all copies, before it returns.
        let code = unsafe {
            batch_copy(
                to.as_mut_ptr(),
                from.as_mut_ptr(),
                bytes.as_mut_ptr(),
                bytes.len(),
                &mut attributes,
                &mut first_copy,
                1,
                self.raw,
            )
        };
        (!matches!(code, api::INVALID_VALUE | api::NOT_SUPPORTED)).then_some(code)
    }

    /// Queues a copy of `bytes` bytes at the device address `src` to host memory at
    /// `dst`, unchecked.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the driver refuses.
    ///
    /// # Safety
    /// `src..src + bytes` must be device memory of this stream's device, `dst` writable
    /// for `bytes`, and both must stay so and untouched by others until the stream has
    /// done the copy.
    pub unsafe fn copy_d2h_raw(&self, dst: *mut u8, src: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.device.bind()?;
        // SAFETY: this function's contract; the context is current.
        let code = unsafe { api::cuMemcpyDtoHAsync_v2(dst.cast(), src, bytes, self.raw) };
        self.device.check("cuMemcpyDtoHAsync", code)
    }

    /// The device address of `offset..offset + bytes` of `buffer`, if it is inside the
    /// buffer and on this stream's device.
    fn device_address(
        &self,
        operation: &'static str,
        buffer: &DeviceBuffer,
        offset: usize,
        bytes: usize,
    ) -> Result<u64> {
        if buffer.device().ordinal() != self.device.ordinal() {
            return Err(GpuError::invalid(
                operation,
                format!(
                    "a buffer of device {} was given to a stream of device {}",
                    buffer.device().ordinal(),
                    self.device.ordinal()
                ),
            ));
        }
        address_inside(operation, buffer, offset, bytes)
    }

    /// The driver's handle, for other users of the driver in this process: as long as this value lives.
    pub fn address(&self) -> usize {
        self.raw as usize
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.raw
    }
}

/// The device address of `offset..offset + bytes` of `buffer`, if it is inside the buffer.
fn address_inside(
    operation: &'static str,
    buffer: &DeviceBuffer,
    offset: usize,
    bytes: usize,
) -> Result<u64> {
    match offset.checked_add(bytes) {
        Some(end) if end <= buffer.bytes() => Ok(buffer.ptr() + offset as u64),
        _ => Err(GpuError::invalid(
            operation,
            format!(
                "{bytes} bytes at offset {offset} lie outside a buffer of {} bytes",
                buffer.bytes()
            ),
        )),
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: the handle is alive and dropped once; the driver keeps the stream
            // until its queued work is done.
            check_in_drop("cuStreamDestroy", unsafe { api::cuStreamDestroy_v2(self.raw) });
        }
    }
}
