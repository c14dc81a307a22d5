//! Page-aligned anonymous memory for buffers.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{IoError, Result};

/// Huge page size of the architectures we run on; only a hint, never needed for correctness.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Smallest page of the architectures we run on.
const PAGE_BYTES: usize = 4096;

/// Address space from which buffers smaller than a huge page are cut.
const REGION_BYTES: usize = 32 << 20;

/// Anonymous, zeroed, page-aligned memory outside the heap, with the advice to use huge pages.
///
/// The system allocates pages at their first touch, so an unused buffer costs nothing. Buffers of 2 MiB and more start
/// on a huge page boundary; smaller ones share huge pages if they come from [`Regions`]. The address is stable for the
/// buffer's life: it can be registered with io_uring and with a GPU driver.
#[derive(Debug)]
pub struct AlignedBuffer {
    owner: Owner,
    start: NonNull<u8>,
    bytes: usize,
}

/// Where a buffer's memory returns to.
#[derive(Debug)]
enum Owner {
    Nobody,
    Alone {
        _mapping: Mapping,
    },
    /// A part of a region that belongs to one buffer.
    Part {
        region: Arc<AlignedBuffer>,
    },
}

/// Memory that is unmapped at the end.
#[derive(Debug)]
struct Mapping {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the buffer owns its memory exclusively, like a Vec<u8>; shared access is read-only.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; `&AlignedBuffer` gives only `&[u8]` and a raw pointer.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Maps `bytes` bytes (0 is allowed) without touching them.
    ///
    /// # Errors
    /// [`IoError::Memory`] where the system refuses.
    pub fn allocate(bytes: usize) -> Result<AlignedBuffer> {
        if bytes == 0 {
            return Ok(AlignedBuffer { owner: Owner::Nobody, start: NonNull::dangling(), bytes });
        }
        let fail = |cause| IoError::Memory { bytes, cause };
        let slack = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { 0 };
        let mapping_bytes = bytes
            .checked_add(slack)
            .ok_or_else(|| fail(io::Error::from_raw_os_error(libc::ENOMEM)))?;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
        // memory that exists.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapping_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(fail(io::Error::last_os_error()));
        }
        let mapping = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| fail(io::Error::from_raw_os_error(libc::EFAULT)))?;
        let offset = if slack == 0 { 0 } else { mapping.align_offset(HUGE_PAGE_BYTES) };
        // SAFETY: the offset is below one huge page, and the mapping is one huge page longer
        // than `bytes`.
        let start = unsafe { mapping.add(offset) };
        if slack > 0 {
            // SAFETY: advice about our own mapping; failure is harmless and ignored.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        let mapping = Mapping { address: mapping, bytes: mapping_bytes };
        Ok(AlignedBuffer { owner: Owner::Alone { _mapping: mapping }, start, bytes })
    }

    /// Length.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// First byte, aligned to a page.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The whole buffer.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `bytes` bytes from `start` on are mapped, initialised (zero pages) and owned;
        // whoever writes through `as_ptr` must not do so while this borrow lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The whole buffer, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as for `as_slice`, and `&mut self` makes it the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Touches every page with up to `threads` threads, so that the pages exist before a driver
    /// pins them. Contents stay unchanged.
    pub fn touch(&mut self, threads: usize) {
        let threads = threads.max(1);
        // A multiple of the huge page size, so that no two threads fault on the same one.
        let part = self.bytes.div_ceil(threads).max(1).next_multiple_of(HUGE_PAGE_BYTES);
        let parts = Mutex::new(self.as_mut_slice().chunks_mut(part));
        let next = || parts.lock().next();
        let work = || {
            while let Some(part) = next() {
                for byte in part.iter_mut().step_by(4096) {
                    let at: *mut u8 = byte;
                    // SAFETY: `at` is a valid exclusive pointer; volatile so that a write of the
                    // value that is already there is not removed.
                    unsafe { at.write_volatile(at.read_volatile()) };
                }
            }
        };
        crate::on_threads(threads, work);
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Owner::Part { region } = &self.owner
            && Arc::strong_count(region) > 1
        {
            let bytes = self.bytes.next_multiple_of(PAGE_BYTES);
            // SAFETY: whole pages that only this buffer had, inside a region that is still mapped; nobody is given them
            // again. What the system refuses goes back with the region.
            unsafe { libc::madvise(self.start.as_ptr().cast(), bytes, libc::MADV_DONTNEED) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is exactly the mapping made in `allocate`, and nobody can borrow from it
        // any more.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// Buffers cut consecutively from regions of huge pages.
///
/// The system allocates memory by page at the first touch, and a direct read looks up every page; with 4 KiB pages that
/// takes longer than a fast drive needs for the bytes. A buffer's pages are released when it is dropped, and a region's
/// address space with its last buffer.
#[derive(Debug, Default)]
pub struct Regions {
    current: Mutex<Option<Region>>,
}

#[derive(Debug)]
struct Region {
    memory: Arc<AlignedBuffer>,
    used_bytes: usize,
}

impl Regions {
    /// A buffer of `bytes` bytes, as [`AlignedBuffer::allocate`] gives it.
    ///
    /// # Errors
    /// [`IoError::Memory`] where the system refuses.
    pub fn allocate(&self, bytes: usize) -> Result<AlignedBuffer> {
        if bytes == 0 || bytes >= HUGE_PAGE_BYTES {
            return AlignedBuffer::allocate(bytes);
        }
        let taken_bytes = bytes.next_multiple_of(PAGE_BYTES);
        let mut current = self.current.lock();
        let region = match current.take() {
            Some(region) if region.used_bytes + taken_bytes <= REGION_BYTES => region,
            _ => Region { memory: Arc::new(AlignedBuffer::allocate(REGION_BYTES)?), used_bytes: 0 },
        };
        // SAFETY: the region has so many bytes left behind what is used.
        let start = unsafe { region.memory.start.add(region.used_bytes) };
        let owner = Owner::Part { region: region.memory.clone() };
        *current = Some(Region { used_bytes: region.used_bytes + taken_bytes, ..region });
        Ok(AlignedBuffer { owner, start, bytes })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes_alignment_and_touching() {
        for bytes in [0usize, 1, 4095, 4096, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES * 3 + 17] {
            let mut buffer = AlignedBuffer::allocate(bytes).unwrap();
            assert_eq!(buffer.len(), bytes);
            assert_eq!(buffer.is_empty(), bytes == 0);
            if bytes >= HUGE_PAGE_BYTES {
                assert_eq!(buffer.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
            } else if bytes > 0 {
                assert_eq!(buffer.as_ptr() as usize % 4096, 0);
            }
            buffer.as_mut_slice().fill(7);
            buffer.touch(3);
            assert!(buffer.as_slice().iter().all(|b| *b == 7));
        }
    }

    #[test]
    fn buffers_of_a_region_are_apart_and_outlive_it() {
        let regions = Regions::default();
        let sizes = [1, 4095, 4096, 4097, 1 << 20, HUGE_PAGE_BYTES - 1];
        let mut buffers = Vec::new();
        for number in 0..200 {
            let mut buffer = regions.allocate(sizes[number % sizes.len()]).unwrap();
            assert!(buffer.as_slice().iter().all(|b| *b == 0), "fresh memory");
            assert_eq!(buffer.as_ptr() as usize % PAGE_BYTES, 0);
            buffer.as_mut_slice().fill(number as u8);
            buffers.push((number as u8, buffer));
        }
        drop(regions);
        // Every other one first: what stays is whole.
        let mut odd = Vec::new();
        for (number, buffer) in buffers {
            if number % 2 == 1 {
                odd.push((number, buffer));
            }
        }
        assert!(odd.iter().all(|(number, b)| b.as_slice().iter().all(|byte| byte == number)));
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        let error = AlignedBuffer::allocate(usize::MAX - 4096).unwrap_err();
        assert!(matches!(error, IoError::Memory { .. }), "{error}");
    }
}
