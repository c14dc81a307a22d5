//! The limit of file sizes, and the signal that comes with it.

use std::io;

/// The process's limit of file sizes in bytes; `None` where there is none.
fn limit_bytes() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain call that fills in `limit`.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    (rc == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// EFBIG if a file may not become this long.
pub(super) fn check(bytes: u64) -> io::Result<()> {
    match limit_bytes() {
        Some(limit) if bytes > limit => Err(io::Error::from_raw_os_error(libc::EFBIG)),
        _ => Ok(()),
    }
}

/// Calls `work` with SIGXFSZ blocked in this thread. A signal that arrived meanwhile is discarded,
/// so only the error of the failed call remains.
pub(super) fn without_signal<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: `sigset_t` is plain data that the calls initialise; masks concern this thread only.
    // A signal is taken away only where it was not blocked before, so that it is not one that
    // somebody else waits for.
    unsafe {
        let mut only: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, libc::SIGXFSZ);
        if libc::pthread_sigmask(libc::SIG_BLOCK, &only, &mut before) != 0
            || libc::sigismember(&before, libc::SIGXFSZ) == 1
        {
            return work();
        }
        let result = work();
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        libc::sigtimedwait(&only, std::ptr::null_mut(), &at_once);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}
