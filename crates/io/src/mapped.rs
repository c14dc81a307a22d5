//! A file mapped into memory, read in place.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::residency::page_bytes;
use crate::sigbus::Guarded;
use crate::{IoError, ReadAt, ReadMode, Result};

/// A read-only mapping of a whole file.
///
/// Data read from it is valid only if [`check`](MappedFile::check) succeeds *afterwards*: pages
/// that could not be delivered (the file was truncated, its storage failed) read as zeros.
/// [`ReadAt::check_unchanged`] tells whether the file was written meanwhile.
///
/// # What may be concluded from mapped bytes
///
/// Nothing that memory safety rests on. Other processes may write to the file or cut it, and the
/// bytes change under whoever looks at them: two looks at the same byte may differ. Values of
/// which any pattern of bits is one (numbers) can be read in place. What is checked first and
/// trusted afterwards (offsets, codes, UTF-8, counted bits) must be [copied](MappedFile::copy)
/// before it is checked, or be checked again at each use.
#[derive(Debug)]
pub struct MappedFile {
    file: Arc<dyn ReadAt>,
    start: NonNull<u8>,
    bytes: usize,
    /// `None` only for an empty file and while the mapping is being dropped.
    guarded: Option<Guarded>,
    mark: PoisonMark,
}

/// Tells, for a mapping that is gone, whether a page of it could not be delivered. Ask a live
/// mapping itself.
#[derive(Debug, Clone)]
pub struct PoisonMark(Arc<AtomicU64>);

impl PoisonMark {
    const CLEAN: u64 = u64::MAX;

    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(Self::CLEAN)))
    }

    /// Error if a page of the file at `path` could not be delivered.
    pub fn check(&self, path: &Path) -> Result<()> {
        match self.0.load(Ordering::Acquire) {
            Self::CLEAN => Ok(()),
            offset => Err(IoError::Poisoned {
                path: path.to_path_buf(),
                offset,
                cause: "the file was truncated, or its storage could not be read",
            }),
        }
    }
}

// SAFETY: the mapping is read-only memory that lives as long as the value.
unsafe impl Send for MappedFile {}
// SAFETY: as above; all methods take `&self` and only read or give advice.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps the file, as long as it was when it was opened.
    ///
    /// # Errors
    /// [`IoError::Open`] with the reason: no address space, or too many mapped files.
    pub fn map(file: Arc<dyn ReadAt>) -> Result<MappedFile> {
        let size_bytes = file.size_bytes();
        let action = || format!("map {size_bytes} bytes");
        if size_bytes == 0 {
            return Ok(MappedFile {
                file,
                start: NonNull::dangling(),
                bytes: 0,
                guarded: None,
                mark: PoisonMark::new(),
            });
        }
        let start_of = || -> io::Result<(NonNull<u8>, usize)> {
            let bytes = usize::try_from(size_bytes)
                .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
            // The mapping outlives the descriptor.
            let descriptor = file.source().descriptor(ReadMode::Buffered)?;
            // SAFETY: a new mapping at an address of the kernel's choice.
            let address = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    bytes,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_NORESERVE,
                    descriptor.as_raw_fd(),
                    0,
                )
            };
            if address == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let start = NonNull::new(address.cast::<u8>())
                .ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
            Ok((start, bytes))
        };
        let (start, bytes) =
            start_of().map_err(|cause| IoError::open(file.path(), action(), cause))?;
        let mut mapped = MappedFile { file, start, bytes, guarded: None, mark: PoisonMark::new() };
        // SAFETY: the mapping was just made, is private, and nobody else knows it.
        let prepared = unsafe { mapped.file.prepare_mapping(start.as_ptr(), bytes) };
        // SAFETY: the mapping belongs to `mapped`, which drops the guard before it unmaps.
        let guarded = prepared.and_then(|()| unsafe { Guarded::enter(start.as_ptr(), bytes) });
        match guarded {
            Ok(guarded) => mapped.guarded = Some(guarded),
            Err(cause) => return Err(IoError::open(mapped.file.path(), action(), cause)),
        }
        Ok(mapped)
    }

    /// The file that is mapped.
    pub fn file(&self) -> &Arc<dyn ReadAt> {
        &self.file
    }

    /// Length of the mapping.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the file was empty.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// An extent of the file, in place; see above for how far it can be trusted.
    ///
    /// # Errors
    /// [`IoError::OutOfRange`] if it does not lie inside the file.
    pub fn bytes(&self, offset: u64, bytes: u64) -> Result<&[u8]> {
        let start = self.address(offset, bytes)?;
        // SAFETY: the range lies inside the mapping, which lives as long as `self`, stays readable
        // (the SIGBUS handler replaces pages that have gone) and is never written by this process.
        // Another process may write to the file; Rust's rules know no other processes, and a load
        // then yields the old or the new byte. Nothing here or in the callers lets memory safety
        // depend on two loads agreeing.
        Ok(unsafe { std::slice::from_raw_parts(start, bytes as usize) })
    }

    /// A copy of an extent of the file, which can no longer change.
    ///
    /// # Errors
    /// [`IoError::OutOfRange`] if it does not lie inside the file.
    pub fn copy(&self, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        let start = self.address(offset, bytes)?;
        let bytes = bytes as usize;
        let mut copy = Vec::with_capacity(bytes);
        // SAFETY: `bytes` bytes from `start` on are mapped and readable (see `bytes`), the vector
        // has room for them, and they do not overlap; copied from a pointer, so that no reference
        // claims that they stand still meanwhile. All of them are initialised then.
        unsafe {
            std::ptr::copy_nonoverlapping(start, copy.as_mut_ptr(), bytes);
            copy.set_len(bytes);
        }
        Ok(copy)
    }

    /// Address of an extent of the file that lies inside the mapping.
    fn address(&self, offset: u64, bytes: u64) -> Result<*const u8> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes as u64);
        if !inside {
            return Err(IoError::OutOfRange {
                path: self.file.path().to_path_buf(),
                offset,
                bytes,
                size_bytes: self.bytes as u64,
            });
        }
        // SAFETY: the offset lies inside the mapping, or at its end.
        Ok(unsafe { self.start.as_ptr().add(offset as usize) })
    }

    /// Error if a page that was read from the mapping could not be delivered.
    pub fn check(&self) -> Result<()> {
        self.update_mark();
        self.mark.check(self.file.path())
    }

    /// What remains of [`check`](Self::check) when the mapping is gone.
    pub fn mark(&self) -> PoisonMark {
        self.mark.clone()
    }

    fn update_mark(&self) {
        if let Some(at) = self.guarded.as_ref().and_then(Guarded::poisoned_at) {
            self.mark.0.store(at as u64, Ordering::Release);
        }
    }

    /// Releases the pages that lie completely in the range, to keep the process small; they stay in
    /// the page cache. Reading them again faults them in.
    pub fn release(&self, range: Range<u64>) {
        let page = page_bytes();
        let start = range.start.next_multiple_of(page);
        // The file's last page may be partial; it is wholly in the range if the range reaches
        // the end.
        let end = if range.end >= self.bytes as u64 { range.end } else { range.end / page * page };
        self.advise(start..end, libc::MADV_DONTNEED);
    }

    /// Maps all pages of the range at once and reads what is not in memory (Linux 5.14; elsewhere
    /// without effect). Cheaper than a fault per page.
    pub fn populate(&self, range: Range<u64>) {
        self.advise(range, libc::MADV_POPULATE_READ);
    }

    /// Starts reading the range into the page cache, without waiting and without mapping it.
    pub fn will_need(&self, range: Range<u64>) {
        self.advise(range, libc::MADV_WILLNEED);
    }

    /// Hints may fail: the data is the same, only later.
    fn advise(&self, range: Range<u64>, advice: i32) {
        let start = range.start / page_bytes() * page_bytes();
        let end = range.end.min(self.bytes as u64);
        if start >= end {
            return;
        }
        // SAFETY: the range lies inside our mapping. None of the advices used changes what is
        // read from a file mapping: DONTNEED drops clean pages, which come back from the file.
        unsafe {
            let address = self.start.as_ptr().add(start as usize);
            libc::madvise(address.cast(), (end - start) as usize, advice);
        }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        self.update_mark();
        // First out of the handler's table, then unmapped: the handler must never replace pages
        // at an address that the kernel may have given to somebody else.
        self.guarded = None;
        if self.bytes > 0 {
            // SAFETY: exactly the mapping made in `map`; borrows of it have ended.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}
