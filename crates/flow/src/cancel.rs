//! Cancellation from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a waiting race checks its token: the longest delay of a cancellation, apart from
/// reads, consumers and kernels in progress.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A shared flag that any holder may set. Once set it stays set.
#[derive(Debug, Clone, Default)]
pub struct CancelToken {
    cancelled: Arc<AtomicBool>,
}

/// The flag of an outside owner that does not know races.
impl From<Arc<AtomicBool>> for CancelToken {
    fn from(cancelled: Arc<AtomicBool>) -> Self {
        CancelToken { cancelled }
    }
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels all work with this token or a clone of it.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}
