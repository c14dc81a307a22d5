//! One GPU and its primary context.

use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute as Attribute};
use parking_lot::RwLock;

use crate::api::{self, Code};
use crate::driver::{self, check, check_in_drop};
use crate::error::{GpuError, Result};
use crate::event::{Event, EventFlags};
use crate::launch::LaunchHook;
use crate::stream::Stream;

/// What a GPU is: fixed properties, read once. Clocks are the maximum clocks that the
/// driver reports, not the present ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Position among the devices visible to this process, from 0.
    pub ordinal: usize,
    /// The product's name, for instance `NVIDIA H200`.
    pub name: String,
    /// PCIe address, `domain:bus:device.function` in hexadecimal.
    pub pcie_id: String,
    /// Compute capability, (major, minor).
    pub compute_capability: (u32, u32),
    /// Device memory in bytes.
    pub total_memory_bytes: u64,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Maximum clock of the multiprocessors in kHz.
    pub clock_khz: u32,
    /// Maximum memory clock in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: u32,
    /// L2 cache in bytes.
    pub l2_bytes: u32,
    /// Copy engines that run beside kernels.
    pub async_engine_count: u32,
    /// Shared memory a block may ask for after opting in, in bytes.
    pub shared_per_block_optin_bytes: u32,
    /// Shared memory of one multiprocessor in bytes.
    pub shared_per_sm_bytes: u32,
    /// Threads resident on one multiprocessor.
    pub threads_per_sm: u32,
}

impl DeviceInfo {
    /// The architecture name that a cubin for this device is compiled for, `sm_90` for
    /// compute capability 9.0.
    pub fn arch(&self) -> String {
        let (major, minor) = self.compute_capability;
        format!("sm_{major}{minor}")
    }

    /// Nominal bandwidth of the device memory in GB/s (GB = 10^9 bytes): two transfers a
    /// clock over the whole bus. 0 where the driver reports no clock.
    pub fn nominal_memory_gb_per_s(&self) -> f64 {
        2.0 * f64::from(self.memory_clock_khz) * 1e3 * f64::from(self.memory_bus_bits) / 8.0 / 1e9
    }

    /// Reads the properties of the device at `ordinal`. The driver must be initialised.
    pub(crate) fn read(ordinal: usize) -> Result<Self> {
        let device = raw_device(ordinal)?;
        let attribute = |attribute| read_attribute(device, ordinal, attribute);
        Ok(Self {
            ordinal,
            name: read_name(device, ordinal)?,
            pcie_id: read_pcie_id(device, ordinal)?,
            compute_capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            total_memory_bytes: read_total_memory_bytes(device, ordinal)?,
            sm_count: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            clock_khz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            memory_clock_khz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
            memory_bus_bits: attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
            l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            async_engine_count: attribute(Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)?,
            shared_per_block_optin_bytes: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            shared_per_sm_bytes: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            )?,
            threads_per_sm: attribute(
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
            )?,
        })
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
        Ok(Arc::new(device))
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

fn place_of(ordinal: usize) -> String {
    format!("device {ordinal}")
}

fn raw_device(ordinal: usize) -> Result<CUdevice> {
    let index = i32::try_from(ordinal).map_err(|_| {
        GpuError::invalid("cuDeviceGet", format!("no device has ordinal {ordinal}"))
    })?;
    let mut device = 0;
    // SAFETY: the driver is initialised and the out-pointer is live.
    let code = unsafe { api::cuDeviceGet(&mut device, index) };
    check("cuDeviceGet", code, || place_of(ordinal))?;
    Ok(device)
}

fn read_attribute(device: CUdevice, ordinal: usize, attribute: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: `device` is a device of the initialised driver; the out-pointer is live.
    let code = unsafe { api::cuDeviceGetAttribute(&mut value, attribute, device) };
    check("cuDeviceGetAttribute", code, || format!("{} ({attribute:?})", place_of(ordinal)))?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn read_total_memory_bytes(device: CUdevice, ordinal: usize) -> Result<u64> {
    let mut bytes = 0usize;
    // SAFETY: as in `read_attribute`.
    let code = unsafe { api::cuDeviceTotalMem_v2(&mut bytes, device) };
    check("cuDeviceTotalMem", code, || place_of(ordinal))?;
    Ok(bytes as u64)
}

fn read_name(device: CUdevice, ordinal: usize) -> Result<String> {
    let mut text = [0 as c_char; 256];
    // SAFETY: the driver writes at most `len` bytes, NUL included, into the live array.
    let code = unsafe { api::cuDeviceGetName(text.as_mut_ptr(), text.len() as i32, device) };
    check("cuDeviceGetName", code, || place_of(ordinal))?;
    Ok(text_of_array(&text))
}

fn read_pcie_id(device: CUdevice, ordinal: usize) -> Result<String> {
    let mut text = [0 as c_char; 64];
    // SAFETY: as in `read_name`.
    let code = unsafe { api::cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as i32, device) };
    check("cuDeviceGetPCIBusId", code, || place_of(ordinal))?;
    Ok(text_of_array(&text).to_lowercase())
}

/// The text before the first NUL, or all of it where there is none.
fn text_of_array(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
