//! Signals are the host process's: it handles them on its own threads.

/// Blocks in the calling thread all signals that can safely be blocked, so that the host process
/// handles its signals on its own threads. Faults stay deliverable: a blocked SIGBUS would kill the
/// process instead of reaching its handler.
pub fn block_signals() {
    // SAFETY: `sigset_t` is plain data that `sigfillset` initialises; the calls change only the
    // calling thread's mask.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut set);
        for fault in [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            libc::sigdelset(&mut set, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}
