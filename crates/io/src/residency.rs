//! How much of a file is in the page cache, and how to evict it for a cold run.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::{IoError, ReadAt, ReadMode, Result};

/// cachestat(2), Linux 6.5; the number is the same on all architectures we run on.
const SYS_CACHESTAT: libc::c_long = 451;

/// How residency was determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResidencyMethod {
    /// cachestat(2).
    Cachestat,
    /// mincore(2) over a temporary mapping.
    Mincore,
}

/// How much of an extent is in the page cache. A snapshot: pages come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residency {
    /// Bytes of the extent that were examined.
    pub looked_at_bytes: u64,
    /// Of these, bytes in the page cache (whole pages, at most `looked_at_bytes`).
    pub resident_bytes: u64,
    /// How it was determined.
    pub method: ResidencyMethod,
}

impl Residency {
    /// Share of the examined bytes that is in the page cache, 0 to 1; 1 for an empty extent.
    pub fn share(&self) -> f64 {
        if self.looked_at_bytes == 0 {
            return 1.0;
        }
        self.resident_bytes as f64 / self.looked_at_bytes as f64
    }
}

/// Residency of the part of an extent inside the file. Takes time in proportion to the number of
/// pages; see [`residency_sampled`].
///
/// # Errors
/// [`IoError::Open`] if neither cachestat nor mincore is available.
pub fn residency(file: &dyn ReadAt, offset: u64, bytes: u64) -> Result<Residency> {
    let end = offset.saturating_add(bytes).min(file.size_bytes());
    let bytes = end.saturating_sub(offset);
    if bytes == 0 {
        return Ok(Residency {
            looked_at_bytes: 0,
            resident_bytes: 0,
            method: ResidencyMethod::Cachestat,
        });
    }
    let fail = |cause| IoError::open(file.path(), "ask which pages are in memory", cause);
    let descriptor = file.source().descriptor(ReadMode::Buffered).map_err(fail)?;
    let fd = descriptor.as_raw_fd();
    let (pages_bytes, method) = match cachestat(fd, offset, bytes) {
        Ok(resident) => (resident, ResidencyMethod::Cachestat),
        // Older kernels, a seccomp filter, or a file of another owner.
        Err(_) => (mincore(fd, offset, bytes).map_err(fail)?, ResidencyMethod::Mincore),
    };
    Ok(Residency { looked_at_bytes: bytes, resident_bytes: pages_bytes.min(bytes), method })
}

/// Residency of `samples` stretches of 64 KiB spread evenly over an extent, including its ends; of
/// the whole extent if that is less.
///
/// # Errors
/// As [`residency`].
pub fn residency_sampled(
    file: &dyn ReadAt,
    offset: u64,
    bytes: u64,
    samples: u64,
) -> Result<Residency> {
    const SAMPLE_BYTES: u64 = 64 << 10;
    let samples = samples.max(2);
    if bytes <= samples * SAMPLE_BYTES {
        return residency(file, offset, bytes);
    }
    let mut sum =
        Residency { looked_at_bytes: 0, resident_bytes: 0, method: ResidencyMethod::Cachestat };
    for sample in 0..samples {
        // u128: a product of file sizes does not fit u64.
        let skip = u128::from(bytes - SAMPLE_BYTES) * u128::from(sample) / u128::from(samples - 1);
        let one = residency(file, offset + skip as u64, SAMPLE_BYTES)?;
        sum.looked_at_bytes += one.looked_at_bytes;
        sum.resident_bytes += one.resident_bytes;
        sum.method = one.method;
    }
    Ok(sum)
}

/// Asks the kernel to drop the file's pages, after writing back dirty ones: for cold runs. Pages
/// that are mapped or in use elsewhere stay; [`residency`] tells.
///
/// # Errors
/// [`IoError::Open`] with the error of the operating system.
pub fn drop_cache(file: &dyn ReadAt) -> Result<()> {
    let fail = |cause| IoError::open(file.path(), "drop the file's cached pages", cause);
    let descriptor = file.source().descriptor(ReadMode::Buffered).map_err(fail)?;
    let fd = descriptor.as_raw_fd();
    // SAFETY: plain calls on an open descriptor.
    unsafe {
        if libc::fdatasync(fd) != 0 {
            return Err(fail(io::Error::last_os_error()));
        }
        match libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED) {
            0 => Ok(()),
            errno => Err(fail(io::Error::from_raw_os_error(errno))),
        }
    }
}

/// Bytes of whole pages of the extent that are in the page cache, by cachestat(2).
fn cachestat(fd: RawFd, offset: u64, bytes: u64) -> io::Result<u64> {
    #[repr(C)]
    struct Range {
        offset: u64,
        bytes: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Found {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let range = Range { offset, bytes };
    let mut found = Found::default();
    // SAFETY: both structures have the layout of <linux/mman.h> and live across the call.
    let rc = unsafe { libc::syscall(SYS_CACHESTAT, fd, &range, &mut found, 0u32) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(found.cached * page_bytes())
}

/// The same by mincore(2), over a temporary mapping that is never read.
fn mincore(fd: RawFd, offset: u64, bytes: u64) -> io::Result<u64> {
    let page = page_bytes();
    let start = offset / page * page;
    let length = (offset + bytes - start) as usize;
    // SAFETY: a new mapping at an address of the kernel's choice, unmapped below and never
    // accessed.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            fd,
            start as libc::off_t,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut pages = vec![0u8; length.div_ceil(page as usize)];
    // SAFETY: the mapping is live, and `pages` has one byte for each of its pages.
    let rc = unsafe { libc::mincore(address, length, pages.as_mut_ptr()) };
    let cause = io::Error::last_os_error();
    // SAFETY: exactly the mapping made above.
    unsafe { libc::munmap(address, length) };
    if rc != 0 {
        return Err(cause);
    }
    Ok(pages.iter().filter(|page| **page & 1 == 1).count() as u64 * page)
}

/// Size of a page of memory.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: a plain query.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::SourceFile;

    #[test]
    fn cold_and_warm_are_told_apart_by_both_methods() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("a");
        let bytes = 4 << 20;
        std::fs::write(&path, vec![1u8; bytes]).unwrap();
        let file = SourceFile::open(&path).unwrap();
        drop_cache(&*file).unwrap();
        let descriptor = file.descriptor(ReadMode::Buffered).unwrap();
        let fd = descriptor.as_raw_fd();
        let size = bytes as u64;
        assert_eq!(residency(&*file, 0, size).unwrap().resident_bytes, 0);
        assert_eq!(mincore(fd, 0, size).unwrap(), 0);
        assert_eq!(residency_sampled(&*file, 0, size, 4).unwrap().share(), 0.0);

        let mut all = vec![0u8; bytes];
        file.read_exact_at(0, &mut all).unwrap();
        assert_eq!(residency(&*file, 0, size).unwrap().resident_bytes, size);
        assert_eq!(residency(&*file, 5000, 100).unwrap().resident_bytes, 100);
        assert_eq!(mincore(fd, 0, size).unwrap(), size);
        let sampled = residency_sampled(&*file, 0, size, 4).unwrap();
        assert_eq!((sampled.share(), sampled.looked_at_bytes), (1.0, 4 * (64 << 10)));
        assert_eq!(residency(&*file, size + 5, 10).unwrap().share(), 1.0);
    }
}
