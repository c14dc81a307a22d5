//! The fault-injecting twin of a file: the same bytes, delivered as badly as configured.
//!
//! Faults are a function of the plan, its seed and the offset, not of the clock, so every failure
//! can be reproduced.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::random::drawn_at;
use crate::residency::page_bytes;
use crate::{IoError, ReadAt, ReadMode, Result, SourceFile};

/// Size of the torn blocks.
const TORN_BLOCK_BYTES: u64 = 4096;

/// The faults to inject. The default is none.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    /// Seed of everything that happens "per mille".
    pub seed: u64,
    /// Reads or writes that move only part of the bytes.
    pub short_permille: u16,
    /// Those that are interrupted by a signal (EINTR).
    pub interrupted_permille: u16,
    /// Every one that touches this byte fails with EIO.
    pub io_error_at: Option<u64>,
    /// How often `io_error_at` fails before the device recovers; `None`: always. Mappings always
    /// see it.
    pub io_error_times: Option<u64>,
    /// Every one takes at least this long.
    pub latency: Duration,
    /// O_DIRECT fails with EINVAL, although the file was opened with O_DIRECT.
    pub direct_refused: bool,
    /// The file that is read ends here, although it was longer at opening.
    pub truncated_at: Option<u64>,
    /// Blocks of 4096 bytes that are read with their second half wrong (each byte inverted).
    pub torn_blocks_permille: u16,
    /// The file counts as changed when it is checked.
    pub changed: bool,
    /// The file system is full here: a write that begins before is short, one that begins after
    /// fails with ENOSPC.
    pub full_at: Option<u64>,
    /// The commit fails with EIO, as if bytes had been lost on their way to the device.
    pub commit_fails: bool,
}

/// The faults of a file, with counts.
#[derive(Debug)]
pub(crate) struct Faults {
    pub plan: FaultPlan,
    attempts: AtomicU64,
    io_errors: AtomicU64,
}

impl Faults {
    pub fn new(plan: FaultPlan) -> Faults {
        Faults { plan, attempts: AtomicU64::new(0), io_errors: AtomicU64::new(0) }
    }

    /// Attempts so far, with any outcome.
    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// One attempt: waits as planned, and fails if it is to fail.
    pub fn strike(&self, mode: ReadMode, offset: u64, bytes: usize) -> io::Result<()> {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        if !self.plan.latency.is_zero() {
            std::thread::sleep(self.plan.latency);
        }
        let errno = |errno| Err(io::Error::from_raw_os_error(errno));
        if mode == ReadMode::Direct && self.plan.direct_refused {
            return errno(libc::EINVAL);
        }
        // By number, not by place: the same attempt must succeed when it is repeated.
        if mix(self.plan.seed, attempt, 3) % 1000 < u64::from(self.plan.interrupted_permille) {
            return errno(libc::EINTR);
        }
        if self.io_error_strikes(offset, bytes) {
            return errno(libc::EIO);
        }
        Ok(())
    }

    fn io_error_strikes(&self, offset: u64, bytes: usize) -> bool {
        let touched = |at| at >= offset && at - offset < bytes as u64;
        if !self.plan.io_error_at.is_some_and(touched) {
            return false;
        }
        let strikes = self.io_errors.fetch_add(1, Ordering::Relaxed);
        self.plan.io_error_times.is_none_or(|times| strikes < times)
    }

    /// How many of `count` bytes at `offset` are moved: at least 1, unless `count` is 0.
    pub fn shortened(&self, offset: u64, count: usize) -> usize {
        let dice = mix(self.plan.seed, offset, count as u64);
        if count < 2 || dice % 1000 >= u64::from(self.plan.short_permille) {
            return count;
        }
        1 + (mix(dice, offset, 2) % (count as u64 - 1)) as usize
    }
}

/// A file with faults. Replaces a [`SourceFile`] under every reader.
#[derive(Debug)]
pub struct FaultyFile {
    inner: Arc<SourceFile>,
    faults: Faults,
}

impl FaultyFile {
    /// The twin of `inner`.
    pub fn new(inner: Arc<SourceFile>, plan: FaultPlan) -> Arc<FaultyFile> {
        Arc::new(FaultyFile { inner, faults: Faults::new(plan) })
    }

    /// Reads attempted so far, with any outcome (mappings not included).
    pub fn reads(&self) -> u64 {
        self.faults.attempts()
    }

    /// The bytes that a reader must get for the true bytes `content` at `offset`: the same, torn.
    pub fn tear(&self, offset: u64, content: &mut [u8]) {
        if self.faults.plan.torn_blocks_permille == 0 {
            return;
        }
        for (position, byte) in (offset..).zip(content) {
            let second_half = position % TORN_BLOCK_BYTES >= TORN_BLOCK_BYTES / 2;
            if second_half && self.is_torn(position / TORN_BLOCK_BYTES) {
                *byte = !*byte;
            }
        }
    }

    fn is_torn(&self, block: u64) -> bool {
        mix(self.faults.plan.seed, block, 1) % 1000
            < u64::from(self.faults.plan.torn_blocks_permille)
    }

    /// How many of `count` bytes at `offset` a reader gets.
    fn delivered(&self, offset: u64, count: usize) -> usize {
        let left = self.faults.plan.truncated_at.map_or(u64::MAX, |end| end.saturating_sub(offset));
        let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        self.faults.shortened(offset, count)
    }

    /// # Safety
    /// As [`ReadAt::prepare_mapping`].
    unsafe fn break_pages(&self, base: *mut u8, bytes: usize) -> io::Result<()> {
        let page = page_bytes() as usize;
        let mut broken = Vec::new();
        if let Some(end) = self.faults.plan.truncated_at.map(|end| end as usize)
            && end < bytes
        {
            let whole = end.next_multiple_of(page);
            // SAFETY: the range lies inside the mapping (its last page is mapped whole).
            unsafe { alter(base, end..whole.min(bytes), |_, part| part.fill(0)) }?;
            broken.push(whole..bytes);
        }
        if let Some(at) = self.faults.plan.io_error_at.map(|at| at as usize)
            && at < bytes
        {
            let start = at / page * page;
            broken.push(start..(start + page).min(bytes));
        }
        for range in broken.into_iter().filter(|range| !range.is_empty()) {
            let empty = empty_file()?;
            // SAFETY: the range lies inside the mapping, which the caller lets us change. Pages of
            // an empty file behave as those of a truncated one: touching them raises SIGBUS.
            let address = unsafe {
                libc::mmap(
                    base.add(range.start).cast(),
                    range.len(),
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_FIXED,
                    empty.as_raw_fd(),
                    0,
                )
            };
            if address == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

impl ReadAt for FaultyFile {
    fn source(&self) -> &SourceFile {
        &self.inner
    }

    fn intercept(
        &self,
        mode: ReadMode,
        offset: u64,
        into: &mut [u8],
        outcome: io::Result<usize>,
    ) -> io::Result<usize> {
        self.faults.strike(mode, offset, into.len())?;
        let count = self.delivered(offset, outcome?);
        self.tear(offset, &mut into[..count]);
        Ok(count)
    }

    unsafe fn prepare_mapping(&self, base: *mut u8, bytes: usize) -> io::Result<()> {
        if self.faults.plan.torn_blocks_permille > 0 {
            // SAFETY: the whole of a mapping that the caller lets us change.
            unsafe { alter(base, 0..bytes, |offset, part| self.tear(offset, part)) }?;
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.break_pages(base, bytes) }
    }

    fn check_unchanged(&self) -> Result<()> {
        if self.faults.plan.changed {
            return Err(IoError::Changed {
                path: self.path().to_path_buf(),
                what: "by order of the fault plan".to_string(),
            });
        }
        self.inner.check_unchanged()
    }
}

/// Changes a range of a private mapping in place.
///
/// # Safety
/// The range must lie inside a private file mapping at `base` that nobody else uses.
unsafe fn alter(
    base: *mut u8,
    range: std::ops::Range<usize>,
    change: impl FnOnce(u64, &mut [u8]),
) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let page_start = range.start / page_bytes() as usize * page_bytes() as usize;
    let protect = |protection| -> io::Result<()> {
        // SAFETY: whole pages of the mapping, which belongs to the caller.
        let rc = unsafe {
            libc::mprotect(base.add(page_start).cast(), range.end - page_start, protection)
        };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    protect(libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: inside the mapping, writable now, and used by nobody else.
    let part = unsafe { std::slice::from_raw_parts_mut(base.add(range.start), range.len()) };
    change(range.start as u64, part);
    protect(libc::PROT_READ)
}

fn empty_file() -> io::Result<OwnedFd> {
    // SAFETY: a plain call with a constant name.
    let fd = unsafe { libc::memfd_create(c"headrace-fault".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A number from a seed and two others.
fn mix(seed: u64, a: u64, b: u64) -> u64 {
    [a, b].into_iter().fold(drawn_at(seed, 0), |state, word| drawn_at(state ^ word, 0))
}
