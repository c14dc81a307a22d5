//! One GPU and its primary context.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{self, CUdevice, CUlimit};
use parking_lot::RwLock;
use serde::Serialize;

use crate::api::{self, Code};
use crate::driver::{self, check, check_in_drop};
use crate::error::{GpuError, Result};
use crate::event::{Event, EventFlags};
use crate::info::{DeviceInfo, place_of, raw_device};
use crate::launch::LaunchHook;
use crate::stream::Stream;

/// Device memory as the driver sees it: what every process uses counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// All of it, in bytes.
    pub total_bytes: u64,
    /// What nobody uses now, in bytes.
    pub free_bytes: u64,
}

impl DeviceMemory {
    /// What is in use now, by this process, others and the driver, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.free_bytes)
    }
}

/// A GPU opened by this process: its primary context, retained until the last user of
/// the device is gone. Streams, buffers and modules keep their device alive.
pub struct Device {
    raw: CUdevice,
    context: sys::CUcontext,
    info: DeviceInfo,
    launch_count: AtomicU64,
    launch_hook: RwLock<Option<Arc<dyn LaunchHook>>>,
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
        let device = Self {
            raw,
            context,
            info,
            launch_count: AtomicU64::new(0),
            launch_hook: RwLock::new(None),
        };
        device.bind()?;
        device.fetch_single_sectors();
        Ok(Arc::new(device))
    }

    /// Lets L2 fetch what is asked for and nothing beside it: rows that are left of a filter lie
    /// far apart. A hint that a device need not take, and of this process alone.
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

    /// How much of the device's memory is in use now; see
    /// [`Device::free_and_total_memory`].
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the context is lost.
    pub fn memory_in_use(&self) -> Result<DeviceMemory> {
        let (free_bytes, total_bytes) = self.free_and_total_memory()?;
        Ok(DeviceMemory { total_bytes, free_bytes })
    }

    /// Whether this device can reach `peer`'s memory directly, over NVLink or PCIe. False
    /// for a device and itself: no peer access is needed there.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the driver refuses to tell.
    pub fn can_access_peer(&self, peer: &Device) -> Result<bool> {
        if self.raw == peer.raw {
            return Ok(false);
        }
        let mut can = 0;
        // SAFETY: both are devices of the initialised driver; the out-pointer is live.
        let code = unsafe { api::cuDeviceCanAccessPeer(&mut can, self.raw, peer.raw) };
        self.check("cuDeviceCanAccessPeer", code)?;
        Ok(can != 0)
    }

    /// Lets this device's kernels and copies reach `peer`'s memory. One direction; doing
    /// it again changes nothing. Copies between devices work without it, through host
    /// memory where there is no direct way.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for a device and itself, [`GpuError::Driver`] when
    /// the two cannot reach each other.
    pub fn enable_peer_access(&self, peer: &Arc<Device>) -> Result<()> {
        if self.raw == peer.raw {
            return Err(GpuError::invalid(
                "Device::enable_peer_access",
                format!("device {} is no peer of itself", self.ordinal()),
            ));
        }
        self.bind()?;
        // SAFETY: this device's context is current, the peer's is retained by `peer`; 0 is
        // the only flag.
        let code = unsafe { api::cuCtxEnablePeerAccess(peer.context, 0) };
        if code == api::PEER_ACCESS_ALREADY_ENABLED {
            return Ok(());
        }
        check("cuCtxEnablePeerAccess", code, || {
            format!("device {} for the memory of device {}", self.ordinal(), peer.ordinal())
        })
    }

    /// Waits until all work of the device's context, on every stream, is done.
    ///
    /// # Errors
    /// [`GpuError::Driver`] with the fault of any earlier asynchronous work.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the context is current.
        let code = unsafe { api::cuCtxSynchronize() };
        self.check("cuCtxSynchronize", code)
    }

    /// A new stream that does not synchronise with the default stream.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the driver refuses.
    pub fn stream(self: &Arc<Self>) -> Result<Stream> {
        Stream::new(self)
    }

    /// A new event.
    ///
    /// # Errors
    /// [`GpuError::Driver`] when the driver refuses.
    pub fn event(self: &Arc<Self>, flags: EventFlags) -> Result<Event> {
        Event::new(self, flags)
    }

    /// Sets or clears what is told of every launch on this device; see [`LaunchHook`].
    pub fn set_launch_hook(&self, hook: Option<Arc<dyn LaunchHook>>) {
        *self.launch_hook.write() = hook;
    }

    /// Kernels launched on this device by this process so far.
    pub fn launch_count(&self) -> u64 {
        self.launch_count.load(Ordering::Relaxed)
    }

    pub(crate) fn context(&self) -> sys::CUcontext {
        self.context
    }

    pub(crate) fn count_launch(&self) {
        self.launch_count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn launch_hook(&self) -> Option<Arc<dyn LaunchHook>> {
        self.launch_hook.read().clone()
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

/// Devices visible to this process. The driver must be initialised.
pub(crate) fn device_count() -> Result<usize> {
    let mut count = 0;
    // SAFETY: the driver is initialised and the out-pointer is live.
    let code = unsafe { api::cuDeviceGetCount(&mut count) };
    check("cuDeviceGetCount", code, || "the list of devices".into())?;
    Ok(usize::try_from(count).unwrap_or(0))
}
