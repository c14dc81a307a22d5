//! A file mapped for a device to copy from, never for the processor to read.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use headrace_gpu::page_bytes;
use headrace_io::{IoError, ReadAt, ReadMode, Window};

/// A shared read-only mapping of a whole file.
///
/// Shared, because long-term pinning of pages of a *private* mapping makes the kernel copy each one
/// first (Linux 6.2 and later: the pin must stay valid when the page is written).
///
/// No load of ours ever touches it: a missing page would raise SIGBUS. The kernel refuses to pin
/// such a page, and a pinned page stays until it is released, even if the file is truncated
/// meanwhile. So a device's copy never faults. It may deliver bytes that the file no longer has, or
/// zeros from a truncated page; the check of the file's identity after the race turns that into an
/// error.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    file: Arc<dyn ReadAt>,
    start: NonNull<u8>,
    /// Whole pages.
    mapped_bytes: usize,
    /// Whole pages.
    piece_bytes: usize,
}

// SAFETY: the value owns an address range, which is not bound to a thread, and neither reads nor
// writes what lies there.
unsafe impl Send for SharedMapping {}
// SAFETY: as above; all methods take `&self` and give addresses or advice.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps a non-empty file, to be registered in pieces of this many bytes, whole pages.
    pub fn map(file: &Arc<dyn ReadAt>, piece_bytes: usize) -> Result<SharedMapping, IoError> {
        let failed = |cause| IoError::Open {
            path: file.path().to_path_buf(),
            action: format!("map {} bytes for a device", file.size_bytes()),
            cause,
        };
        let bytes = usize::try_from(file.size_bytes())
            .ok()
            .and_then(|bytes| bytes.checked_next_multiple_of(page_bytes()))
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| failed(io::Error::from_raw_os_error(libc::EINVAL)))?;
        let descriptor = file.source().descriptor(ReadMode::Buffered).map_err(failed)?;
        let fd = descriptor.as_raw_fd();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
        };
        if address == libc::MAP_FAILED {
            return Err(failed(io::Error::last_os_error()));
        }
        let start = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| failed(io::Error::from_raw_os_error(libc::EFAULT)))?;
        Ok(SharedMapping { file: file.clone(), start, mapped_bytes: bytes, piece_bytes })
    }

    pub fn file(&self) -> &Arc<dyn ReadAt> {
        &self.file
    }

    /// Address and length of a piece: whole pages.
    pub fn piece(&self, piece: u64) -> (NonNull<u8>, usize) {
        let at = (piece as usize).saturating_mul(self.piece_bytes).min(self.mapped_bytes);
        let bytes = (self.mapped_bytes - at).min(self.piece_bytes);
        // SAFETY: `at` is at most the mapping's length.
        (unsafe { self.start.add(at) }, bytes)
    }

    /// Maps the pages of a piece at once: pinning would fault them in one by one. Only a hint: what
    /// cannot be mapped is refused when it is pinned.
    pub fn populate(&self, piece: u64) {
        let (start, bytes) = self.piece(piece);
        // SAFETY: the range is our mapping's; the advice changes no contents, and a page that has
        // gone is an error of the call, not a signal.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_POPULATE_READ) };
    }

    /// The address of an extent's bytes. Not a slice, because other processes may write or truncate
    /// the file while a device copies; and a load of the processor may raise SIGBUS, while the
    /// device reads pinned pages.
    pub fn window(&self, range: Range<u64>) -> Window {
        assert!(range.start <= range.end && range.end <= self.mapped_bytes as u64);
        let start = self.start.as_ptr().wrapping_add(range.start as usize);
        Window::new(start, (range.end - range.start) as usize)
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; registrations of it hold this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped_bytes) };
    }
}
