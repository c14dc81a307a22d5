//! Waiting for the engine: without the interpreter's lock, and with an ear for signals.

use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Handle, Runtime};

/// How long signals wait until they are heard.
const PAUSE: Duration = Duration::from_millis(50);

/// Expressions may be nested deeply.
const STACK_BYTES: usize = 16 << 20;

/// The runtime of this process, and the process.
static RUNTIME: OnceLock<(Runtime, u32)> = OnceLock::new();

/// The threads that answer.
///
/// # Errors
/// In the child of a fork, where they are not.
pub fn runtime() -> PyResult<&'static Runtime> {
    let (runtime, pid) = match RUNTIME.get() {
        Some(made) => made,
        None => {
            headrace_engine::silence_panics();
            let mut threads = tokio::runtime::Builder::new_multi_thread();
            let made = threads.enable_all().thread_stack_size(STACK_BYTES).build();
            let made = made.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
            RUNTIME.get_or_init(|| (made, std::process::id()))
        }
    };
    match *pid == std::process::id() {
        true => Ok(runtime),
        false => Err(PyRuntimeError::new_err(
            "headrace was used before this process was forked, and its threads are not here; start processes by \
             multiprocessing.get_context(\"spawn\"), or use headrace in the child alone",
        )),
    }
}

/// Waits for a future, which runs on the runtime's threads. Others may run Python meanwhile, and signals are heard: their
/// exception ends the future at its next pause.
///
/// # Errors
/// What a signal raises, such as KeyboardInterrupt; what `tick` raises, which is called now and then.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    future: impl Future<Output = T> + Send + 'static,
    mut tick: impl FnMut() -> PyResult<()>,
) -> PyResult<T> {
    let (sender, mut receiver) = channel();
    let task = runtime()?.spawn(async move {
        // Nobody listens any more when a signal has ended it.
        let _ = sender.send(future.await);
    });
    loop {
        let receiver = &mut receiver;
        let received = py.detach(move || match Handle::try_current() {
            // It is a function of a statement that asks: others take over what waits for this thread.
            Ok(_) => tokio::task::block_in_place(|| receiver.recv_timeout(PAUSE)),
            Err(_) => receiver.recv_timeout(PAUSE),
        });
        match received {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals().and_then(|()| tick()).inspect_err(|_| task.abort())?;
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("a fault of headrace: its work has panicked"));
            }
        }
    }
}
