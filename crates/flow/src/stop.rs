//! The end of a race before its last chunk: the first reason wins.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::{CancelToken, RaceError};

/// Shared by all threads of a race.
#[derive(Debug)]
pub(crate) struct Stop {
    stopped: AtomicBool,
    first_error: Mutex<Option<RaceError>>,
    token: CancelToken,
}

impl Stop {
    pub fn new(token: CancelToken) -> Stop {
        Stop { stopped: AtomicBool::new(false), first_error: Mutex::new(None), token }
    }

    /// Stops without an error.
    pub fn enough(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Stops with an error. The first one is kept, also after `enough`: a consumer that fails on
    /// its last chunk has no answer.
    pub fn fail(&self, error: RaceError) {
        self.first_error.lock().get_or_insert(error);
        self.stopped.store(true, Ordering::Release);
    }

    /// Whether to stop; turns a cancelled token into the error.
    pub fn is_stopped(&self) -> bool {
        if self.stopped.load(Ordering::Acquire) {
            return true;
        }
        if self.token.is_cancelled() {
            self.fail(RaceError::Cancelled);
            return true;
        }
        false
    }

    /// Whether there is an error, so that remaining work is void.
    pub fn has_failed(&self) -> bool {
        self.first_error.lock().is_some()
    }

    pub fn take_error(&self) -> Option<RaceError> {
        self.first_error.lock().take()
    }
}

/// Stops the race if the thread that holds it panics, so that no thread waits for it for ever.
#[derive(Debug)]
pub(crate) struct FailOnPanic<'a>(pub &'a Stop);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let message = "the thread that drives the race panicked".to_string();
            self.0.fail(RaceError::Panic { chunk: None, message });
        }
    }
}

/// The message of a caught panic.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|message| (*message).to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_string())
}
