//! Page-aligned anonymous host memory, on huge pages where the system offers them,
//! touched before use.
//!
//! Touch memory with several threads before registration: registration pins page by page, and
//! untouched memory faults in each page on one thread.

use std::io;
use std::num::NonZeroUsize;
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};
use std::thread;

use parking_lot::Mutex;

use crate::error::{GpuError, Result};
use crate::threads;

/// Alignment that a mapping needs for huge pages to be used (x86-64 and the common arm64
/// configuration).
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// One thread clears some gigabytes a second; below this size a thread costs more than it saves.
const TOUCH_BYTES_PER_THREAD_MIN: usize = 16 << 20;

const TOUCH_THREADS_MAX: usize = 16;

/// The size of a memory page of this system in bytes.
pub fn page_bytes() -> usize {
    static PAGE_BYTES: OnceLock<usize> = OnceLock::new();
    *PAGE_BYTES.get_or_init(|| {
        // SAFETY: sysconf reads a constant of the system and touches no memory of ours.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).unwrap_or(4096)
    })
}

/// Anonymous private memory, zeroed, page aligned and resident; unmapped on drop.
///
/// ```text
/// mapping:  |..slack..|======== bytes, rounded up to pages ========|..slack..|
///                     ^ 2 MiB aligned when bytes >= 2 MiB
/// ```
#[derive(Debug)]
pub struct HostPages {
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is owned by this value alone and is plain memory, as a Vec's is.
unsafe impl Send for HostPages {}
// SAFETY: shared access only reads (`as_slice`, `ptr`); writes need `&mut`.
unsafe impl Sync for HostPages {}

impl HostPages {
    /// Maps at least `bytes` bytes, rounded up to whole pages, asks for huge pages and
    /// touches all of it.
    ///
    /// # Errors
    /// [`GpuError::InvalidArgument`] for 0 bytes, [`GpuError::HostMemory`] when the
    /// system has no memory to map.
    pub fn new(bytes: usize) -> Result<Self> {
        let mut pages = Self::map(bytes)?;
        pages.advise_huge_pages();
        pages.touch();
        Ok(pages)
    }

    fn map(bytes: usize) -> Result<Self> {
        let too_large = || GpuError::invalid("HostPages::new", format!("{bytes} bytes"));
        if bytes == 0 {
            return Err(too_large());
        }
        let bytes = bytes.checked_next_multiple_of(page_bytes()).ok_or_else(too_large)?;
        let slack = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { 0 };
        let mapping_bytes = bytes.checked_add(slack).ok_or_else(too_large)?;
        let mapping = map_anonymous(mapping_bytes)?;
        let offset = if slack == 0 { 0 } else { mapping.as_ptr().align_offset(HUGE_PAGE_BYTES) };
        // SAFETY: offset < HUGE_PAGE_BYTES = slack, so start..start + bytes is inside the
        // mapping.
        let start = unsafe { mapping.add(offset) };
        Ok(Self { mapping, mapping_bytes, start, bytes })
    }

    /// Advice only: if it is refused (huge pages disabled), small pages are used.
    fn advise_huge_pages(&mut self) {
        if self.bytes < HUGE_PAGE_BYTES {
            return;
        }
        // SAFETY: the range is ours, and MADV_HUGEPAGE does not change its contents.
        let refused =
            unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE) };
        if refused != 0 {
            tracing::debug!(error = %io::Error::last_os_error(), "no huge pages");
        }
    }

    fn touch(&mut self) {
        let page = page_bytes();
        let count = touch_threads(self.bytes);
        let share = self.bytes.div_ceil(count).next_multiple_of(page);
        let parts = Mutex::new(self.as_mut_slice().chunks_mut(share));
        let next = || parts.lock().next();
        threads::share(count, || {
            while let Some(part) = next() {
                for byte in part.iter_mut().step_by(page) {
                    // SAFETY: a live exclusive reference; volatile so that writing zero
                    // over zero is not optimised away.
                    unsafe { ptr::write_volatile(byte, 0) };
                }
            }
        });
    }

    /// The first byte.
    pub fn ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Usable bytes: what was asked for, rounded up to whole pages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: start..start + bytes is mapped, initialised (anonymous memory is zero)
        // and borrowed with self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The memory.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, with an exclusive borrow.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap returned, unmapped once; every slice of it
        // was borrowed from self and is gone.
        let failed = unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
        if failed != 0 {
            tracing::warn!(error = %io::Error::last_os_error(), "munmap failed");
        }
    }
}

fn map_anonymous(bytes: usize) -> Result<NonNull<u8>> {
    // SAFETY: a fresh private mapping at an address of the kernel's choice.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let mapped = if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast()) };
    mapped.ok_or_else(|| GpuError::HostMemory {
        call: "mmap",
        bytes,
        source: Arc::new(io::Error::last_os_error()),
        remedy: "lower the pinned memory budget or the number of slots, or raise the \
                 address space limit (ulimit -v)",
    })
}

fn touch_threads(bytes: usize) -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    (bytes / TOUCH_BYTES_PER_THREAD_MIN).clamp(1, cores.min(TOUCH_THREADS_MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pages_are_aligned_zeroed_and_writable() {
        for asked in [1, 4095, 4096, 4097, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 5] {
            let mut pages = HostPages::new(asked).unwrap();
            assert!(pages.bytes() >= asked && pages.bytes() < asked + page_bytes());
            assert_eq!(pages.bytes() % page_bytes(), 0);
            let alignment = if asked >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { page_bytes() };
            assert_eq!(pages.ptr().as_ptr() as usize % alignment, 0);
            assert!(pages.as_slice().iter().all(|&b| b == 0));
            pages.as_mut_slice().fill(0xa5);
            assert!(pages.as_slice().iter().all(|&b| b == 0xa5));
        }
    }

    #[test]
    fn touched_pages_are_resident() {
        let pages = HostPages::new(40 << 20).unwrap();
        let mut resident = vec![0u8; pages.bytes() / page_bytes()];
        // SAFETY: the range is mapped and the vector has one byte for each page of it.
        let failed = unsafe {
            libc::mincore(pages.ptr().as_ptr().cast(), pages.bytes(), resident.as_mut_ptr().cast())
        };
        assert_eq!(failed, 0);
        assert!(resident.iter().all(|page| page & 1 == 1));
    }

    #[test]
    fn nothing_and_too_much_are_errors() {
        assert!(matches!(HostPages::new(0), Err(GpuError::InvalidArgument { .. })));
        assert!(matches!(HostPages::new(usize::MAX), Err(GpuError::InvalidArgument { .. })));
        assert!(matches!(HostPages::new(1 << 50), Err(GpuError::HostMemory { .. })));
    }
}
