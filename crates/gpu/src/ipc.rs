//! Device memory that other processes map: exported by its owner, imported by whoever was given the handle.
//!
//! A handle is a number of the driver, good on one machine while the owner lives and keeps the memory. Whoever maps the
//! memory sees the owner's bytes, and may write them: the driver knows no mapping that is only read. An owner must
//! not free what others have mapped; who has what mapped is for it to know.

use std::sync::Arc;

use cudarc::driver::sys::CUipcMemHandle;

use crate::api;
use crate::device::Device;
use crate::driver::check_in_drop;
use crate::error::Result;
use crate::pool::DeviceBuffer;

/// Bytes of a handle.
pub const HANDLE_BYTES: usize = 64;

/// Maps peers' memory where that is needed to reach it. The driver knows no other flag.
const LAZY_PEER_ACCESS: u32 = 1;

impl DeviceBuffer {
    /// A handle by which other processes map the buffer.
    ///
    /// # Errors
    /// [`GpuError::Driver`](crate::GpuError::Driver) where the system has no such handles (containers of other
    /// namespaces, WSL).
    pub fn handle(&self) -> Result<[u8; HANDLE_BYTES]> {
        let device = self.device();
        device.bind()?;
        let mut handle = CUipcMemHandle { reserved: [0; HANDLE_BYTES] };
        // SAFETY: the address is the first of a live allocation of this context, the out-pointer is live.
        let code = unsafe { api::cuIpcGetMemHandle(&mut handle, self.ptr()) };
        device.check("cuIpcGetMemHandle", code)?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }
}

/// Another process's buffer, mapped into this one; unmapped on drop.
#[derive(Debug)]
pub struct Mapped {
    device: Arc<Device>,
    address: u64,
    bytes: usize,
}

impl Mapped {
    /// Maps the buffer of a handle, which has so many bytes, on the same GPU.
    ///
    /// # Errors
    /// [`GpuError::Driver`](crate::GpuError::Driver) for a handle of this process itself, or one whose owner is gone.
    pub fn open(device: &Arc<Device>, handle: [u8; HANDLE_BYTES], bytes: usize) -> Result<Self> {
        device.bind()?;
        let handle = CUipcMemHandle { reserved: handle.map(|byte| byte as _) };
        let mut address = 0;
        // SAFETY: the context is current, the out-pointer is live; the handle is plain bytes, which the driver checks.
        let code = unsafe { api::cuIpcOpenMemHandle_v2(&mut address, handle, LAZY_PEER_ACCESS) };
        device.check("cuIpcOpenMemHandle", code)?;
        Ok(Self { device: Arc::clone(device), address, bytes })
    }

    /// The address in this process.
    pub fn ptr(&self) -> u64 {
        self.address
    }

    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The GPU whose memory it is.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: the address came from cuIpcOpenMemHandle in this context, and is given back once.
            check_in_drop("cuIpcCloseMemHandle", unsafe { api::cuIpcCloseMemHandle(self.address) });
        }
    }
}
