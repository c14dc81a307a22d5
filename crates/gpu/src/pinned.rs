//! Host memory that the device copies from and to at the link's full speed.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::sys;

use crate::api;
use crate::device::Device;
use crate::driver::check_in_drop;
use crate::error::{GpuError, Result};
use crate::host_pages::{HostPages, page_bytes};

const TIER: &str = "pinned host memory";

/// What the device may do with registered host memory.
///
/// | memory | `ReadOnly` | `ReadWrite` |
/// |---|---|---|
/// | anonymous, or tmpfs mapped `PROT_READ \| PROT_WRITE` | where offered | yes |
/// | tmpfs or a file mapped `PROT_READ` | where offered | refused: the pages are pinned for writing |
/// | a file of a disk file system mapped shared and writable | where offered | refused by kernels that keep such pages from being pinned for writing |
///
/// Offered means [`DeviceInfo::read_only_host_register`](crate::DeviceInfo).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAccess {
    /// The device reads and writes; the memory must be mapped writable.
    ReadWrite,
    /// The device only reads: for read-only mappings of files. Not every system offers
    /// it; where it does not, registration fails with `CUDA_ERROR_NOT_SUPPORTED`.
    ReadOnly,
}

/// Foreign page-aligned memory, pinned and known to every device of this process until this value
/// is dropped. It does not own the memory.
pub struct RegisteredHost {
    device: Arc<Device>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the registration belongs to the process, not to a thread; this value only ever
// unregisters it, once.
unsafe impl Send for RegisteredHost {}
// SAFETY: no method touches the memory.
unsafe impl Sync for RegisteredHost {}

impl std::fmt::Debug for RegisteredHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegisteredHost")
            .field("start", &self.start)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl RegisteredHost {
    /// Pins `bytes` bytes from `start` on. Both must be multiples of [`page_bytes`]: pages
    /// are pinned whole, and a page shared with other data would be pinned twice.
    ///
    /// Touch the memory first, with several threads: 4 GiB of touched memory register in a sixth of
    /// a second, while this one thread would fault in untouched memory.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for a range that is empty or not on page borders,
    /// [`GpuError::OutOfMemory`] when the system refuses to pin that much,
    /// [`GpuError::Driver`] for memory that is already registered, or of a kind that
    /// cannot be.
    ///
    /// # Safety
    /// The range must be mapped, and stay mapped to the same pages, until the value is
    /// dropped and no queued copy uses it any more. A mapped file that is truncated meanwhile
    /// keeps its pinned pages for the device, whose copies then bring bytes that are no longer
    /// the file's; a load by the processor from behind the new end faults.
    pub unsafe fn register(
        device: &Arc<Device>,
        start: NonNull<u8>,
        bytes: usize,
        access: HostAccess,
    ) -> Result<Self> {
        require_pages(start, bytes)?;
        device.bind()?;
        let mut flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        if access == HostAccess::ReadOnly {
            flags |= sys::CU_MEMHOSTREGISTER_READ_ONLY;
        }
        // SAFETY: the context is current; the range is mapped by this function's contract.
        let code = unsafe { api::cuMemHostRegister_v2(start.as_ptr().cast(), bytes, flags) };
        if code == api::OUT_OF_MEMORY {
            return Err(pinning_refused(bytes));
        }
        device.check("cuMemHostRegister", code)?;
        Ok(Self { device: Arc::clone(device), start, bytes })
    }

    /// Bytes pinned.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for RegisteredHost {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: registered by `register` and unregistered once.
            check_in_drop("cuMemHostUnregister", unsafe {
                api::cuMemHostUnregister(self.start.as_ptr().cast())
            });
        }
    }
}

fn require_pages(start: NonNull<u8>, bytes: usize) -> Result<()> {
    let page = page_bytes();
    let address = start.as_ptr() as usize;
    if bytes == 0 || !bytes.is_multiple_of(page) || !address.is_multiple_of(page) {
        return Err(GpuError::invalid(
            "RegisteredHost::register",
            format!("{bytes} bytes at {address:#x} are not whole pages of {page} bytes"),
        ));
    }
    Ok(())
}

fn pinning_refused(bytes: usize) -> GpuError {
    let (limit_bytes, limit) = match locked_memory_limit_bytes() {
        Ok(Some(limit)) => (limit, format!("the locked-memory limit is {limit} bytes")),
        Ok(None) => (u64::MAX, "there is no locked-memory limit".to_string()),
        Err(error) => (u64::MAX, format!("the locked-memory limit is unknown: {error}")),
    };
    GpuError::OutOfMemory {
        tier: TIER,
        asked_bytes: bytes as u64,
        in_use_bytes: 0,
        budget_bytes: limit_bytes,
        cause: format!("the system refused to pin the pages; {limit}"),
        remedy: "use fewer or smaller slots, or raise the limits on locked memory \
                 (ulimit -l, the container's memory limit)"
            .into(),
    }
}

/// The process's RLIMIT_MEMLOCK; `None` when unlimited.
fn locked_memory_limit_bytes() -> io::Result<Option<u64>> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the out-pointer is a live rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur))
}

/// Pinned host memory of our own: [`HostPages`], registered. The CPU reads and writes it
/// at full speed.
#[derive(Debug)]
pub struct PinnedBuffer {
    // Fields drop in this order: unregister, then unmap.
    _registration: RegisteredHost,
    device_address: u64,
    pages: HostPages,
}

impl PinnedBuffer {
    /// Maps, touches and registers at least `bytes` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// As [`HostPages::new`] and [`RegisteredHost::register`].
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self> {
        let pages = HostPages::new(bytes)?;
        // SAFETY: the pages are owned by the value under construction, which drops the
        // registration first. Queued copies are the business of whoever queues them.
        let registration = unsafe {
            RegisteredHost::register(device, pages.ptr(), pages.bytes(), HostAccess::ReadWrite)
        }?;
        let mut device_address = 0;
        // SAFETY: the out-pointer is live; the pages were registered for the device just now.
        let code = unsafe {
            api::cuMemHostGetDevicePointer_v2(&mut device_address, pages.ptr().as_ptr().cast(), 0)
        };
        device.check("cuMemHostGetDevicePointer", code)?;
        Ok(Self { _registration: registration, device_address, pages })
    }

    /// The first byte.
    pub fn ptr(&self) -> NonNull<u8> {
        self.pages.ptr()
    }

    /// The device address of the first byte; kernels reach it over the link.
    pub fn device_address(&self) -> u64 {
        self.device_address
    }

    /// Usable bytes: what was asked for, rounded up to whole pages.
    pub fn bytes(&self) -> usize {
        self.pages.bytes()
    }

    /// The memory.
    pub fn as_slice(&self) -> &[u8] {
        self.pages.as_slice()
    }

    /// The memory.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.pages.as_mut_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_may_be_registered() {
        let page = page_bytes();
        let at = |address: usize| NonNull::new(address as *mut u8).expect("not null");
        assert!(require_pages(at(page), page).is_ok());
        assert!(require_pages(at(page), 0).is_err());
        assert!(require_pages(at(page), page + 1).is_err());
        assert!(require_pages(at(page + 256), page).is_err());
    }

    #[test]
    fn a_refused_pinning_names_the_tier_and_the_limit() {
        let shown = pinning_refused(1 << 40).to_string();
        assert!(shown.contains("out of pinned host memory"), "{shown}");
        assert!(shown.contains("locked-memory limit"), "{shown}");
        assert!(shown.contains("hint: "), "{shown}");
    }
}
