//! Waiting for the engine: without the interpreter's lock, and with an ear for signals.

use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::Runtime;

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

/// Waits for a future. Others may run Python meanwhile, and signals are heard: their exception ends it.
///
/// # Errors
/// What a signal raises, such as KeyboardInterrupt; what `tick` raises, which is called now and then.
pub fn wait<T: Send>(
    py: Python<'_>,
    future: impl Future<Output = T> + Send,
    mut tick: impl FnMut() -> PyResult<()>,
) -> PyResult<T> {
    let runtime = runtime()?;
    let mut future = pin!(future);
    loop {
        let paused = py.detach(|| {
            runtime.block_on(async { tokio::time::timeout(PAUSE, future.as_mut()).await })
        });
        match paused {
            Ok(done) => return Ok(done),
            Err(_) => {
                py.check_signals()?;
                tick()?;
            }
        }
    }
}
