//! Descriptors of many files, a bounded number of them open at a time.
//!
//! A table may have more files than a process may open. A file is opened when it is first read.
//! When the pool is full, a file that was not used lately is closed, and opened again on demand. A
//! file in use stays open until its last user is done: the pool only forgets it.
//!
//! The pool holds half of the descriptors that the process may have (`RLIMIT_NOFILE`). It reads the
//! limit each time, so a raised limit takes effect at once.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

/// The minimum number of files that the pool keeps open, whatever the limit.
const FILES_MIN: usize = 8;

/// More files bring nothing: opening one costs microseconds.
const FILES_MAX: usize = 4096;

/// Higher limits bring nothing either, and some programs walk through all descriptor numbers.
const LIMIT_MAX: u64 = 1 << 20;

/// A file's place in the pool, open or not.
#[derive(Debug, Default)]
pub(crate) struct Handle {
    file: RwLock<Option<Arc<File>>>,
    /// Used since the pool last looked for a file to close.
    used: AtomicBool,
}

/// Handles of open files, oldest admission first.
static OPEN: Mutex<VecDeque<Weak<Handle>>> = Mutex::new(VecDeque::new());

impl Handle {
    /// The file, opened by `open` if necessary.
    pub fn get(self: &Arc<Self>, open: impl FnMut() -> io::Result<File>) -> io::Result<Arc<File>> {
        // Many threads at once ask for one file: the flag is a line that they share, so it is written once.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        if let Some(file) = &*self.file.read() {
            return Ok(file.clone());
        }
        let mut place = self.file.write();
        if let Some(file) = &*place {
            return Ok(file.clone());
        }
        let file = Arc::new(open_with_room(open)?);
        *place = Some(file.clone());
        OPEN.lock().push_back(Arc::downgrade(self));
        Ok(file)
    }

    /// A handle of an open file.
    pub fn of(file: File) -> Arc<Handle> {
        let handle = Arc::new(Handle::default());
        // It cannot fail: the file is there.
        let mut file = Some(file);
        let _ = handle.get(|| file.take().ok_or_else(|| io::ErrorKind::NotFound.into()));
        handle
    }

    /// Closes the file unless it is about to be used; returns whether it was closed.
    fn close(&self) -> bool {
        // Not waited for: its holder may wait for the pool.
        self.file.try_write().is_some_and(|mut place| place.take().is_some())
    }
}

/// Opens a file when the pool has, or has made, room for it.
///
/// # Errors
/// Those of `open`; "too many open files" only if closing every file of the pool does not help.
pub(crate) fn open_with_room(mut open: impl FnMut() -> io::Result<File>) -> io::Result<File> {
    close_down_to(files_max().saturating_sub(1));
    match open() {
        Err(cause) if matches!(cause.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            close_down_to(0);
            open()
        }
        other => other,
    }
}

/// Closes files that were not used lately until at most this many are open, as far as their users
/// allow.
fn close_down_to(files: usize) {
    let mut open = OPEN.lock();
    if open.len() <= files {
        return;
    }
    open.retain(|handle| handle.strong_count() > 0);
    // Twice round: the first time may only find that all were used.
    for _ in 0..2 * open.len() {
        if open.len() <= files {
            return;
        }
        let Some(handle) = open.pop_front() else { return };
        if let Some(kept) = handle.upgrade()
            && (kept.used.swap(false, Ordering::Relaxed) || !kept.close())
        {
            open.push_back(handle);
        }
    }
}

/// Files that the pool keeps open at most.
fn files_max() -> usize {
    let half = usize::try_from(limit().rlim_cur / 2).unwrap_or(FILES_MAX);
    half.clamp(FILES_MIN, FILES_MAX)
}

fn limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain call that fills the structure in; it fails for wrong arguments only.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit
}

/// How many files this process may have open.
pub(crate) fn files_allowed() -> u64 {
    limit().rlim_cur
}

/// Raises the number of files that this process may open to its hard limit, at most 2^20, and
/// returns the new limit. Programs call this at start-up; libraries do not change limits of their
/// process.
pub fn raise_open_files() -> u64 {
    let mut limit = limit();
    let wanted = limit.rlim_max.min(LIMIT_MAX);
    if wanted > limit.rlim_cur {
        limit.rlim_cur = wanted;
        // SAFETY: a plain call. If it is refused, the limit stays what it was, and the pool
        // does with that.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
    files_allowed()
}
