//! The one thread that a backend starts at a time, with all that it starts, and its end.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use headrace_flow::CancelToken;
use pgrx::pg_sys::{self, Datum};

/// The run that is under way. A backend has one thread of its own, and waits for it.
static RUNNING: Mutex<Option<(CancelToken, JoinHandle<()>)>> = Mutex::new(None);

/// Sees to it that no thread is left when the process gives shared memory back.
///
/// # Safety
/// The backend's thread, once a process.
pub unsafe fn register() {
    pg_sys::before_shmem_exit(Some(before_exit), Datum::from(0));
}

unsafe extern "C-unwind" fn before_exit(_code: i32, _argument: Datum) {
    join();
}

fn join() {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((token, thread)) = running {
        token.cancel();
        // A panic was told by the thread's own message.
        let _ = thread.join();
    }
}

/// A run that ends, one way or the other, before this is gone: an error of the server unwinds.
pub struct Running;

impl Running {
    /// Starts a thread that no signal goes to, nor to those that it starts.
    pub fn start(token: CancelToken, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let blocked = SignalsBlocked::new();
        let thread = std::thread::Builder::new().name("headrace".into()).spawn(work)?;
        drop(blocked);
        let before =
            RUNNING.lock().unwrap_or_else(PoisonError::into_inner).replace((token, thread));
        assert!(before.is_none(), "two runs of one backend");
        Ok(Self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        join();
    }
}

/// Does something that may start threads and joins them.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let _blocked = SignalsBlocked::new();
    work()
}

/// Blocks what a thread inherits: every signal but those that a thread raises itself.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
        // SAFETY: plain C sets of signals, filled before they are used; only this thread's mask changes.
        unsafe {
            let (mut blocked, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut blocked);
            for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
                libc::sigdelset(&mut blocked, own);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &blocked, &mut before);
            Self(before)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the mask that the thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
