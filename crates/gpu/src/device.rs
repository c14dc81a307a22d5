//! One GPU and its primary context.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute as Attribute, CUlimit};

use crate::api::{self, BatchCopy, Code};
use crate::driver::{self, check, check_in_drop};
use crate::error::{GpuError, Result};
use crate::info::{DeviceInfo, place_of, raw_device, read_optional};

/// A GPU opened by this process: its primary context, retained until the last user of
/// the device is gone. Streams, buffers and modules keep their device alive.
pub struct Device {
    raw: CUdevice,
    context: sys::CUcontext,
    info: DeviceInfo,
    batch_copy: Option<BatchCopy>,
}

// SAFETY: a primary context may be made current in any number of threads at a time, and
// the driver's functions are thread-safe; the handle itself is never written to.
unsafe impl Send for Device {}
// SAFETY: as above; the other fields are Sync by themselves.
unsafe impl Sync for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the device at `ordinal` and retains its primary context. The first opening
    /// in a process creates the context, which takes tenths of a second.
    ///
    /// # Errors
    /// [`GpuError::NotPresent`] without a driver or without that ordinal,
    /// [`GpuError::Driver`] when the driver refuses the context.
    pub fn open(ordinal: usize) -> Result<Arc<Self>> {
        driver::initialise()?;
        let count = device_count()?;
        if ordinal >= count {
            return Err(GpuError::NotPresent {
                reason: format!("device {ordinal} was asked for, {count} are visible"),
                remedy: "choose an ordinal that nvidia-smi -L lists, and check \
                         CUDA_VISIBLE_DEVICES"
                    .into(),
            });
        }
        let info = DeviceInfo::read(ordinal)?;
        let raw = raw_device(ordinal)?;
        let mut context = ptr::null_mut();
        // SAFETY: the driver is initialised, `raw` is a device of it, the out-pointer is live.
        let code = unsafe { api::cuDevicePrimaryCtxRetain(&mut context, raw) };
        check("cuDevicePrimaryCtxRetain", code, || place_of(ordinal))?;
        let device = Self { raw, context, info, batch_copy: batch_copy(raw) };
        device.bind()?;
        device.fetch_single_sectors();
        Ok(Arc::new(device))
    }

    /// Makes L2 fetch only the requested sectors: surviving rows of a filter are far apart. A hint
    /// that a device may ignore, and limited to this process.
    fn fetch_single_sectors(&self) {
        const SECTOR_BYTES: usize = 32;
        let limit = CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY;
        // SAFETY: the context is current.
        let _ = unsafe { api::cuCtxSetLimit(limit, SECTOR_BYTES) };
    }

    /// The device's fixed properties.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Position among the devices visible to this process.
    pub fn ordinal(&self) -> usize {
        self.info.ordinal
    }

    /// Bytes of device memory that are free now, and in all, as the driver sees them:
    /// other processes' use counts.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the context is lost.
    pub fn free_and_total_memory(&self) -> Result<(u64, u64)> {
        self.bind()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: the context is current and both out-pointers are live.
        let code = unsafe { api::cuMemGetInfo_v2(&mut free, &mut total) };
        self.check("cuMemGetInfo", code)?;
        Ok((free as u64, total as u64))
    }

    /// The driver's batch copies, if it has them for this device.
    pub(crate) fn batch_copy(&self) -> Option<BatchCopy> {
        self.batch_copy
    }

    /// Makes this device's context current in the calling thread. Tens of nanoseconds
    /// when it already is.
    pub(crate) fn bind(&self) -> Result<()> {
        // SAFETY: the context was retained by `open` and is released only in `drop`.
        let code = unsafe { api::cuCtxSetCurrent(self.context) };
        self.check("cuCtxSetCurrent", code)
    }

    pub(crate) fn check(&self, call: &'static str, code: Code) -> Result<()> {
        check(call, code, || place_of(self.info.ordinal))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: pairs with the retain in `open`. Everything made in the context holds
        // an Arc of this device, so nothing of it is alive any more.
        let code = unsafe { api::cuDevicePrimaryCtxRelease_v2(self.raw) };
        check_in_drop("cuDevicePrimaryCtxRelease", code);
    }
}

/// The driver's batch copies, if they accept the host addresses of registered memory: otherwise
/// (under WSL 2) they fault on the device, while single copies translate them.
fn batch_copy(device: CUdevice) -> Option<BatchCopy> {
    let same_address = Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
    api::batch_copy().filter(|_| read_optional(device, same_address) == Some(1))
}

/// Devices visible to this process. The driver must be initialised.
pub(crate) fn device_count() -> Result<usize> {
    let mut count = 0;
    // SAFETY: the driver is initialised and the out-pointer is live.
    let code = unsafe { api::cuDeviceGetCount(&mut count) };
    check("cuDeviceGetCount", code, || "the list of devices".into())?;
    Ok(usize::try_from(count).unwrap_or(0))
}
