//! The end of a race before its last chunk: the first reason wins.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::{CancelToken, RaceError};

/// Shared by everybody who works on a race.
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
    /// the chunk it was still working on has no answer to give.
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

    pub fn take_error(&self) -> Option<RaceError> {
        self.first_error.lock().take()
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
