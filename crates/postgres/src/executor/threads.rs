//! The one thread that a backend starts at a time, and its end.

use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use headrace_flow::CancelToken;
use pgrx::pg_sys::{self, Datum};

/// How long the backend sleeps at most before it looks for interrupts.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The run that is under way. A backend has one thread of its own, and waits for it.
static RUNNING: Mutex<Option<(CancelToken, JoinHandle<()>)>> = Mutex::new(None);

/// Sees to it that no thread works when the process gives shared memory back. Those that wait for work touch none.
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
    pub fn start(work: impl FnOnce(&CancelToken) + Send + 'static) -> io::Result<Self> {
        let (blocked, token) = (SignalsBlocked::new(), CancelToken::new());
        let its_token = token.clone();
        let thread = std::thread::Builder::new().name("headrace".into());
        let thread = thread.spawn(move || work(&its_token))?;
        drop(blocked);
        let before =
            RUNNING.lock().unwrap_or_else(PoisonError::into_inner).replace((token, thread));
        assert!(before.is_none(), "two runs of one backend");
        Ok(Self)
    }
}

/// Does something that waits for other processes, on a thread, so that the backend heeds interrupts
/// meanwhile.
pub fn interruptibly<T: Send + 'static>(
    work: impl FnOnce(&CancelToken) -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, done) = std::sync::mpsc::channel();
    let running = Running::start(move |token| {
        let _ = sender.send(work(token));
    })?;
    loop {
        pgrx::check_for_interrupts!();
        match done.recv_timeout(LOOK_INTERVAL) {
            Ok(outcome) => {
                drop(running);
                return Ok(outcome);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the thread ended by a panic"));
            }
        }
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
