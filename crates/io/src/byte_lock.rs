//! Locks of byte ranges, by which processes show each other that they are alive.
//!
//! The kernel drops a lock when its process ends in any way, so no stale locks remain. The bytes need not
//! exist. There is no waiting: a range that another process holds is not taken.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The byte after the last one that can be locked.
const END: u64 = i64::MAX as u64;

/// A range of a file's bytes that is locked until this is dropped.
#[derive(Debug)]
pub struct ByteLock {
    file: File,
}

impl ByteLock {
    /// Locks the first free range of several non-empty ones; `None` if none is free. The file is created if
    /// necessary, readable by this user alone.
    ///
    /// # Errors
    /// The file cannot be opened for writing, or its file system has no such locks.
    pub fn take(
        path: &Path,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).mode(0o600).open(path)?;
        for range in ranges {
            match lock(&file, libc::F_OFD_SETLK, &range) {
                Ok(_) => return Ok(Some(Self { file })),
                Err(cause) if is_taken(&cause) => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(None)
    }

    /// The ranges that others hold now, unordered.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn others(&self) -> io::Result<Vec<Range<u64>>> {
        let (mut others, mut gaps) = (Vec::new(), std::iter::once(0..END).collect::<Vec<_>>());
        while let Some(gap) = gaps.pop() {
            // Any of those in the gap, not the first of them.
            let found = lock(&self.file, libc::F_OFD_GETLK, &gap)?;
            if i32::from(found.l_type) == libc::F_UNLCK {
                continue;
            }
            let start = u64::try_from(found.l_start).unwrap_or(0);
            let end = match u64::try_from(found.l_len) {
                Ok(bytes) if bytes > 0 => start.saturating_add(bytes),
                _ => END,
            };
            let rest = [gap.start..start.min(gap.end), end.max(gap.start)..gap.end];
            gaps.extend(rest.into_iter().filter(|rest| !rest.is_empty()));
            others.push(start..end);
        }
        Ok(others)
    }
}

fn is_taken(cause: &io::Error) -> bool {
    matches!(cause.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

/// A command about an exclusive lock of a range that is owned by the open file, not by the process.
fn lock(file: &File, command: i32, range: &Range<u64>) -> io::Result<libc::flock> {
    let bytes = if range.end == END { 0 } else { range.end - range.start };
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: range.start as libc::off_t,
        l_len: bytes as libc::off_t,
        l_pid: 0,
    };
    // SAFETY: an open descriptor, a command about locks, and a struct that outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// A fork inherits the open files of the whole process and with them the locks of concurrent tests, so
    /// these tests run one at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    fn sorted(lock: &ByteLock) -> Vec<Range<u64>> {
        let mut others = lock.others().unwrap();
        others.sort_by_key(|range| range.start);
        others
    }

    #[test]
    fn locks_are_seen_by_others_and_gone_when_dropped() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks");
        let take = |ranges: &[Range<u64>]| ByteLock::take(&path, ranges.to_vec()).unwrap();
        let first = take(&[100..102]).unwrap();
        assert_eq!(sorted(&first), []);
        // Neighbours stay two.
        let (high, low) = (take(&[102..110]).unwrap(), take(&[7..8]).unwrap());
        let last = take(&[END - 5..END]).unwrap();
        assert_eq!(sorted(&first), [7..8, 102..110, END - 5..END]);
        assert_eq!(sorted(&last), [7..8, 100..102, 102..110]);
        assert!(take(&[101..105, 109..120]).is_none());
        let second_choice = take(&[101..105, 300..301]).unwrap();
        drop(first);
        drop(low);
        assert_eq!(sorted(&high), [300..301, END - 5..END]);
        drop((second_choice, last));
        assert_eq!(sorted(&high), []);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }

    #[test]
    fn a_process_that_is_killed_holds_nothing() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks");
        let own = ByteLock::take(&path, [0..1]).unwrap().unwrap();
        let theirs = ByteLock::take(&path, [5..9]).unwrap().unwrap();
        // SAFETY: the child calls nothing but `pause`, which any process may call after a fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        }
        // The child has the open file, too, and so the lock.
        drop(theirs);
        assert_eq!(sorted(&own), [5..9]);
        // SAFETY: the child of above, which is waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
        }
        assert_eq!(sorted(&own), []);
    }
}
